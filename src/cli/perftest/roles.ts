/** Client, server, and both at once. */
import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';
import { createMemoryHub, type Device } from '../../index.js';
import { isNamed, openFor, openNamed, openWatched } from '../device.js';
import type { Output } from '../output.js';
import { Control, listen } from '../pingpong/handshake.js';
import { Exchange } from './handshake.js';
import type { PerftestOptions } from './kinds.js';
import { reportOf, Table } from './report.js';
import { runSession } from './session.js';

export async function runClient(host: string, options: PerftestOptions, output: Output): Promise<void> {
  const { port, address } = options;
  const target = { host, port, ...(address !== undefined && { localAddress: address }) };
  const control = await Control.connect(target, options.idleMs);
  try {
    await using device = await openFor(control.localAddress, options);
    await measure(device, new Exchange(control, 'client'), options, output);
  } finally {
    control.close();
  }
}

export async function runServer(options: PerftestOptions, output: Output): Promise<void> {
  const server = createServer({ allowHalfOpen: true });
  await listen(server, { port: options.port, ...(options.address !== undefined && { host: options.address }) });
  output.note(`waiting for a client on TCP port ${options.port}`);
  let device: Device | undefined;
  try {
    // Named by hand, an interface that cannot be used is to be known before a client comes.
    if (isNamed(options)) device = await openNamed(options);
    const [socket] = (await once(server, 'connection')) as [Socket];
    const control = new Control(socket, options.idleMs);
    try {
      device ??= await openFor(control.localAddress, options);
      await measure(device, new Exchange(control, 'server'), options, output);
    } finally {
      control.close();
    }
  } finally {
    server.close();
    await device?.close({ force: true });
  }
}

/** Client and server on the memory link, in one process; the hand-shake takes the host's own TCP. */
export async function runBoth(options: PerftestOptions, output: Output): Promise<void> {
  const hub = createMemoryHub();
  const { pcap: _pcap, fault: _fault, ...plain } = options.open;
  await using device = await openWatched({ hub, ...options.open });
  await using other = await openWatched({ hub, ...plain });
  // A spinning end would keep the other one from its turns.
  const both = { ...options, spinMs: 0 };
  const server = createServer({ allowHalfOpen: true });
  await listen(server, { port: 0, host: '127.0.0.1' });
  const { port } = server.address() as { port: number };
  const connection = once(server, 'connection') as Promise<[Socket]>;
  const near = await Control.connect({ host: '127.0.0.1', port }, options.idleMs);
  const far = new Control((await connection)[0], options.idleMs);
  try {
    const [client, answering] = [new Exchange(near, 'client'), new Exchange(far, 'server')];
    const { gid } = other.chooseGid(device.chooseGid().gid);
    const listeners = { onConnected() {}, onInterval() {}, onBandwidth() {}, onLatency() {} };
    await Promise.all([
      measure(device, client, both, output, gid),
      runSession(other, answering, both, device.chooseGid().gid, listeners, output),
    ]);
  } finally {
    near.close();
    far.close();
    server.close();
  }
}

async function measure(
  device: Device,
  exchange: Exchange,
  options: PerftestOptions,
  output: Output,
  peer = exchange.control.remoteAddress,
): Promise<void> {
  const table = new Table(options, output);
  const listeners = {
    onConnected: (...[local, remote, terms]: Parameters<Parameters<typeof runSession>[4]['onConnected']>) =>
      table.header(device, local, remote, terms),
    onInterval: table.bandwidth.bind(table),
    onBandwidth: table.bandwidth.bind(table),
    onLatency: table.latency.bind(table),
  };
  const result = await runSession(device, exchange, options, peer, listeners, output);
  const report = reportOf(device, exchange.role, options, result);
  output.result(report);
  table.end(report);
}
