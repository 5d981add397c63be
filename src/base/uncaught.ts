/** Exceptions of the program's own functions: they are uncaught, and prevent nothing of what follows the call. */
import { queueMicrotask } from './timers.js';

/** Rethrows an error as an uncaught exception, outside of the current call stack. */
export function throwLater(error: unknown): void {
  // Not by nextTick: an exception between two immediates breaks Node 20's queue of immediates, which then loops
  // endlessly.
  queueMicrotask(() => {
    throw error;
  });
}

/**
 * Calls functions of the program, such as the listeners of an event. Their exceptions are uncaught, and do not reach
 * the caller.
 * @returns the result of the call; `otherwise` when it throws
 */
export function callProgram<T>(call: () => T, otherwise: T): T {
  try {
    return call();
  } catch (error) {
    throwLater(error);
    return otherwise;
  }
}
