/** The client, the server, and both in one process. */
import { lookup } from 'node:dns/promises';
import { isWildcard } from '../../base/address.js';
import { type ConnectionRequest, type Device, gidAddress } from '../../index.js';
import {
  type DeviceOptions,
  isDeviceNamed,
  memoryLinkOptions,
  openForAddress,
  openForHost,
  openNamed,
  openPublished,
} from '../device.js';
import { failure, interrupted } from '../exit.js';
import type { Output } from '../output.js';
import { type PingOptions, ping } from './client.js';
import { printReport, type ReportInput, reportOf } from './report.js';
import { servePings } from './server.js';

export interface RpingOptions extends DeviceOptions, Omit<PingOptions, 'host' | 'onPing'> {
  /** Ends the command in order. */
  readonly signal: AbortSignal;
  /** Server: serve any number of clients, several at once. */
  readonly persistent: boolean;
  /** Server: the only address to listen on. */
  readonly listen?: string;
  /** Print each ping. */
  readonly verbose: boolean;
  /** Print connections on stderr. */
  readonly debug: boolean;
}

export async function runClient(host: string, options: RpingOptions, output: Output): Promise<void> {
  const { port, validate, count } = options;
  await using device = await openForHost(host, options);
  if (options.debug) output.note(`client: ${device} asks ${host} port ${port} for a connection`);
  const onPing = printer('ping data', options, output);
  const result = await ping(device, { ...options, host, onPing });
  finish({ role: 'client', device, peer: { address: host, port }, validate, result }, output);
  if (Number.isFinite(count) && result.pings < count)
    throw interrupted(`after ${result.pings} of ${count} pings`, { isReported: true });
}

export async function runServer(options: RpingOptions, output: Output): Promise<void> {
  const { port, persistent, signal } = options;
  const host = options.listen === undefined ? '::' : gidAddress((await lookup(options.listen)).address);
  await using device =
    isWildcard(host) || isDeviceNamed(options) ? await openNamed(options) : await openForAddress(host, options);
  await using server = await device.listen({ port, host });
  const close = () => void server.close();
  signal.addEventListener('abort', close, { once: true });
  // the signal may have been aborted before the server was open
  if (signal.aborted) close();
  const { interface: name } = device.queryPort();
  // Scripts wait for this line: a stock client that finds no server gives up at once.
  output.note(`waiting for ${persistent ? 'clients' : 'a client'} on rdma_cm port ${port} of ${name}`);
  const clients = new Set<Promise<void>>();
  for await (const request of server) {
    if (!persistent) {
      await server.close();
      await serve(device, request, options, output);
      if (signal.aborted) throw interrupted('before the client had left', { isReported: true });
      return;
    }
    const client: Promise<void> = serve(device, request, options, output)
      .catch((error: Error) => output.note(`${request.remoteAddress}: ${error.message}`))
      .finally(() => clients.delete(client));
    clients.add(client);
  }
  if (!persistent) throw interrupted('before a client came');
  await Promise.all(clients);
}

/** Client and server on the memory link, in one process. */
export async function runBoth(options: RpingOptions, output: Output): Promise<void> {
  const [ofClient, ofServer] = memoryLinkOptions(options.open);
  await using device = await openPublished(ofClient);
  await using other = await openPublished(ofServer);
  const { port, validate } = options;
  const host = gidAddress(other.chooseGid(device.chooseGid().gid).gid);
  await using server = await other.listen({ port });
  const onPing = printer('ping data', options, output);
  const answers = first(server).then((request) => servePings(request, options));
  const [result] = await Promise.all([ping(device, { ...options, host, onPing }), answers]);
  finish({ role: 'client', device, peer: { address: host, port }, validate, result }, output);
}

async function serve(device: Device, request: ConnectionRequest, options: RpingOptions, output: Output): Promise<void> {
  const { validate, debug } = options;
  const peer = { address: request.remoteAddress, port: request.remotePort };
  if (debug) output.note(`server: ${peer.address} port ${peer.port} asks for a connection`);
  const onPing = printer('server ping data', options, output);
  const result = await servePings(request, { ...options, onPing });
  if (debug) output.note(`server: ${peer.address} port ${peer.port} has left`);
  finish({ role: 'server', device, peer, validate, result }, output);
}

function finish(input: ReportInput, output: Output): void {
  const report = reportOf(input);
  printReport(report, output);
  if (report.ok) return;
  const { invalid, checked } = report;
  throw failure(`${invalid} of ${checked} pings did not hold the bytes that were sent (-V)`, { isReported: true });
}

function printer(what: string, { verbose, count }: RpingOptions, output: Output): (text: string) => void {
  if (verbose) return (text) => output.line(`${what}: ${text}`);
  let pings = 0;
  return () => {
    pings++;
    output.progress(() => `${pings}${Number.isFinite(count) ? ` of ${count}` : ''} pings`);
  };
}

async function first(requests: AsyncIterable<ConnectionRequest>): Promise<ConnectionRequest> {
  for await (const request of requests) return request;
  throw failure('no client came', { code: 'ETIMEDOUT' });
}
