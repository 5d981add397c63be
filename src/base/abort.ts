/** Listeners of abort signals. */
import { nextTick } from './timers.js';

const NOTHING = (): void => {};

/**
 * Calls a function when a signal is aborted; in the next tick if it is already. A signal often outlives what it ends,
 * so the listener must not stay with it.
 * @param signal may be absent
 * @returns ends this: the function is not called any more, and the signal has no listener of it
 */
export function whenAborted(signal: AbortSignal | undefined, call: () => void): () => void {
  if (signal === undefined) return NOTHING;
  let isWanted = true;
  const abort = () => {
    if (isWanted) call();
  };
  if (signal.aborted) nextTick(abort);
  else signal.addEventListener('abort', abort, { once: true });
  return () => {
    isWanted = false;
    signal.removeEventListener('abort', abort);
  };
}
