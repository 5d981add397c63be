/** One rank of all-reduces: by a communicator, or by a ring over TCP or gRPC. */
import { once } from 'node:events';
import * as tcp from 'node:net';
import { performance } from 'node:perf_hooks';
import * as grpc from '@grpc/grpc-js';
import { type Device, openDevice } from 'wasm-roce';
import { type Communicator, openCommunicator } from 'wasm-roce/collective';
import { cpuSince } from './calls.js';
import { Incoming, type RingTransport, ringAllReduce } from './ring.js';

export interface RankOptions {
  readonly rank: number;
  readonly size: number;
  /** Rank `r` listens on port `port + r`. */
  readonly port: number;
}

/** Options of our ranks. */
export interface OurRankOptions extends RankOptions {
  readonly mode: 'inline' | 'worker';
  readonly isRegistered: boolean;
}

/** The measurements of one rank for a number of calls. */
export interface RankResult {
  /** Time of all calls (ms). */
  readonly ms: number;
  /** CPU time (s). */
  readonly cpu: number;
}

abstract class Ranks {
  #array: Float32Array = new Float32Array(0);

  /** Combines arrays so many times. @returns the time */
  async run(bytes: number, calls: number): Promise<RankResult> {
    if (this.#array.byteLength !== bytes) this.#array = await this.allocate(bytes / 4);
    const cpu = process.cpuUsage();
    const begin = performance.now();
    // of zeroes, whose sum does not grow
    for (let call = 0; call < calls; call++) await this.allReduce(this.#array);
    return { ms: performance.now() - begin, cpu: cpuSince(cpu) };
  }

  protected async allocate(length: number): Promise<Float32Array> {
    return new Float32Array(length);
  }

  protected abstract allReduce(array: Float32Array): Promise<void>;
}

/** Each rank has an address of the loopback interface. */
const addressOf = (rank: number) => `127.98.0.${rank + 1}`;

export class CommunicatorRank extends Ranks {
  #device!: Device;
  #communicator!: Communicator;
  #isRegistered = false;

  async open({ rank, size, port, mode, isRegistered }: OurRankOptions): Promise<void> {
    this.#isRegistered = isRegistered;
    this.#device = await openDevice({ link: 'udp', mode, addresses: [addressOf(rank)] });
    const where = { host: addressOf(0), port, device: this.#device };
    this.#communicator = await openCommunicator({ rank, size, ...where });
  }

  protected override async allocate(length: number): Promise<Float32Array> {
    return this.#isRegistered ? this.#communicator.allocate('Float32Array', length) : super.allocate(length);
  }

  protected allReduce(array: Float32Array): Promise<void> {
    return this.#communicator.allReduce(array);
  }
}

export class RingRank extends Ranks {
  #options!: RankOptions;
  readonly #ring: RingTransport;

  constructor(ring: RingTransport) {
    super();
    this.#ring = ring;
  }

  async listen(options: RankOptions): Promise<void> {
    this.#options = options;
    await this.#ring.listen(options.port + options.rank);
  }

  async open({ rank, size, port }: RankOptions): Promise<void> {
    await this.#ring.connect(port + ((rank + 1) % size));
  }

  protected allReduce(array: Float32Array): Promise<void> {
    const { rank, size } = this.#options;
    return ringAllReduce(this.#ring, rank, size, array);
  }
}

export class TcpRing implements RingTransport {
  readonly #incoming = new Incoming();
  #left!: Promise<tcp.Socket>;
  #right!: tcp.Socket;

  async listen(port: number): Promise<void> {
    const server = tcp.createServer();
    this.#left = once(server, 'connection').then(([socket]) => socket);
    server.listen(port, '127.0.0.1');
    await once(server, 'listening');
  }

  async connect(port: number): Promise<void> {
    this.#right = tcp.connect({ port, host: '127.0.0.1', noDelay: true });
    await once(this.#right, 'connect');
    (await this.#left).on('data', (part) => this.#incoming.put(part));
  }

  async send(bytes: Uint8Array): Promise<void> {
    await new Promise<void>((resolve) => this.#right.write(bytes, () => resolve()));
  }

  receive(into: Uint8Array): Promise<void> {
    return this.#incoming.fill(into);
  }
}

/** Bytes of a message of gRPC: several times its default limit would be refused. */
const MESSAGE_BYTES = 2 ** 20;

const bytesAsTheyAre = (bytes: Buffer): Buffer => bytes;
const METHOD = {
  path: '/ring.Ring/Pass',
  requestStream: true,
  responseStream: true,
  requestSerialize: bytesAsTheyAre,
  requestDeserialize: bytesAsTheyAre,
  responseSerialize: bytesAsTheyAre,
  responseDeserialize: bytesAsTheyAre,
} as const;

export class GrpcRing implements RingTransport {
  readonly #incoming = new Incoming();
  #stream!: grpc.ClientDuplexStream<Buffer, Buffer>;

  async listen(port: number): Promise<void> {
    const server = new grpc.Server();
    const pass = (call: grpc.ServerDuplexStream<Buffer, Buffer>) =>
      void call.on('data', (part: Buffer) => this.#incoming.put(part));
    server.addService({ Pass: METHOD }, { Pass: pass });
    await new Promise<void>((resolve, reject) =>
      server.bindAsync(`127.0.0.1:${port}`, grpc.ServerCredentials.createInsecure(), (error) =>
        error ? reject(error) : resolve(),
      ),
    );
  }

  async connect(port: number): Promise<void> {
    const client = new grpc.Client(`127.0.0.1:${port}`, grpc.credentials.createInsecure());
    this.#stream = client.makeBidiStreamRequest(METHOD.path, bytesAsTheyAre, bytesAsTheyAre);
    this.#stream.on('error', () => {});
  }

  async send(bytes: Uint8Array): Promise<void> {
    for (let at = 0; at < bytes.length; at += MESSAGE_BYTES) {
      const part = Buffer.from(bytes.buffer, bytes.byteOffset + at, Math.min(MESSAGE_BYTES, bytes.length - at));
      await new Promise<void>((resolve) => this.#stream.write(part, () => resolve()));
    }
  }

  receive(into: Uint8Array): Promise<void> {
    return this.#incoming.fill(into);
  }
}
