/**
 * Node's timers and clock, bound when the library loads. A test of a program that replaces them later (`useFakeTimers`
 * of vitest, jest or Sinon) stops its own time, and not that of the card, as it does not stop that of node:net.
 */
import { performance as nodePerformance } from 'node:perf_hooks';
import timers from 'node:timers';
import { setTimeout as nodeSleep } from 'node:timers/promises';

export const { setTimeout, setInterval, setImmediate, clearTimeout, clearInterval, clearImmediate } = timers;

/** Resolves after `ms` milliseconds: setTimeout of node:timers/promises. */
export const sleep: typeof nodeSleep = nodeSleep;

/** Node's `process.nextTick`. */
export const nextTick: typeof process.nextTick = process.nextTick.bind(process);

/** Node's `queueMicrotask`. */
export const queueMicrotask: typeof globalThis.queueMicrotask = globalThis.queueMicrotask.bind(globalThis);

/** Milliseconds of a monotonic clock since `timeOrigin`, which is in milliseconds since 1970. */
export const performance: { readonly now: () => number; readonly timeOrigin: number } = {
  now: nodePerformance.now.bind(nodePerformance),
  timeOrigin: nodePerformance.timeOrigin,
};
