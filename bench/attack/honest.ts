/** The honest client: it connects to the service every 100 ms, and has a server for the target's flow. */
import { type Device, openDevice, type Server } from '../../src/index.js';
import { FLOW_BYTES, FLOW_PORT, SERVICE_PORT } from './target.js';
import { ThreadWaits } from './waits.js';

const PROBE_INTERVAL_MS = 100;
const WARM_UP_CONNECTS = 2000;
const WARM_UP_AT_ONCE = 10;
/** A connect that takes longer has failed. */
const PROBE_TIMEOUT_MS = 5000;

/** The connects since the last `take`. */
export interface HonestFigures {
  /** Milliseconds of each connect that was established. */
  readonly connects: readonly number[];
  /** Time that the oldest connect under way has taken; 0 without one. */
  readonly waiting: number;
  readonly failures: readonly string[];
  /** Share of the time in which its thread, which serves the flow, could have run, but others had its processor. */
  readonly preempted: number;
}

/** Serves calls of the bench: see `run.ts`. */
export class Honest {
  #device!: Device;
  #connects: number[] = [];
  #failures: string[] = [];
  readonly #waits = new ThreadWaits();
  #waitingSince = 0;
  #isProbing = false;
  #host = '';

  async open(name: string): Promise<void> {
    this.#device = await openDevice({ link: 'packet', interface: name, memoryBytes: 128 * 2 ** 20 });
    const server: Server = await this.#device.listen({ port: FLOW_PORT });
    void (async () => {
      for await (const request of server) {
        const connection = await request.accept();
        const shared = await connection.share(FLOW_BYTES);
        await connection.send(JSON.stringify(shared.remote));
      }
    })();
  }

  /**
   * Connects and disconnects many times, so that V8 has compiled the code of both ends. Until then a connection costs
   * four times as much: in a young process the attack would only decide when.
   */
  async warmUp(host: string): Promise<void> {
    for (let left = WARM_UP_CONNECTS; left > 0; left -= WARM_UP_AT_ONCE)
      await Promise.all(Array.from({ length: WARM_UP_AT_ONCE }, () => this.#connect(host, PROBE_TIMEOUT_MS)));
  }

  /** Begins to connect every 100 ms. */
  async probe(host: string): Promise<void> {
    this.#host = host;
    this.#isProbing = true;
    void this.#run();
  }

  stop(): void {
    this.#isProbing = false;
  }

  /** Returns the milliseconds until a connect succeeds; tries for `limit` ms. */
  async untilServed(host: string, limit: number): Promise<number> {
    const begin = performance.now();
    while (performance.now() - begin < limit) {
      const time = await this.#connect(host, 1000).catch(() => undefined);
      if (time !== undefined) break;
    }
    return performance.now() - begin;
  }

  /** Returns the number of connects since the last `take`. */
  connected(): number {
    return this.#connects.length;
  }

  /** Returns the figures since the last call, and begins anew. */
  take(): HonestFigures {
    const waiting = this.#waitingSince === 0 ? 0 : performance.now() - this.#waitingSince;
    const preempted = this.#waits.take(this.#device.mode);
    const figures = { connects: this.#connects, failures: this.#failures, waiting, preempted };
    this.#connects = [];
    this.#failures = [];
    return figures;
  }

  async #run(): Promise<void> {
    while (this.#isProbing) {
      this.#waitingSince = performance.now();
      try {
        this.#connects.push(await this.#connect(this.#host, PROBE_TIMEOUT_MS));
      } catch (error) {
        this.#failures.push((error as Error).message);
      }
      this.#waitingSince = 0;
      await new Promise((resolve) => setTimeout(resolve, PROBE_INTERVAL_MS));
    }
  }

  /** @returns milliseconds until a connection was established; it is then closed */
  async #connect(host: string, timeout: number): Promise<number> {
    const begin = performance.now();
    const small = { messageBytes: 1024, receives: 8, sends: 8 };
    const connection = await this.#device.connect({ host, port: SERVICE_PORT, timeout, ...small });
    const time = performance.now() - begin;
    void connection.close().catch(() => {});
    return time;
  }
}
