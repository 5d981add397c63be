/** The ring of jobs that the calling thread shares with the thread that combines arrays, in 32-bit words. */

/** Jobs that the ring holds. */
export const JOBS = 16;
/** Words of a job: element, operation, into, a, b, count. */
export const JOB_WORDS = 6;

/** Words before the jobs. */
export enum State {
  /** Jobs that were submitted, modulo 2^32. The thread sleeps on it. */
  SUBMITTED,
  /** Jobs that are done, modulo 2^32. */
  DONE,
  /** 1: the thread ends. */
  STOP,
  /** Index of the first job. */
  JOBS,
}

/** Exports of the module (assembly/reduce.ts); besides, the values of its enums by name. */
export interface ReduceExports {
  reduce(element: number, op: number, into: number, a: number, b: number, count: number): void;
}

/** Data for the thread. */
export interface ReduceThreadData {
  readonly module: WebAssembly.Module;
  /** The card's. */
  readonly memory: WebAssembly.Memory;
  readonly shared: SharedArrayBuffer;
}

export function instantiate(module: WebAssembly.Module, memory: WebAssembly.Memory): ReduceExports {
  return new WebAssembly.Instance(module, { env: { memory } }).exports as unknown as ReduceExports;
}
