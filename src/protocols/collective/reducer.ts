/**
 * Combines arrays in the card's memory. Long ones are combined by a thread of its own (reducethread.ts), so that the
 * calling thread goes on sending; both share the memory and a ring of jobs.
 */
import { readFileSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import type { SharedMemory } from '../../index.js';
import { packageFile } from '../../packagefile.js';
import { instantiate, JOB_WORDS, JOBS, type ReduceExports, type ReduceThreadData, State } from './reducejobs.js';

/** Shorter arrays take less time than a wake-up of the thread (bytes). */
const LONG_BYTES = 65_536;

/** The thread's program, where the build puts it. */
const PROGRAM = packageFile('dist/reducethread.js');
const MODULE = packageFile('build/reduce.wasm');

let compiled: WebAssembly.Module | undefined;

/** Names of operations. */
export type ReduceOpName = 'sum' | 'prod' | 'min' | 'max';
/** All operations. */
export const REDUCE_OPS: readonly ReduceOpName[] = ['sum', 'prod', 'min', 'max'];

const ELEMENTS = ['F32', 'F64', 'I32', 'I64'] as const;

/** Two arrays of the same length, and where the result goes: addresses in the card's memory. */
export interface ReduceArguments {
  readonly element: (typeof ELEMENTS)[number];
  readonly op: ReduceOpName;
  readonly into: number;
  readonly a: number;
  readonly b: number;
  /** Elements. */
  readonly count: number;
  /** Bytes of `count` elements. */
  readonly bytes: number;
}

export class Reducer {
  readonly #exports: ReduceExports;
  /** Values of the module's enums. */
  readonly #elements: Readonly<Record<ReduceArguments['element'], number>>;
  readonly #ops: Readonly<Record<ReduceOpName, number>>;
  /** The ring that the thread shares; undefined without a thread. */
  readonly #ring: Int32Array | undefined;
  readonly #worker: Worker | undefined;
  /** Calls that wait for their jobs, in order. */
  readonly #waiting: { resolve(): void; reject(error: Error): void }[] = [];
  #submitted = 0;
  #done = 0;
  #failure: Error | undefined;

  /**
   * @param memory of the card
   * @param hasThread whether long arrays are combined by a thread of its own
   */
  constructor(memory: SharedMemory, hasThread: boolean) {
    compiled ??= new WebAssembly.Module(readFileSync(MODULE));
    this.#exports = instantiate(compiled, memory);
    const value = (name: string) => (this.#exports as unknown as Record<string, WebAssembly.Global>)[name]?.value;
    const values = <N extends string>(group: string, names: readonly N[]) =>
      Object.fromEntries(names.map((name) => [name, value(`${group}.${name.toUpperCase()}`)])) as Record<N, number>;
    this.#elements = values('Element', ELEMENTS);
    this.#ops = values('ReduceOp', REDUCE_OPS);
    if (!hasThread) return;
    const shared = new SharedArrayBuffer((State.JOBS + JOBS * JOB_WORDS) * 4);
    this.#ring = new Int32Array(shared);
    const workerData: ReduceThreadData = { module: compiled, memory, shared };
    this.#worker = new Worker(PROGRAM, { name: 'wasm-roce reduce', workerData, argv: [], execArgv: [] });
    this.#worker.on('error', (error) => this.#fail(error));
    this.#worker.unref();
  }

  /** Combines two arrays. @throws an Error when the thread has failed */
  async reduce(args: ReduceArguments): Promise<void> {
    const { element, op, into, a, b, count, bytes } = args;
    const [elementCode, opCode] = [this.#elements[element], this.#ops[op]];
    const ring = this.#ring;
    if (ring === undefined || bytes < LONG_BYTES || this.#waiting.length === JOBS) {
      this.#exports.reduce(elementCode, opCode, into, a, b, count);
      return;
    }
    if (this.#failure !== undefined) throw this.#failure;
    ring.set([elementCode, opCode, into, a, b, count], State.JOBS + ((this.#submitted >>> 0) % JOBS) * JOB_WORDS);
    this.#submitted = (this.#submitted + 1) | 0;
    Atomics.store(ring, State.SUBMITTED, this.#submitted);
    Atomics.notify(ring, State.SUBMITTED);
    const isFirst = this.#waiting.length === 0;
    const done = new Promise<void>((resolve, reject) => this.#waiting.push({ resolve, reject }));
    if (isFirst) void this.#watch(ring);
    await done;
  }

  /** Ends the thread. Nothing is being combined. */
  async close(): Promise<void> {
    if (this.#ring === undefined) return;
    this.#failure ??= new Error('the communicator was closed');
    Atomics.store(this.#ring, State.STOP, 1);
    Atomics.notify(this.#ring, State.SUBMITTED);
    await this.#worker?.terminate();
  }

  /** Resolves calls while the thread has jobs. */
  async #watch(ring: Int32Array): Promise<void> {
    while (this.#waiting.length > 0) {
      const done = Atomics.load(ring, State.DONE);
      for (; this.#done !== done; this.#done = (this.#done + 1) | 0) this.#waiting.shift()?.resolve();
      if (this.#waiting.length === 0) return;
      const change = Atomics.waitAsync(ring, State.DONE, done);
      if (change.async) await change.value;
    }
  }

  #fail(error: Error): void {
    this.#failure ??= error;
    for (const { reject } of this.#waiting.splice(0)) reject(error);
  }
}
