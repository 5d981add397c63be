/** The host under attack: a service of the kind that README.md shows, and a flow of WRITEs to an honest server. */
import { getHeapSpaceStatistics } from 'node:v8';
// The built package, as users have it: the loader of TypeScript makes closures slow, and more garbage.
import {
  type AcceptOptions,
  type Connection,
  type Device,
  openDevice,
  type RemoteMemory,
  type Server,
} from 'wasm-roce';
import { mainThreadWait, ThreadWaits } from './waits.js';

/** The port of the service that clients connect to. */
export const SERVICE_PORT = 7471;
/** The port of the honest server that the flow goes to. */
export const FLOW_PORT = 7472;
/** A port without a listener. */
export const CLOSED_PORT = 7473;
/** The port of a service that shares memory: its `mr.remote` is the private data of the reply. */
export const MEMORY_PORT = 7474;
/** Bytes of that memory. */
export const MEMORY_BYTES = 65536;
/** Time that the target waits for a peer that acknowledges nothing before it gives the connection up, in ms. */
const CLOSE_TIMEOUT_MS = 1000;
/** All connections count as closed after this time without one: requests that wait become connections, in ms. */
const CLOSE_PAUSE_MS = 100;
/** Bytes of each WRITE of the flow. */
export const FLOW_BYTES = 256 * 1024;
/** WRITEs of the flow in flight. With one, the time in which threads wake each other would decide its rate. */
const FLOW_DEPTH = 2;

/** Bytes of the arrays that make the young generation grow. */
const ARRAY_BYTES = 4096;

const SAMPLE_MS = 5;
const RSS_SAMPLE_MS = 100;

export interface TargetOptions {
  readonly link: string;
  readonly mode: string;
  readonly interface: string;
}

/** The flow's queue pair, which forged packets name. */
export interface FlowInfo {
  readonly qpn: number;
}

/** The target's measurements since the last `take`. */
export interface TargetFigures {
  readonly seconds: number;
  /** Delay of a timer of the event loop, in ms, without the time in which others had the processor. */
  readonly lagMax: number;
  readonly lagP99: number;
  /** The same with that time. */
  readonly lateMax: number;
  /** Resident memory in bytes: the largest sample, and now. */
  readonly rssMax: number;
  readonly rss: number;
  /** Connections that were accepted and are not closed. */
  readonly connections: number;
  readonly flowBytes: number;
  /** Share of the time in which a thread of the target could have run, but others had its processor. */
  readonly preempted: number;
  /** Counters of the device that have changed. */
  readonly counters: Readonly<Record<string, number>>;
}

/** Serves calls of the bench: see `run.ts`. */
export class Target {
  #device!: Device;
  /** Not a set, whose closed connections would stay in memory: see `NumberMap` of the project. */
  readonly #accepted: Connection[] = [];
  /** Requests that are being accepted. */
  #accepting = 0;
  #isClosing = false;
  #flow: Connection | undefined;
  #flowBytes = 0;
  #since = performance.now();
  #rssMax = 0;
  #lateMax = 0;
  readonly #waits = new ThreadWaits();
  #counters: Readonly<Record<string, number>> = {};
  readonly #lags: number[] = [];

  async open({ link, mode, interface: name }: TargetOptions): Promise<void> {
    growYoungGeneration();
    const options = { link, mode, interface: name, memoryBytes: 128 * 2 ** 20 };
    this.#device = await openDevice(options as Parameters<typeof openDevice>[0]);
    let last = performance.now();
    let lastWaited = mainThreadWait();
    setInterval(() => {
      const [now, waited] = [performance.now(), mainThreadWait()];
      const late = Math.max(0, now - last - SAMPLE_MS);
      this.#lateMax = Math.max(this.#lateMax, late);
      // On a busy machine most of it is the time of others.
      this.#lags.push(Math.max(0, late - (waited - lastWaited) * 1000));
      [last, lastWaited] = [now, waited];
    }, SAMPLE_MS);
    setInterval(() => {
      this.#rssMax = Math.max(this.#rssMax, process.memoryUsage.rss());
    }, RSS_SAMPLE_MS);
  }

  async listen(): Promise<void> {
    const echo = await this.#device.listen({ port: SERVICE_PORT });
    void this.#serve(echo, {}, async (connection) => {
      for await (const { data } of connection) await connection.send(data);
    });
    const pd = await this.#device.allocPd();
    const mr = await pd.regMr(MEMORY_BYTES, { access: ['localWrite', 'remoteRead', 'remoteWrite', 'remoteAtomic'] });
    const memory = await this.#device.listen({ port: MEMORY_PORT });
    void this.#serve(memory, { pd, privateData: Buffer.from(JSON.stringify(mr.remote)) }, async () => {});
  }

  /** Returns the bytes that the program's objects take, without those that are garbage. */
  kept(): number {
    globalThis.gc?.();
    const { heapUsed, external } = process.memoryUsage();
    return heapUsed + external;
  }

  /**
   * Closes all connections that were accepted, and those that requests become which still wait.
   * @returns the milliseconds until the last was closed
   */
  async closeAccepted(): Promise<number> {
    const begin = performance.now();
    this.#isClosing = true;
    for (const connection of this.#accepted) void connection.close().catch(() => {});
    let end = begin;
    while (performance.now() <= end + CLOSE_PAUSE_MS) {
      await new Promise((resolve) => setTimeout(resolve, SAMPLE_MS));
      if (this.#accepting + this.#accepted.length > 0) end = performance.now();
    }
    return end - begin;
  }

  /** Writes to an honest server without end. */
  async flow(host: string): Promise<FlowInfo> {
    const connection = await this.#device.connect({ host, port: FLOW_PORT });
    const { data } = (await connection.receive()) as { data: Buffer };
    const remote = JSON.parse(data.toString()) as RemoteMemory;
    const bytes = Buffer.alloc(FLOW_BYTES, 7);
    this.#flow = connection;
    const write = async () => {
      for (;;) {
        await connection.write(remote, bytes);
        this.#flowBytes += bytes.length;
      }
    };
    for (let i = 0; i < FLOW_DEPTH; i++) void write().catch(() => {});
    return { qpn: connection.qp.qpNum };
  }

  /** Returns the bytes that the flow has written since the last `take`. */
  flowed(): number {
    return this.#flowBytes;
  }

  /** Whether the flow's connection has survived. */
  isFlowOpen(): boolean {
    return this.#flow !== undefined && !this.#flow.qp.isClosed && this.#flow.qp.query().state === 'RTS';
  }

  async #serve(
    server: Server,
    options: AcceptOptions,
    serve: (connection: Connection) => Promise<void>,
  ): Promise<void> {
    const sizes = { messageBytes: 1024, receives: 8, sends: 8, closeTimeout: CLOSE_TIMEOUT_MS };
    for await (const request of server) {
      this.#accepting++;
      void request
        .accept({ ...sizes, ...options })
        .finally(() => this.#accepting--)
        .then((connection) => {
          this.#accepted.push(connection);
          connection.once('close', () => this.#accepted.splice(this.#accepted.indexOf(connection), 1));
          return this.#isClosing ? connection.close() : serve(connection);
        })
        .catch(() => {});
    }
  }

  /** Returns the figures since the last call, and begins anew. */
  take(): TargetFigures {
    const now = performance.now();
    const lags = this.#lags.splice(0).sort((a, b) => a - b);
    const counters = this.#device.counters();
    const changed = Object.entries(counters)
      .map(([name, value]) => [name, value - (this.#counters[name] ?? 0)] as const)
      .filter(([, value]) => value !== 0);
    const rss = process.memoryUsage.rss();
    const seconds = (now - this.#since) / 1000;
    const figures = {
      seconds,
      lagMax: lags.at(-1) ?? now - this.#since,
      lagP99: lags[Math.floor(lags.length * 0.99)] ?? now - this.#since,
      lateMax: this.#lateMax,
      rssMax: Math.max(this.#rssMax, rss),
      rss,
      connections: this.#accepted.length,
      flowBytes: this.#flowBytes,
      preempted: this.#waits.take(this.#device.mode),
      counters: Object.fromEntries(changed),
    };
    this.#counters = counters;
    this.#since = now;
    this.#flowBytes = 0;
    this.#rssMax = 0;
    this.#lateMax = 0;
    return figures;
  }
}

/**
 * Lets V8's young generation grow to its full size. V8 doubles it when as many bytes have survived collections as it
 * has, counted from the start of the process: any program that runs for long gets there. In a young process the attack
 * would only decide when.
 */
function growYoungGeneration(): void {
  let kept: unknown[] = [];
  for (let grown = true; grown; ) {
    const size = youngGenerationBytes();
    for (let allocated = 0; allocated < 32 * size; allocated += ARRAY_BYTES) {
      // Objects that outlive two collections go to the old generation, which must not grow: 1 MiB of them is enough.
      if (allocated % 2 ** 20 === 0) kept = [];
      kept.push(new Array(ARRAY_BYTES / 8).fill(0));
    }
    grown = youngGenerationBytes() > size;
  }
  globalThis.gc?.();
}

function youngGenerationBytes(): number {
  return getHeapSpaceStatistics().find(({ space_name }) => space_name === 'new_space')?.space_size ?? 0;
}
