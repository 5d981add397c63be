/**
 * Two connections of this process over a hub, without the connection manager: each end's disconnect is passed to the
 * other.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Device, MemoryHub, type OpenOptions } from '../../../src/index.js';
import { Connection, type ConnectionOptions } from '../../../src/protocols/message/connection.js';
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
  open,
  a,
  b,
  retryCnt = 7,
}: ConnectionPairOptions = {}): Promise<ConnectionPair> {
  const hub = new MemoryHub();
  const devices = [await openOn(hub, open), await openOn(hub, { ...open, seed: 2 })] as const;
  const prepare = async (device: Device, options?: ConnectionOptions) =>
    Connection.prepare(device, await device.allocPd(), options);
  const ends = { a: await prepare(devices[0], a), b: await prepare(devices[1], b) };
  const access = ['remoteWrite', 'remoteRead', 'remoteAtomic'] as const;
  const connect = (own: Connection, other: Connection, address: string) =>
    own.qp.connect(other.qp.endpoint(), { access, timeout: TIMEOUT, retryCnt }).then(() => {
      own.open({
        address,
        port: 7471,
        privateData: new Uint8Array(0),
        disconnect: () => disconnect(other),
      });
      own.onEstablished();
    });
  await connect(ends.a, ends.b, '10.0.0.2');
  await connect(ends.b, ends.a, '10.0.0.1');
  return {
    ...ends,
    devices,
    async [Symbol.asyncDispose]() {
      await Promise.all([ends.a.close(), ends.b.close()]);
      for (const device of devices) await device.close({ force: true });
    },
  };
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
