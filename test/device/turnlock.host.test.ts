// The lock and the wake-ups between the two threads of a device in mode worker.
import { once } from 'node:events';
import { setImmediate as tick } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { expect, test } from 'vitest';
import { TurnLock } from '../../src/device/turnlock.js';

/** Returns the TurnLocks of both threads, in this thread. */
function both(): { application: TurnLock; card: TurnLock } {
  const application = new TurnLock();
  return { application, card: new TurnLock(application.shared) };
}

test('a sleeping card thread is woken once, one that is awake not at all', () => {
  const { application, card } = both();
  expect([application.claimWakeup(), application.requestTurn()]).toEqual([false, false]);
  card.clearRequest();
  card.beginSleep();
  expect(card.hasRequest).toBe(false);
  expect([application.requestTurn(), application.requestTurn(), application.claimWakeup()]).toEqual([
    true,
    false,
    false,
  ]);
  card.endSleep();
  expect(application.claimWakeup()).toBe(false);
});

test('a request that comes while the card thread falls asleep is seen before the sleep', () => {
  const { application, card } = both();
  application.requestTurn();
  card.beginSleep();
  expect(card.hasRequest).toBe(true);
  card.endSleep();
  card.clearRequest();
  expect(card.hasRequest).toBe(false);
});

test('the application is notified once, until it has looked', () => {
  const { application, card } = both();
  expect([card.claimNotice(), card.claimNotice()]).toEqual([true, false]);
  application.clearNotice();
  expect([card.claimNotice(), card.claimNotice()]).toEqual([true, false]);
});

test('a stop wakes the card thread, and is not forgotten', () => {
  const { application, card } = both();
  card.beginSleep();
  expect(card.isStopping).toBe(false);
  expect(application.requestStop()).toBe(true);
  expect([card.isStopping, card.hasRequest]).toEqual([true, true]);
  expect(application.waitStopped(1)).toBe(false);
  card.markStopped();
  expect(application.waitStopped(1)).toBe(true);
  expect(application.failure).toBeUndefined();
});

test('a failure has its reason, of any length, and ends all waits', () => {
  const { application, card } = both();
  card.beginTurn();
  expect(application.hasFailed).toBe(false);
  card.markFailed(`out of bounds: ä${'x'.repeat(2000)}`);
  expect(application.hasFailed).toBe(true);
  expect(application.failure).toMatch(/^out of bounds: äx+$/);
  application.acquire();
  application.release();
  expect(application.waitStopped(1)).toBe(true);
});

/** Starts a thread that takes turns. Each turn adds one to the word. */
async function turner(application: TurnLock): Promise<{ words: Int32Array; stop(): Promise<number> }> {
  const sum = new SharedArrayBuffer(8);
  const worker = new Worker(new URL('./turner.mjs', import.meta.url), {
    execArgv: [],
    workerData: { shared: application.shared, sum },
  });
  await once(worker, 'message');
  const stop = async () => {
    const done = once(worker, 'message');
    application.requestStop();
    return (await done)[0] as number;
  };
  return { words: new Int32Array(sum), stop };
}

test('calls may be nested: no turn begins before the end of the outermost', async () => {
  const application = new TurnLock();
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

test('turns and calls of two threads never overlap, and both make progress', async () => {
  const application = new TurnLock();
  const { words, stop } = await turner(application);
  const CALLS = 20_000;
  for (let call = 0; call < CALLS; call++) {
    application.acquire();
    const before = words[0] as number;
    for (let i = 0; i < 50; i++) Atomics.load(words, 1);
    words[0] = before + 1;
    application.release();
    // let the other thread take turns
    if (call % 500 === 0) for (const sum = words[0]; words[0] === sum; ) await tick();
  }
  const turns = await stop();
  expect(words[0]).toBe(CALLS + turns);
  expect(turns).toBeGreaterThanOrEqual(CALLS / 500);
});
