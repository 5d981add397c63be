/**
 * The program of the thread that combines arrays: does the jobs of the ring in order, and sleeps while there is none.
 */
import { workerData } from 'node:worker_threads';
import { instantiate, JOB_WORDS, JOBS, type ReduceThreadData, State } from './reducejobs.js';

const { module, memory, shared } = workerData as ReduceThreadData;
const exports = instantiate(module, memory);
const ring = new Int32Array(shared);

for (let done = 0; Atomics.load(ring, State.STOP) === 0; ) {
  if (Atomics.load(ring, State.SUBMITTED) === done) {
    Atomics.wait(ring, State.SUBMITTED, done);
    continue;
  }
  const at = State.JOBS + ((done >>> 0) % JOBS) * JOB_WORDS;
  const [element, op, into, a, b, count] = ring.subarray(at, at + JOB_WORDS) as unknown as Parameters<
    typeof exports.reduce
  >;
  exports.reduce(element, op, into, a, b, count);
  done = (done + 1) | 0;
  Atomics.store(ring, State.DONE, done);
  Atomics.notify(ring, State.DONE);
}
