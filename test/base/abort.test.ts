import { getEventListeners } from 'node:events';
import { expect, test } from 'vitest';
import { whenAborted } from '../../src/base/abort.js';

const tick = () => new Promise<void>((resolve) => process.nextTick(resolve));

test('a signal that is aborted calls the function once, in the next tick if it was aborted before', async () => {
  let calls = 0;
  const controller = new AbortController();
  whenAborted(controller.signal, () => calls++);
  controller.abort();
  expect(calls).toBe(1);
  whenAborted(controller.signal, () => calls++);
  expect(calls).toBe(1);
  await tick();
  expect(calls).toBe(2);
});

test('a function that is forgotten is not called, and the signal has no listener', async () => {
  let calls = 0;
  const controller = new AbortController();
  whenAborted(controller.signal, () => calls++)();
  expect(getEventListeners(controller.signal, 'abort')).toHaveLength(0);
  controller.abort();
  whenAborted(controller.signal, () => calls++)();
  whenAborted(undefined, () => calls++)();
  await tick();
  expect(calls).toBe(0);
});
