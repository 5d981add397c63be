// The clock of project `unit` between two files of one process.
import { expect, test, vi } from 'vitest';
import { restartClock } from './virtualclock.js';

test('a clock that begins again has no earlier timers', async () => {
  const left = vi.fn();
  setTimeout(left, 5);
  setInterval(left, 1);
  const begun = performance.now();
  await new Promise((resolve) => setTimeout(resolve, 2));
  expect(left).toHaveBeenCalledTimes(2);
  restartClock();
  expect(performance.now()).toBeLessThanOrEqual(begun);
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect(left).toHaveBeenCalledTimes(2);
});
