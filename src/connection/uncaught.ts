/**
 * Throws outside of all that runs now. What a program's listener throws is the program's affair, an uncaught exception, and not
 * a reason to leave undone what comes behind the listener.
 */
export function throwLater(error: unknown): void {
  // not by nextTick: what it throws between two immediates leaves Node 20 with a broken queue of them, which it goes round for ever
  queueMicrotask(() => {
    throw error;
  });
}
