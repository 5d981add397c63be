/** Client, server, and both at once. */
import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';
import type { Device } from '../../index.js';
import { type DeviceChoice, isNamed, memoryEnds, openFor, openNamed, openWatched } from '../device.js';
import { failure } from '../exit.js';
import type { Output } from '../output.js';
import { End, type EndOptions, type Outcome } from './end.js';
import { Control, listen } from './handshake.js';
import { introductionLines, type Report, reportOf, tell } from './report.js';
import { TRANSPORTS } from './transport.js';

export interface PingpongOptions extends EndOptions, DeviceChoice {
  readonly port: number;
  /** Server: goes on after a client. */
  readonly keep: boolean;
}

/** How long an end that is done stays, to answer when the peer's copy of a last ACK was lost. */
const PART_MS = 2000;
/** The same when the peer gives no sign, as stock tools do: a few of its ACK timeouts. */
const LINGER_MS = 300;

export async function runClient(host: string, options: PingpongOptions, output: Output): Promise<void> {
  const { port, address } = options;
  const target = { host, port, ...(address !== undefined && { localAddress: address }) };
  const control = await Control.connect(target, options.idleMs);
  try {
    await using device = await openFor(control.localAddress, options);
    const end = await End.open(device, options);
    const { introductions, tool } = TRANSPORTS[options.transport];
    const local = end.endpoints(control.remoteAddress);
    introductionLines('local', local, output);
    control.introduce(local, introductions);
    const remote = await control.introductions(introductions, tool);
    introductionLines('remote', remote, output);
    await end.connect(remote);
    control.done();
    const outcome = await end.exchange({
      begins: true,
      peerHasLeft: () => control.isEnded,
      onRound: progress(output, options),
    });
    await part(control, outcome);
    finish(reportOf({ role: 'client', device, local, remote, options, outcome }), output);
  } finally {
    control.close();
  }
}

export async function runServer(options: PingpongOptions, output: Output): Promise<void> {
  const server = createServer({ allowHalfOpen: true });
  await listen(server, { port: options.port, ...(options.address !== undefined && { host: options.address }) });
  // A stock client that finds no server gives up at once, so whoever starts one waits for this line.
  output.note(`waiting for a client on TCP port ${options.port}`);
  let device: Device | undefined;
  try {
    // Named by hand, an interface that cannot be used is to be known before a client comes.
    if (isNamed(options)) device = await openNamed(options);
    do {
      const [socket] = (await once(server, 'connection')) as [Socket];
      const control = new Control(socket, options.idleMs);
      if (device && !reaches(device, options, control)) {
        await device.close({ force: true });
        device = undefined;
      }
      device ??= await openFor(control.localAddress, options);
      await serveClient(device, control, options, output);
    } while (options.keep);
  } finally {
    server.close();
    await device?.close({ force: true });
  }
}

/** Client and server on the memory link, in one process. */
export async function runBoth(options: PingpongOptions, output: Output): Promise<void> {
  const [ofClient, ofServer] = memoryEnds(options.open);
  await using device = await openWatched(ofClient);
  await using other = await openWatched(ofServer);
  // A spinning end would keep the other one from its turns.
  const both = { ...options, spinMs: 0 };
  const client = await End.open(device, both);
  const server = await End.open(other, both);
  const { gid } = device.chooseGid();
  const remote = server.endpoints(gid);
  const local = client.endpoints(remote[0]?.gid ?? gid);
  introductionLines('local', local, output);
  introductionLines('remote', remote, output);
  await Promise.all([client.connect(remote), server.connect(local)]);
  const peerHasLeft = () => false;
  const [outcome, answers] = await Promise.all([
    client.exchange({ begins: true, peerHasLeft, onRound: progress(output, options) }),
    server.exchange({ begins: false, peerHasLeft, onRound: () => {} }),
  ]);
  const invalid = outcome.invalid + answers.invalid;
  finish(reportOf({ role: 'client', device, local, remote, options, outcome: { ...outcome, invalid } }), output);
}

async function serveClient(device: Device, control: Control, options: PingpongOptions, output: Output): Promise<void> {
  const end = await End.open(device, options);
  try {
    const { introductions, tool } = TRANSPORTS[options.transport];
    const remote = await control.introductions(introductions, tool);
    const local = end.endpoints(remote[0]?.gid ?? control.remoteAddress);
    introductionLines('local', local, output);
    introductionLines('remote', remote, output);
    await end.connect(remote);
    control.introduce(local, introductions);
    await control.awaitDone();
    const outcome = await end.exchange({
      begins: false,
      peerHasLeft: () => control.isEnded,
      onRound: progress(output, options),
    });
    await part(control, outcome);
    finish(reportOf({ role: 'server', device, local, remote, options, outcome }), output);
  } catch (error) {
    if (!options.keep) throw error;
    output.note(`${control.remoteAddress}: ${(error as Error).message}`);
  } finally {
    control.close();
    await end.close();
  }
}

function finish(report: Report, output: Output): void {
  tell(report, output);
  if (report.ok) return;
  throw failure(`${report.invalid} of ${report.checked} messages did not hold the bytes that were sent (--chk)`, {
    isReported: true,
  });
}

async function part(control: Control, { counters }: Outcome): Promise<void> {
  const isLossy = (counters.retransmits ?? 0) + (counters.duplicate_request ?? 0) > 0;
  if (!control.isEnded) await control.part(PART_MS);
  else if (isLossy) await new Promise((resolve) => setTimeout(resolve, LINGER_MS));
}

function progress(output: Output, { iters }: EndOptions): (done: number) => void {
  return (done) => output.progress(() => `${done} of ${iters} round trips`);
}

function reaches(device: Device, options: PingpongOptions, { localAddress }: Control): boolean {
  return isNamed(options) || device.gids.some(({ address }) => address === localAddress);
}
