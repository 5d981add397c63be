/** The ways to a stream between two ends: TCP by Node's `net`, rsockets, and connections of this project. */
import { once } from 'node:events';
import * as tcp from 'node:net';
import type { Duplex } from 'node:stream';
import { type Device, openDevice } from 'wasm-roce';
import * as rsocket from 'wasm-roce/net';

/** The address of the device of an end. */
export interface DeviceOptions {
  readonly link: string;
  readonly mode: string;
  readonly interface: string;
}

export interface Way {
  open?(options: DeviceOptions): Promise<void>;
  /** Listens for one client. */
  listen(address: string, port: number): Promise<{ readonly stream: Promise<Duplex> }>;
  /** @param onData called with data that the way reads by `onread`; other ways have the event `data` */
  connect(address: string, port: number, onData: (data: Buffer) => void): Promise<Duplex>;
  close?(): Promise<void>;
}

/** Bytes of the memory into which clients read by `onread`. */
const ONREAD_BYTES = 65_536;

/** Messages of a connection's stream, as `wasm-roce connect` has them. */
const CONNECTION = { messageBytes: 65_536 };

/** Waits for one client of a server that has begun to listen. */
async function oneClient(server: tcp.Server | rsocket.Server): ReturnType<Way['listen']> {
  const stream = once(server, 'connection').then(([socket]) => {
    server.close();
    return socket as Duplex;
  });
  await once(server, 'listening');
  return { stream };
}

/** Returns the option `onread` of a client. */
function readInto(onData: (data: Buffer) => void): { readonly onread: tcp.OnReadOpts } {
  const buffer = Buffer.alloc(ONREAD_BYTES);
  const callback = (bytes: number) => {
    onData(buffer.subarray(0, bytes));
    return true;
  };
  return { onread: { buffer, callback } };
}

/** @param isOnread true = its clients read by `onread` */
export const tcpWay = (isOnread: boolean): Way => ({
  listen: (address, port) => oneClient(tcp.createServer({ noDelay: true }).listen(port, address)),
  async connect(address, port, onData) {
    const socket = tcp.connect({ port, host: address, noDelay: true, ...(isOnread && readInto(onData)) });
    await once(socket, 'connect');
    return socket;
  },
});

/** The parts that the ways over a device share. */
class DeviceOfEnd {
  #device: Device | undefined;

  get device(): Device {
    if (this.#device === undefined) throw new Error('this end has no device');
    return this.#device;
  }

  async open({ link, mode, interface: name }: DeviceOptions): Promise<void> {
    const options = { link, mode, interface: name, memoryBytes: 64 * 2 ** 20 };
    this.#device = await openDevice(options as Parameters<typeof openDevice>[0]);
  }

  async close(): Promise<void> {
    await this.#device?.close({ force: true });
    this.#device = undefined;
  }
}

/** @param isOnread true = its clients read by `onread` */
export function rsocketWay(isOnread: boolean): Way {
  const end = new DeviceOfEnd();
  return {
    open: (options) => end.open(options),
    listen: (_, port) => oneClient(rsocket.createServer({ device: end.device }).listen(port)),
    async connect(host, port, onData) {
      const socket = rsocket.connect({ device: end.device, host, port, ...(isOnread && readInto(onData)) });
      await once(socket, 'connect');
      return socket;
    },
    close: () => end.close(),
  };
}

export function connectionWay(): Way {
  const end = new DeviceOfEnd();
  return {
    open: (options) => end.open(options),
    async listen(_, port) {
      const server = await end.device.listen({ port });
      const accept = async () => {
        const request = await server.next();
        if (request === undefined) throw new Error('the listener was closed');
        const connection = await request.accept(CONNECTION);
        await server.close();
        return connection.stream();
      };
      return { stream: accept() };
    },
    connect: async (host, port) => (await end.device.connect({ host, port, ...CONNECTION })).stream(),
    close: () => end.close(),
  };
}
