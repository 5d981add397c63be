/** Waiting that ends. */

/** Turns of the event loop that a wait has, in its time. */
const TURNS = 20;

/**
 * Waits for a promise, but no longer than some time. That is the time of a process that runs: one that was held up for
 * longer, as in a virtual machine that pauses, still takes what has arrived meanwhile.
 * @param ms the time in milliseconds
 * @throws what the promise is rejected with
 */
export async function within(ms: number, promise: Promise<void>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((resolve) => {
    let left = TURNS;
    timer = setInterval(() => {
      if (--left === 0) resolve();
    }, ms / TURNS);
  });
  try {
    await Promise.race([promise, late]);
  } finally {
    clearInterval(timer);
  }
}
