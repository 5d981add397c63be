/**
 * Two connections of this process over a hub, without the connection manager: each end's disconnect is passed to the
 * other.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Device, MemoryHub, type OpenOptions, type Qp, type QpConnectOptions } from '../../../src/index.js';
import { Connection } from '../../../src/protocols/message/connection.js';
import { type ConnectionOptions, connectionSettings } from '../../../src/protocols/message/options.js';
import type { Peer } from '../../../src/protocols/message/peer.js';
import { Resources } from '../../../src/protocols/message/resources.js';
import { ReceivePools } from '../../../src/transport/pools/receivepool.js';
import { mode, openOn } from '../../verbs/pair.js';

export interface ConnectionPair extends AsyncDisposable {
  readonly a: Connection;
  readonly b: Connection;
  readonly devices: readonly [Device, Device];
}

export interface ConnectionPairOptions {
  readonly open?: OpenOptions;
  readonly a?: ConnectionOptions;
  readonly b?: ConnectionOptions;
  /** ACK timeouts until a peer counts as dead. */
  readonly retryCnt?: number;
}

/** ACK timeout code: 1 ms; in worker mode 67 ms, because threads that share few processors may wait longer. */
const TIMEOUT = mode === 'worker' ? 14 : 8;

export async function connectionPair({
  open: openOptions,
  a,
  b,
  retryCnt = 7,
}: ConnectionPairOptions = {}): Promise<ConnectionPair> {
  const hub = new MemoryHub();
  const devices = [await openOn(hub, openOptions), await openOn(hub, { ...openOptions, seed: 2 })] as const;
  const resources = [await allocate(devices[0], a), await allocate(devices[1], b)] as const;
  const access = ['remoteWrite', 'remoteRead', 'remoteAtomic'] as const;
  await connectQps(resources[0].qp, resources[1].qp, { access, timeout: TIMEOUT, retryCnt });
  const open = (
    device: Device,
    options: ConnectionOptions | undefined,
    of: Resources,
    address: string,
    other: () => Connection,
  ) => {
    const peer = peerAt(address, () => disconnect(other()));
    const connection = new Connection(device, connectionSettings(options ?? {}), of, peer);
    connection.onEstablished();
    return connection;
  };
  const ends: { a: Connection; b: Connection } = {
    a: open(devices[0], a, resources[0], '10.0.0.2', () => ends.b),
    b: open(devices[1], b, resources[1], '10.0.0.1', () => ends.a),
  };
  return {
    ...ends,
    devices,
    async [Symbol.asyncDispose]() {
      await Promise.all([ends.a.close(), ends.b.close()]);
      for (const device of devices) await device.close({ force: true });
    },
  };
}

/** Allocates the resources of a connection, whose queue pair is not connected yet. */
export async function allocate(device: Device, options: ConnectionOptions = {}): Promise<Resources> {
  const pools = new ReceivePools(device, { isKept: false });
  return Resources.allocate(device, connectionSettings(options), pools, await device.allocPd());
}

/** Connects two queue pairs with each other. */
async function connectQps(a: Qp, b: Qp, options: QpConnectOptions): Promise<void> {
  const [endA, endB] = [a.endpoint(), b.endpoint()];
  await Promise.all([a.connect(endB, options), b.connect(endA, options)]);
}

/** Returns the other end of a connection without the connection manager. */
export function peerAt(address: string, disconnect: () => Promise<void> = async () => {}): Peer {
  return { address, port: 7471, privateData: new Uint8Array(0), messageBytes: undefined, watch: () => {}, disconnect };
}

/** Returns the exceptions that stay uncaught during `work`, and hides them from the test runner. */
export async function uncaughtDuring(work: () => Promise<void>): Promise<unknown[]> {
  const uncaught: unknown[] = [];
  const listeners = process.listeners('uncaughtException');
  process.removeAllListeners('uncaughtException').on('uncaughtException', (error) => uncaught.push(error));
  try {
    await work();
  } finally {
    process.removeAllListeners('uncaughtException');
    for (const listener of listeners) process.on('uncaughtException', listener);
  }
  return uncaught;
}

/** Notifies the other end once its pending sends are acknowledged, as a DREQ does not overtake earlier ACKs. */
async function disconnect(to: Connection): Promise<void> {
  const isBehind = () => !to.qp.isClosed && to.qp.state === 'RTS' && to.qp.query().progress.sendPending > 0;
  for (let tries = 0; tries < 100 && isBehind(); tries++) await sleep(1);
  to.onDisconnected();
}
