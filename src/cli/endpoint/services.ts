/** The services that there are, by the names that a configuration has for them. */
import type { Device, Pd } from '../../index.js';
import { answerPings } from '../rping/server.js';
import { connectionOptions, LARGEST } from '../rping/words.js';
import type { Config, MetricsConfig, PerftestConfig, ServiceConfig } from './config.js';
import { RdmaService, type Work } from './listener.js';
import type { Log } from './log.js';
import { echoWork, regionsWork } from './messages.js';
import { openMetrics } from './metrics.js';
import { PerftestService } from './perftest.js';
import type { Offer } from './regions.js';
import type { Service } from './service.js';

export type Wanted = ServiceConfig | ({ readonly type: 'metrics' } & MetricsConfig);

/** Services by rdma_cm. */
type RdmaConfig = Exclude<ServiceConfig, PerftestConfig>;

/** What services are made from. */
export interface Means {
  readonly device: Device;
  /** The regions' domain. */
  readonly pd: Pd;
  offers(): readonly Offer[];
  /** The only address to listen on over TCP. */
  readonly host: string | undefined;
  readonly log: Log;
}

export function wantedOf({ services, metrics }: Config): Wanted[] {
  return [...services, ...(metrics ? [{ type: 'metrics' as const, ...metrics }] : [])];
}

/** What no two can have. */
export function portOf(wanted: Wanted): string {
  return `${isRdma(wanted) ? 'rdma' : 'tcp'} ${wanted.port}`;
}

/** @throws VerbsError EADDRINUSE; the system's error, EADDRINUSE mostly */
export function openService(wanted: Wanted, { device, pd, offers, host, log }: Means): Promise<Service> {
  if ('host' in wanted) return openMetrics(device, wanted, log);
  if ('qps' in wanted) return PerftestService.open(device, wanted, host, log);
  const about = { service: wanted.type, port: wanted.port };
  return RdmaService.open(device, about, workOf(wanted, pd, offers), log);
}

function workOf(wanted: RdmaConfig, pd: Pd, offers: Means['offers']): Work {
  switch (wanted.type) {
    case 'echo':
      return echoWork(wanted.messageBytes);
    case 'regions':
      return regionsWork(pd, offers);
    case 'rping':
      return { accept: connectionOptions(LARGEST), serve: (connection) => answerPings(connection) };
  }
}

function isRdma(wanted: Wanted): boolean {
  return !('host' in wanted || 'qps' in wanted);
}
