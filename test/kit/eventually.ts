/** Waits for a condition, in the time of the test: virtual in project `unit`, real elsewhere. */

/** Milliseconds between two attempts. */
const INTERVAL = 1;
/** Milliseconds after which a condition is not expected any more: many times what it takes on a quiet machine. */
const LIMIT = 20_000;

/**
 * Calls a function until it does not throw.
 * @param check mostly an `expect`
 * @returns the result of the function
 * @throws the last error of the function, after 20 seconds
 */
export async function eventually<T>(check: () => T | Promise<T>): Promise<T> {
  const end = performance.now() + LIMIT;
  for (;;) {
    try {
      return await check();
    } catch (error) {
      if (performance.now() >= end) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, INTERVAL));
  }
}
