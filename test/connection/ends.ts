/** Two connections of this process, joined by a hub; a goodbye goes from one to the other by itself. */
import { Connection, type ConnectionOptions } from '../../src/connection/connection.js';
import { type Device, MemoryHub, type OpenOptions } from '../../src/index.js';
import { openOn } from '../verbs/pair.js';

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

export async function connectedEnds({ open, a, b, retryCnt = 7 }: EndsOptions = {}): Promise<Ends> {
  const hub = new MemoryHub();
  const devices = [await openOn(hub, open), await openOn(hub, { ...open, seed: 2 })] as const;
  const prepare = async (device: Device, options?: ConnectionOptions) =>
    Connection.prepare(await device.allocPd(), options);
  const ends = { a: await prepare(devices[0], a), b: await prepare(devices[1], b) };
  const access = ['remoteWrite', 'remoteRead', 'remoteAtomic'] as const;
  const connect = (own: Connection, other: Connection, address: string) =>
    own.qp.connect(other.qp.endpoint(), { access, timeout: 8, retryCnt }).then(() => {
      own.postReceives();
      own.established({
        address,
        port: 7471,
        privateData: new Uint8Array(0),
        leave: async () => other.peerLeft(),
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
