// What the two threads of a device in worker mode say to each other.
import { once } from 'node:events';
import { setImmediate as tick } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { expect, test } from 'vitest';
import { Threads } from '../../src/device/threads.js';

/** Both ends, in this thread. */
function both(): { application: Threads; card: Threads } {
  const application = new Threads();
  return { application, card: new Threads(application.shared) };
}

test('who sleeps is woken once, and who is awake not at all', () => {
  const { application, card } = both();
  expect([application.rouse(), application.ask()]).toEqual([false, false]);
  card.answer();
  card.fallAsleep();
  expect(card.isAsked).toBe(false);
  expect([application.ask(), application.ask(), application.rouse()]).toEqual([true, false, false]);
  card.wakeUp();
  expect(application.rouse()).toBe(false);
});

test('what was asked for while falling asleep is seen before the sleep', () => {
  const { application, card } = both();
  application.ask();
  card.fallAsleep();
  expect(card.isAsked).toBe(true);
  card.wakeUp();
  card.answer();
  expect(card.isAsked).toBe(false);
});

test('the application is told once, until it has looked', () => {
  const { application, card } = both();
  expect([card.tell(), card.tell()]).toEqual([true, false]);
  application.looked();
  expect([card.tell(), card.tell()]).toEqual([true, false]);
});

test('stopping wakes, and is not forgotten', () => {
  const { application, card } = both();
  card.fallAsleep();
  expect(card.isToStop).toBe(false);
  expect(application.stop()).toBe(true);
  expect([card.isToStop, card.isAsked]).toEqual([true, true]);
  expect(application.hasStopped(1)).toBe(false);
  card.stopped();
  expect(application.hasStopped(1)).toBe(true);
  expect(application.failure).toBeUndefined();
});

test('a failure says why, at any length, and keeps nobody waiting', () => {
  const { application, card } = both();
  card.enter();
  expect(application.hasFailed).toBe(false);
  card.failed(`out of bounds: ä${'x'.repeat(2000)}`);
  expect(application.hasFailed).toBe(true);
  expect(application.failure).toMatch(/^out of bounds: äx+$/);
  application.acquire();
  application.release();
  expect(application.hasStopped(1)).toBe(true);
});

/** A thread that takes turns, each of which adds one to the word. */
async function turner(application: Threads): Promise<{ words: Int32Array; stop(): Promise<number> }> {
  const sum = new SharedArrayBuffer(8);
  const worker = new Worker(new URL('./turner.mjs', import.meta.url), {
    execArgv: [],
    workerData: { shared: application.shared, sum },
  });
  await once(worker, 'message');
  const stop = async () => {
    const done = once(worker, 'message');
    application.stop();
    return (await done)[0] as number;
  };
  return { words: new Int32Array(sum), stop };
}

test('calls may be nested: no turn before the end of the outermost', async () => {
  const application = new Threads();
  application.acquire();
  application.acquire();
  application.release();
  const { words, stop } = await turner(application);
  await new Promise((resolve) => setTimeout(resolve, 20));
  expect(words[0]).toBe(0);
  application.release();
  while (words[0] === 0) await tick();
  await stop();
});

test('turns and calls of two threads never meet, and both get on', async () => {
  const application = new Threads();
  const { words, stop } = await turner(application);
  const CALLS = 20_000;
  for (let call = 0; call < CALLS; call++) {
    application.acquire();
    const before = words[0] as number;
    for (let i = 0; i < 50; i++) Atomics.load(words, 1);
    words[0] = before + 1;
    application.release();
    // the other gets its turns
    if (call % 500 === 0) for (const sum = words[0]; words[0] === sum; ) await tick();
  }
  const turns = await stop();
  expect(words[0]).toBe(CALLS + turns);
  expect(turns).toBeGreaterThanOrEqual(CALLS / 500);
});
