/** Waiting that can be given up. */
import { VerbsError } from '../errors.js';
import { show } from '../verbs/check.js';

export interface WaitOptions {
  /** Ends the waiting: the promise is rejected with the signal's reason. A request that has left is carried out all the same. */
  readonly signal?: AbortSignal;
  /** Milliseconds until the waiting ends with ETIMEDOUT. Default: never. */
  readonly timeout?: number;
}

/**
 * A promise that ends with `start`'s, or earlier by the options.
 * @param what for the message: `no answer to the READ within 100 ms`
 * @param onGiveUp called when the waiting ends before the promise
 * @throws TypeError for wrong options, the signal's reason, VerbsError ETIMEDOUT
 */
export function orGiveUp<T>(
  promise: Promise<T>,
  what: string,
  { signal, timeout }: WaitOptions,
  onGiveUp = () => {},
): Promise<T> {
  if (signal === undefined && timeout === undefined) return promise;
  // whoever has given up does not hear of it any more
  promise.catch(() => {});
  const wrong = wrongIn(signal, timeout);
  if (wrong !== undefined) {
    onGiveUp();
    return Promise.reject(wrong);
  }
  return new Promise<T>((resolve, reject) => {
    const giveUp = (error: unknown) => {
      onGiveUp();
      reject(error);
    };
    const onAbort = () => giveUp(signal?.reason);
    signal?.addEventListener('abort', onAbort, { once: true });
    const late = () => giveUp(new VerbsError('ETIMEDOUT', `${what} within ${timeout} ms`));
    const timer = timeout === undefined ? undefined : setTimeout(late, timeout);
    const done = () => {
      signal?.removeEventListener('abort', onAbort);
      clearTimeout(timer);
    };
    promise.finally(done).then(resolve, reject);
  });
}

/** Why there is no waiting at all. */
function wrongIn(signal: AbortSignal | undefined, timeout: unknown): unknown {
  if (timeout !== undefined && !(typeof timeout === 'number' && timeout >= 0))
    return new TypeError(`timeout is ${show(timeout)}, must be milliseconds`);
  return signal?.aborted ? signal.reason : undefined;
}
