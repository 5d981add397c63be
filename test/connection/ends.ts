/** Two connections of this process, joined by a hub; a goodbye goes from one to the other by itself. */
import { setTimeout as sleep } from 'node:timers/promises';
import { Connection, type ConnectionOptions } from '../../src/connection/connection.js';
import { type Device, MemoryHub, type OpenOptions } from '../../src/index.js';
import { mode, openOn } from '../verbs/pair.js';

export interface Ends extends AsyncDisposable {
  readonly a: Connection;
  readonly b: Connection;
  readonly devices: readonly [Device, Device];
}

export interface EndsOptions {
  readonly open?: OpenOptions;
  readonly a?: ConnectionOptions;
  readonly b?: ConnectionOptions;
  /** Expired timers until a peer counts as gone. */
  readonly retryCnt?: number;
}

/** An ACK timeout of 1 ms; threads that share few processors may be kept waiting longer, and have 67 ms. */
const TIMEOUT = mode === 'worker' ? 14 : 8;

export async function connectedEnds({ open, a, b, retryCnt = 7 }: EndsOptions = {}): Promise<Ends> {
  const hub = new MemoryHub();
  const devices = [await openOn(hub, open), await openOn(hub, { ...open, seed: 2 })] as const;
  const prepare = async (device: Device, options?: ConnectionOptions) =>
    Connection.prepare(await device.allocPd(), options);
  const ends = { a: await prepare(devices[0], a), b: await prepare(devices[1], b) };
  const access = ['remoteWrite', 'remoteRead', 'remoteAtomic'] as const;
  const connect = (own: Connection, other: Connection, address: string) =>
    own.qp.connect(other.qp.endpoint(), { access, timeout: TIMEOUT, retryCnt }).then(() => {
      own.postReceives();
      own.established({
        address,
        port: 7471,
        privateData: new Uint8Array(0),
        leave: () => goodbye(other),
      });
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

/** What is thrown meanwhile with nobody to catch it; the test's runner does not hear of it. */
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

/** A message like any other: it does not overtake the answers that were sent before it. */
async function goodbye(to: Connection): Promise<void> {
  const isBehind = () => !to.qp.isClosed && to.qp.state === 'RTS' && to.qp.query().progress.sendPending > 0;
  for (let tries = 0; tries < 100 && isBehind(); tries++) await sleep(1);
  to.peerLeft();
}
