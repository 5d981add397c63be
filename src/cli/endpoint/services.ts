/** Opens the services of a configuration. */
import type { Pd } from '../../index.js';
import { connectionOptions, MAX_PING_BYTES } from '../rping/protocol.js';
import { answerPings } from '../rping/server.js';
import type { EndpointDevices } from './devices.js';
import { type ConnectionHandler, RdmaService } from './listener.js';
import type { Log } from './log.js';
import { echoHandler, regionsHandler } from './messages.js';
import { openMetrics } from './metrics.js';
import { openNvme } from './nvme.js';
import { PerftestService } from './perftest.js';
import type { RegionInfo } from './regions.js';
import type { Config, MetricsConfig, NvmeConfig, PerftestConfig, ServiceConfig, ValkeyConfig } from './schema.js';
import type { Service } from './service.js';
import { trafficHandler } from './traffic.js';
import { openValkey } from './valkey.js';

export type ServiceSpec = ServiceConfig | ({ readonly type: 'metrics' } & MetricsConfig);

/** Configurations of services that take connections. */
type RdmaConfig = Exclude<ServiceConfig, PerftestConfig | ValkeyConfig | NvmeConfig>;

/** The endpoint, as its services see it. */
export interface ServiceContext {
  readonly devices: EndpointDevices;
  /** The protection domain of the regions. */
  readonly pd: Pd;
  regionInfos(): readonly RegionInfo[];
  /** The address on which TCP services listen; undefined: all. */
  readonly host: string | undefined;
  readonly log: Log;
}

export function serviceSpecs({ services, metrics }: Config): ServiceSpec[] {
  return [...services, ...(metrics ? [{ type: 'metrics' as const, ...metrics }] : [])];
}

/** The port of a service, with its protocol: no two services can share it. */
export function portKey(spec: ServiceSpec): string {
  return `${isRdma(spec) ? 'rdma' : 'tcp'} ${spec.port}`;
}

/** Opens a service. @throws VerbsError EADDRINUSE; the system's error, mostly EADDRINUSE */
export function openService(
  spec: ServiceSpec,
  { devices, pd, regionInfos, host, log }: ServiceContext,
): Promise<Service> {
  const { only } = devices;
  if ('host' in spec) return openMetrics(devices, spec, log);
  if ('to' in spec) return openValkey(only, spec, log);
  if ('namespaces' in spec) return openNvme(only, spec, log);
  if ('qps' in spec) return PerftestService.open(only, spec, host, log);
  const about = { service: spec.type, port: spec.port };
  // regions are memory of one card
  const device = spec.type === 'regions' ? devices.first : only;
  return RdmaService.open(device, about, handlerFor(spec, pd, regionInfos), log);
}

function handlerFor(spec: RdmaConfig, pd: Pd, regionInfos: ServiceContext['regionInfos']): ConnectionHandler {
  switch (spec.type) {
    case 'echo':
      return echoHandler(spec.messageBytes);
    case 'regions':
      return regionsHandler(pd, regionInfos);
    case 'traffic':
      return trafficHandler();
    case 'rping':
      return { accept: connectionOptions(MAX_PING_BYTES), serve: (connection) => answerPings(connection) };
  }
}

function isRdma(spec: ServiceSpec): boolean {
  return !('host' in spec || 'qps' in spec);
}
