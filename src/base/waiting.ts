/** Waits that can be cancelled by a signal or a timeout. */

import { outOfRange, VerbsError } from '../errors.js';
import { whenAborted } from './abort.js';
import { type Checks, checkOptions, wrongType } from './options.js';
import { clearTimeout, setTimeout } from './timers.js';

/** Options of calls that wait. */
export interface WaitOptions {
  /**
   * Cancels the wait: the promise is rejected with the signal's reason. A request that was sent is executed
   * nevertheless; one that was not sent yet is dropped.
   */
  readonly signal?: AbortSignal;
  /** Milliseconds until the promise is rejected with VerbsError ETIMEDOUT. Default: no limit. */
  readonly timeout?: number;
}

/** Longest delay of setTimeout (ms): 24 days. */
export const MAX_TIMER_MS = 2 ** 31 - 1;

/** Checks of wait options, for the tables of the calls that wait. */
export const WAIT_CHECKS: Checks<WaitOptions> = {
  signal: (name, value) => {
    if (!(value instanceof AbortSignal)) throw wrongType(name, value, 'an AbortSignal');
  },
  timeout: (name, value) => {
    if (typeof value !== 'number') throw wrongType(name, value, 'milliseconds');
    if (!(value >= 0)) throw outOfRange(`${name} is ${value}, must be milliseconds, 0 or more`);
  },
};

/** Checks wait options. @throws TypeError, RangeError for wrong options; the signal's reason when it is aborted */
export function checkWait(wait: WaitOptions): void {
  checkOptions('the wait', wait, WAIT_CHECKS);
  wait.signal?.throwIfAborted();
}

/**
 * Returns a promise that settles with `promise`, or earlier by signal or timeout.
 * @param timeoutText start of the ETIMEDOUT message: `no completion` gives `no completion within 100 ms`
 * @param onCancel called when the wait ends before the promise
 * @throws TypeError for wrong options, the signal's reason, VerbsError ETIMEDOUT
 */
export function waitFor<T>(
  promise: Promise<T>,
  timeoutText: string,
  wait: WaitOptions,
  onCancel = () => {},
): Promise<T> {
  const { signal, timeout } = wait;
  if (signal === undefined && timeout === undefined) return promise;
  // A rejection after the wait has ended must not be reported as unhandled.
  promise.catch(() => {});
  try {
    checkWait(wait);
  } catch (error) {
    onCancel();
    return Promise.reject(error);
  }
  return new Promise<T>((resolve, reject) => {
    const done = () => {
      forgetSignal();
      clearTimeout(timer);
    };
    const cancel = (error: unknown) => {
      done();
      onCancel();
      reject(error);
    };
    const forgetSignal = whenAborted(signal, () => cancel(signal?.reason));
    const onTimeout = () => cancel(new VerbsError('ETIMEDOUT', `${timeoutText} within ${timeout} ms`));
    const timer = timeout === undefined ? undefined : setTimeout(onTimeout, Math.min(timeout, MAX_TIMER_MS));
    promise.finally(done).then(resolve, reject);
  });
}
