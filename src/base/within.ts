/** Waiting for a promise for a limited time. */
import { clearInterval, setInterval } from './timers.js';

/** Turns of the event loop in the time of a wait. */
const TURNS = 20;

/**
 * Waits until a promise is fulfilled or a time is over. The wait counts turns of the event loop: a process that was
 * held up for longer, as in a virtual machine that pauses, reads what has arrived meanwhile before the wait ends.
 * @param ms the time in milliseconds, if the process is not held up
 * @returns false if the time is over
 * @throws the error of the promise
 */
export async function within(ms: number, promise: Promise<void>): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<false>((resolve) => {
    let left = TURNS;
    timer = setInterval(() => {
      if (--left === 0) resolve(false);
    }, ms / TURNS);
  });
  try {
    return await Promise.race([promise.then(() => true), late]);
  } finally {
    clearInterval(timer);
  }
}
