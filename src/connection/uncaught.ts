/**
 * Rethrows an error as an uncaught exception, outside of the current call stack. An exception of an application's
 * listener must not prevent the work that follows the listener.
 */
export function throwLater(error: unknown): void {
  // Not by nextTick: an exception between two immediates breaks Node 20's queue of immediates, which then loops
  // endlessly.
  queueMicrotask(() => {
    throw error;
  });
}
