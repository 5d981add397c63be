/** The client, the server, and both in one process. */
import type { Device } from '../../index.js';
import {
  type DeviceOptions,
  isDeviceNamed,
  memoryLinkOptions,
  openForAddress,
  openNamed,
  openPublished,
} from '../device.js';
import { failure } from '../exit.js';
import type { Output } from '../output.js';
import { TcpChannel } from '../tcpchannel.js';
import { TcpListener } from '../tcplistener.js';
import { PingpongContext, type PingpongParameters, type PingpongResult } from './context.js';
import { awaitDone, DESTINATION_BYTES, receiveDestinations, sendDestinations, sendDone } from './handshake.js';
import { printDestinations, printReport, type Report, reportOf } from './report.js';
import { TRANSPORTS } from './transport.js';

export interface PingpongOptions extends PingpongParameters, DeviceOptions {
  readonly port: number;
  /** Server: serve one client after another. */
  readonly keep: boolean;
}

/** Time that an end stays when it is done, to acknowledge again if its last ACK was lost (ms). */
const SHUTDOWN_MS = 2000;
/** The same when the peer has closed its end already, as the stock programs do: a few of its ACK timeouts (ms). */
const LINGER_MS = 300;

/** The peer sends all its destinations at once, and its `done` after them. */
function maxUnread({ transport }: PingpongOptions): number {
  return (TRANSPORTS[transport].destinations + 1) * DESTINATION_BYTES;
}

export async function runClient(host: string, options: PingpongOptions, output: Output): Promise<void> {
  const { port, address } = options;
  const target = { host, port, ...(address !== undefined && { localAddress: address }) };
  const channel = await TcpChannel.connect(target, options.idleMs, maxUnread(options));
  try {
    await using device = await openForAddress(channel.localAddress, options);
    const ctx = await PingpongContext.open(device, options);
    const { destinations: count, tool } = TRANSPORTS[options.transport];
    const local = ctx.endpoints(channel.remoteAddress);
    printDestinations('local', local, output);
    sendDestinations(channel, local, count);
    const remote = await receiveDestinations(channel, count, tool);
    printDestinations('remote', remote, output);
    await ctx.connect(remote);
    sendDone(channel);
    const result = await ctx.exchange({
      sendsFirst: true,
      peerHasLeft: () => channel.isEnded,
      onRoundTrip: progress(output, options),
    });
    await shutdown(channel, result);
    finish(reportOf({ role: 'client', device, local, remote, options, result }), output);
  } finally {
    channel.close();
  }
}

export async function runServer(options: PingpongOptions, output: Output): Promise<void> {
  const { port, address, idleMs } = options;
  const where = { port, ...(address !== undefined && { host: address }) };
  const listener = await TcpListener.open(where, idleMs, maxUnread(options));
  // Scripts wait for this line: a stock client that finds no server gives up at once.
  output.note(`waiting for a client on TCP port ${port}`);
  let device: Device | undefined;
  try {
    // Report an interface that cannot be used before a client comes.
    if (isDeviceNamed(options)) device = await openNamed(options);
    do {
      const channel = await listener.accept();
      // A second client gives up at once.
      if (!options.keep) listener.close();
      if (device && !reaches(device, options, channel)) {
        await device.close({ force: true });
        device = undefined;
      }
      device ??= await openForAddress(channel.localAddress, options);
      await serveClient(device, channel, options, output);
    } while (options.keep);
  } finally {
    listener.close();
    await device?.close({ force: true });
  }
}

/** Client and server on the memory link, in one process. */
export async function runBoth(options: PingpongOptions, output: Output): Promise<void> {
  const [ofClient, ofServer] = memoryLinkOptions(options.open);
  await using device = await openPublished(ofClient);
  await using other = await openPublished(ofServer);
  // An end that spins would keep the other one from running.
  const both = { ...options, spinMs: 0 };
  const client = await PingpongContext.open(device, both);
  const server = await PingpongContext.open(other, both);
  const { gid } = device.chooseGid();
  const remote = server.endpoints(gid);
  const local = client.endpoints(remote[0]?.gid ?? gid);
  printDestinations('local', local, output);
  printDestinations('remote', remote, output);
  await Promise.all([client.connect(remote), server.connect(local)]);
  const peerHasLeft = () => false;
  const [result, serverResult] = await Promise.all([
    client.exchange({ sendsFirst: true, peerHasLeft, onRoundTrip: progress(output, options) }),
    server.exchange({ sendsFirst: false, peerHasLeft, onRoundTrip: () => {} }),
  ]);
  const invalid = result.invalid + serverResult.invalid;
  finish(reportOf({ role: 'client', device, local, remote, options, result: { ...result, invalid } }), output);
}

async function serveClient(
  device: Device,
  channel: TcpChannel,
  options: PingpongOptions,
  output: Output,
): Promise<void> {
  const ctx = await PingpongContext.open(device, options);
  try {
    const { destinations: count, tool } = TRANSPORTS[options.transport];
    const remote = await receiveDestinations(channel, count, tool);
    const local = ctx.endpoints(remote[0]?.gid ?? channel.remoteAddress);
    printDestinations('local', local, output);
    printDestinations('remote', remote, output);
    await ctx.connect(remote);
    sendDestinations(channel, local, count);
    await awaitDone(channel);
    const result = await ctx.exchange({
      sendsFirst: false,
      peerHasLeft: () => channel.isEnded,
      onRoundTrip: progress(output, options),
    });
    await shutdown(channel, result);
    finish(reportOf({ role: 'server', device, local, remote, options, result }), output);
  } catch (error) {
    if (!options.keep) throw error;
    output.note(`${channel.remoteAddress}: ${(error as Error).message}`);
  } finally {
    channel.close();
    await ctx.close();
  }
}

function finish(report: Report, output: Output): void {
  printReport(report, output);
  if (report.ok) return;
  throw failure(`${report.invalid} of ${report.checked} messages did not hold the bytes that were sent (--chk)`, {
    isReported: true,
  });
}

async function shutdown(channel: TcpChannel, { counters }: PingpongResult): Promise<void> {
  const isLossy = (counters.retransmits ?? 0) + (counters.duplicate_request ?? 0) > 0;
  if (!channel.isEnded) await channel.shutdown(SHUTDOWN_MS);
  else if (isLossy) await new Promise((resolve) => setTimeout(resolve, LINGER_MS));
}

function progress(output: Output, { iters }: PingpongParameters): (done: number) => void {
  return (done) => output.progress(() => `${done} of ${iters} round trips`);
}

function reaches(device: Device, options: PingpongOptions, { localAddress }: TcpChannel): boolean {
  return isDeviceNamed(options) || device.gids.some(({ address }) => address === localAddress);
}
