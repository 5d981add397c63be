/** In real time: a process that is held up. */
import { setImmediate as turn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { within } from '../../src/base/within.js';

test('a process that was held up still gets a value that has arrived meanwhile', async () => {
  let isDone = false;
  const arrives = async () => {
    for (let n = 0; n < 3; n++) await turn();
    isDone = true;
  };
  const waiting = within(100, arrives());
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 300);
  expect(await waiting).toBe(true);
  expect(isDone).toBe(true);
});

test('within returns false after its time when the promise does not settle', async () => {
  expect(await within(20, new Promise(() => {}))).toBe(false);
});

test('within passes a rejection on', async () => {
  await expect(within(1000, Promise.reject(new Error('no')))).rejects.toThrow('no');
});
