/** One end of connections without data: by ids of rdma_cm, by `device.connect`, or by Node's `net`. */
import { once } from 'node:events';
import { connect as connectSocket, createServer, type Server as NetServer } from 'node:net';
import { performance } from 'node:perf_hooks';
import { type CmId, type Cq, createCmId, type Device, openDevice, type Pd } from 'wasm-roce';

export type Manner = 'ids' | 'connect' | 'net';

export interface ConnectOptions {
  readonly manner: Manner;
  /** For RDMA only. */
  readonly link?: string;
  readonly interface?: string;
}

/** One method of connecting, at either end. */
interface Way {
  listen(address: string, port: number): Promise<void>;
  /** Establishes a connection. Resolves to the function that ends it. */
  connect(address: string, port: number): Promise<() => Promise<void>>;
  close(): Promise<void>;
}

/** Card memory for the messages of more than a hundred connections by `device.connect`. */
const MEMORY = 192 * 2 ** 20;
/** The same as in cmtime. */
const RINGS = { maxSendWr: 1, maxRecvWr: 1, maxSendSge: 1, maxRecvSge: 1, maxInlineData: 0 };

export class ConnectEnd {
  #way!: Way;

  async open({ manner, link, interface: name }: ConnectOptions): Promise<void> {
    if (manner === 'net') {
      this.#way = new Sockets();
      return;
    }
    const options = { link, interface: name, memoryBytes: MEMORY } as Parameters<typeof openDevice>[0];
    const device = await openDevice(options);
    this.#way = manner === 'ids' ? await Ids.on(device) : new Connections(device);
  }

  async listen(address: string, port: number): Promise<void> {
    await this.#way.listen(address, port);
  }

  /** Establishes and ends `count` connections. @returns seconds until all were established */
  async connect(address: string, port: number, count: number, isAtOnce: boolean): Promise<number> {
    const ends: (() => Promise<void>)[] = [];
    const one = async () => {
      ends.push(await this.#way.connect(address, port));
    };
    const begin = performance.now();
    if (isAtOnce) await Promise.all(Array.from({ length: count }, one));
    else for (let i = 0; i < count; i++) await one();
    const seconds = (performance.now() - begin) / 1000;
    await Promise.all(ends.map((end) => end()));
    return seconds;
  }

  async close(): Promise<void> {
    await this.#way.close();
  }
}

/** Ids with one queue pair each, which share a completion queue, the same as in cmtime. */
class Ids implements Way {
  static async on(device: Device): Promise<Ids> {
    return new Ids(device, await device.allocPd(), await device.createCq());
  }

  private constructor(
    readonly device: Device,
    readonly pd: Pd,
    readonly cq: Cq,
  ) {}

  async listen(address: string, port: number): Promise<void> {
    const id = createCmId(this.device);
    await id.bindAddr(address, port);
    await id.listen();
    void this.#serve(id);
  }

  async connect(address: string, port: number): Promise<() => Promise<void>> {
    const id = createCmId(this.device);
    await id.resolveAddr(address, port);
    await id.resolveRoute();
    await id.createQp(this.pd, { sendCq: this.cq, ...RINGS });
    await id.connect();
    return async () => {
      await id.disconnect();
      await id.close();
    };
  }

  async close(): Promise<void> {
    await this.device.close({ force: true });
  }

  async #serve(listener: CmId): Promise<void> {
    for await (const event of listener.channel)
      if (event.type === 'CONNECT_REQUEST') void this.#take(event.id).catch(() => {});
  }

  async #take(id: CmId): Promise<void> {
    await id.createQp(this.pd, { sendCq: this.cq, ...RINGS });
    await id.accept();
    while ((await id.channel.next()).type !== 'DISCONNECTED');
    await id.close();
  }
}

/** Connections that are ready for messages: each has registered memory and posted receives. */
class Connections implements Way {
  constructor(readonly device: Device) {}

  async listen(host: string, port: number): Promise<void> {
    const server = await this.device.listen({ host, port });
    void (async () => {
      for await (const request of server) void request.accept().catch(() => {});
    })();
  }

  async connect(host: string, port: number): Promise<() => Promise<void>> {
    const connection = await this.device.connect({ host, port });
    return () => connection.close();
  }

  async close(): Promise<void> {
    await this.device.close({ force: true });
  }
}

/** TCP sockets of Node. */
class Sockets implements Way {
  #server: NetServer | undefined;

  async listen(address: string, port: number): Promise<void> {
    const server = createServer((socket) => socket.on('error', () => {}).resume());
    this.#server = server;
    server.listen({ port, host: address, backlog: 1024 });
    await once(server, 'listening');
  }

  async connect(address: string, port: number): Promise<() => Promise<void>> {
    const socket = connectSocket(port, address);
    await once(socket, 'connect');
    return async () => {
      const closed = once(socket, 'close');
      socket.resume().end();
      await closed;
    };
  }

  async close(): Promise<void> {
    this.#server?.close();
  }
}
