/** Waiting that can be given up. */
import { VerbsError } from '../errors.js';
import { show } from './check.js';

export interface WaitOptions {
  /** Ends the waiting: the promise is rejected with the signal's reason. A request that has left is carried out all the same;
   * one that has not stays here. */
  readonly signal?: AbortSignal;
  /** Milliseconds until the waiting ends with ETIMEDOUT. Default: never. */
  readonly timeout?: number;
}

/** setTimeout takes no more (ms): 24 days, after which nobody waits. */
export const LONGEST_TIMER = 2 ** 31 - 1;

/** What forbids to wait at all. @throws TypeError for wrong options, the signal's reason */
export function checkWait({ signal, timeout }: WaitOptions): void {
  signal?.throwIfAborted();
  if (timeout !== undefined && !(typeof timeout === 'number' && timeout >= 0))
    throw new TypeError(`timeout is ${show(timeout)}, must be milliseconds`);
}

/**
 * A promise that ends with another, or earlier by the options.
 * @param what for the message: `no answer to the READ within 100 ms`
 * @param onGiveUp called when the waiting ends before the promise
 * @throws TypeError for wrong options, the signal's reason, VerbsError ETIMEDOUT
 */
export function orGiveUp<T>(promise: Promise<T>, what: string, wait: WaitOptions, onGiveUp = () => {}): Promise<T> {
  const { signal, timeout } = wait;
  if (signal === undefined && timeout === undefined) return promise;
  // whoever has given up does not hear of it any more
  promise.catch(() => {});
  try {
    checkWait(wait);
  } catch (wrong) {
    onGiveUp();
    return Promise.reject(wrong);
  }
  return new Promise<T>((resolve, reject) => {
    const done = () => {
      signal?.removeEventListener('abort', onAbort);
      clearTimeout(timer);
    };
    const giveUp = (error: unknown) => {
      done();
      onGiveUp();
      reject(error);
    };
    const onAbort = () => giveUp(signal?.reason);
    signal?.addEventListener('abort', onAbort, { once: true });
    const late = () => giveUp(new VerbsError('ETIMEDOUT', `${what} within ${timeout} ms`));
    const timer = timeout === undefined ? undefined : setTimeout(late, Math.min(timeout, LONGEST_TIMER));
    promise.finally(done).then(resolve, reject);
  });
}
