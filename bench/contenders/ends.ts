/** A contender with an end in each of two processes: one runs the work, the other one serves it. */
import type { Rig } from '../rig/program.js';
import { WorkerProcess } from '../rig/worker.js';
import { type Part, type Sample, sampleOf, type Work } from '../work.js';
import type { Contender } from './contender.js';

/** Sockets and streams: one connection, for which Node.js waits in the event loop only. */
export abstract class TwoEnds implements Contender {
  abstract readonly kind: Contender['kind'];
  abstract readonly name: string;
  /** Kind of the worker (workers/main.ts). */
  protected abstract readonly worker: string;
  #ends: readonly WorkerProcess[] = [];
  #port: number;

  /** @param firstPort the port before that of the first connection; the next connection has the next one */
  protected constructor(firstPort: number) {
    this.#port = firstPort;
  }

  takes({ operation, waiting, qps }: Work): boolean {
    return operation === 'SEND' && waiting === 'sleep' && qps === 1;
  }

  async begin(rig: Rig): Promise<void> {
    if (this.#ends.length === 0)
      this.#ends = [WorkerProcess.start(rig, 'a', this.worker), WorkerProcess.start(rig, 'b', this.worker)];
    const [a, b] = this.#ends as [WorkerProcess, WorkerProcess];
    try {
      await this.connect(rig, a, b, ++this.#port);
    } catch (error) {
      this.stop();
      throw error;
    }
  }

  protected abstract connect(rig: Rig, a: WorkerProcess, b: WorkerProcess, port: number): Promise<void>;

  /** @throws WorkerError, Error as `call`; the other end stops serving then */
  async measure(work: Work): Promise<Sample> {
    const [a, b] = this.#ends;
    if (a === undefined || b === undefined) throw new Error('the ends have not begun');
    await b.call('serve', work);
    const ran = await a.call<Part>('run', work).catch(async (error) => {
      await b.call('stop');
      throw error;
    });
    return sampleOf(work, [ran, await b.call<Part>('stop')]);
  }

  async end(): Promise<void> {
    await Promise.all(this.#ends.map((end) => end.call('close')));
  }

  stop(): void {
    for (const end of this.#ends) end.kill();
    this.#ends = [];
  }
}

/** Connects the first end to the second one. */
export function connectEnds(rig: Rig, a: WorkerProcess, b: WorkerProcess, port: number): Promise<void> {
  return connectTo(rig.b.address, b, a, port);
}

/** Connects the second end to the first one: it reads by `onread`, an option of clients. */
export function connectReader(rig: Rig, a: WorkerProcess, b: WorkerProcess, port: number): Promise<void> {
  return connectTo(rig.a.address, a, b, port);
}

async function connectTo(address: string, server: WorkerProcess, client: WorkerProcess, port: number): Promise<void> {
  await server.call('listen', address, port);
  await client.call('connect', address, port);
  await server.call('accepted');
}
