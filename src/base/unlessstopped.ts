/** Waiting for work that a signal gives up. */

/**
 * Waits for a promise, unless a signal comes first. The work goes on; what becomes of it is not looked at.
 * @throws the reason of the signal, at once; what the promise is rejected with
 */
export async function unlessStopped<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  // a rejection after the signal must not be reported as unhandled
  work.catch(() => {});
  signal.throwIfAborted();
  let stop = () => {};
  const stopped = new Promise<never>((_, reject) => {
    stop = () => reject(signal.reason);
  });
  signal.addEventListener('abort', stop);
  try {
    return await Promise.race([work, stopped]);
  } finally {
    signal.removeEventListener('abort', stop);
  }
}
