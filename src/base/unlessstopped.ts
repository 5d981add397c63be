/** Waits that a signal ends. */

/**
 * Waits for a promise until a signal is aborted. The work behind the promise goes on, and its result is ignored.
 * @throws the reason of the signal, as soon as it is aborted; the error of a promise that is rejected before
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
