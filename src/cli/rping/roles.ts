/** Client, server, and both at once. */
import { lookup } from 'node:dns/promises';
import { type ConnectionRequest, type Device, gidAddress } from '../../index.js';
import { type DeviceChoice, isNamed, memoryEnds, openFor, openNamed, openToward, openWatched } from '../device.js';
import { failure, interrupted } from '../exit.js';
import type { Output } from '../output.js';
import { type PingOptions, ping } from './client.js';
import { type Facts, reportOf, tell } from './report.js';
import { servePings } from './server.js';

export interface RpingOptions extends DeviceChoice, Omit<PingOptions, 'host' | 'onPing'> {
  /** Ends it in order. */
  readonly signal: AbortSignal;
  /** Server: serves one client after the other, and several at once. */
  readonly persistent: boolean;
  /** Server: the only address to listen on. */
  readonly listen?: string;
  /** Each ping is printed. */
  readonly verbose: boolean;
  /** What happens is noted. */
  readonly debug: boolean;
}

export async function runClient(host: string, options: RpingOptions, output: Output): Promise<void> {
  const { port, validate, count } = options;
  await using device = await openToward(host, options);
  if (options.debug) output.note(`client: ${device} asks ${host} port ${port} for a connection`);
  const onPing = printer('ping data', options, output);
  const outcome = await ping(device, { ...options, host, onPing });
  finish({ role: 'client', device, peer: { address: host, port }, validate, outcome }, output);
  if (Number.isFinite(count) && outcome.pings < count)
    throw interrupted(`after ${outcome.pings} of ${count} pings`, { isReported: true });
}

export async function runServer(options: RpingOptions, output: Output): Promise<void> {
  const { port, persistent, signal } = options;
  const host = options.listen === undefined ? '::' : gidAddress((await lookup(options.listen)).address);
  await using device = ANY.has(host) || isNamed(options) ? await openNamed(options) : await openFor(host, options);
  await using server = await device.listen({ port, host });
  const close = () => void server.close();
  signal.addEventListener('abort', close, { once: true });
  // it may have come before there was anything to close
  if (signal.aborted) close();
  const { interface: name } = device.queryPort();
  // A stock client that finds nobody gives up at once, so whoever starts one waits for this line.
  output.note(`waiting for ${persistent ? 'clients' : 'a client'} on RDMA port ${port} of ${name}`);
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
  const [ofClient, ofServer] = memoryEnds(options.open);
  await using device = await openWatched(ofClient);
  await using other = await openWatched(ofServer);
  const { port, validate } = options;
  const host = gidAddress(other.chooseGid(device.chooseGid().gid).gid);
  await using server = await other.listen({ port });
  const onPing = printer('ping data', options, output);
  const answers = first(server).then((request) => servePings(request, options));
  const [outcome] = await Promise.all([ping(device, { ...options, host, onPing }), answers]);
  finish({ role: 'client', device, peer: { address: host, port }, validate, outcome }, output);
}

async function serve(device: Device, request: ConnectionRequest, options: RpingOptions, output: Output): Promise<void> {
  const { validate, debug } = options;
  const peer = { address: request.remoteAddress, port: request.remotePort };
  if (debug) output.note(`server: ${peer.address} port ${peer.port} asks for a connection`);
  const onPing = printer('server ping data', options, output);
  const outcome = await servePings(request, { ...options, onPing });
  if (debug) output.note(`server: ${peer.address} port ${peer.port} has left`);
  finish({ role: 'server', device, peer, validate, outcome }, output);
}

function finish(facts: Facts, output: Output): void {
  const report = reportOf(facts);
  tell(report, output);
  if (report.ok) return;
  const { invalid, checked } = report;
  throw failure(`${invalid} of ${checked} pings did not hold the bytes that were sent (-V)`, { isReported: true });
}

function printer(what: string, { verbose }: RpingOptions, output: Output): (text: string) => void {
  return verbose ? (text) => output.line(`${what}: ${text}`) : () => {};
}

async function first(requests: AsyncIterable<ConnectionRequest>): Promise<ConnectionRequest> {
  for await (const request of requests) return request;
  throw failure('no client came');
}

/** Who listens there listens on all addresses. */
const ANY = new Set(['0.0.0.0', '::']);
