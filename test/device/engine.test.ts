// The engine takes turns while there is work, sleeps when there is none, and does not starve the event loop.
import { setImmediate as tick } from 'node:timers/promises';
import { beforeEach, expect, test } from 'vitest';
import { InlineEngine } from '../../src/device/inline.js';
import { StubCard, StubLink } from './stubs.js';

let card: StubCard;
let link: StubLink;
let engine: InlineEngine;
/** The engine's clock. The test advances it, so that a pause of this machine does not count as duration of a turn. */
let ns: number;
const lastWait = () => link.waits.at(-1);

beforeEach(async () => {
  card = new StubCard();
  link = new StubLink();
  link.drain = () => card.drain();
  engine = new InlineEngine(card.card, link);
  ns = 1e9;
  engine.now = () => ns;
  await tick();
  card.turns = 0;
});

test('several posts take one turn, before the event loop goes on', async () => {
  card.work = 1;
  engine.schedule();
  engine.schedule();
  engine.schedule();
  expect(card.turns).toBe(0);
  await Promise.resolve();
  expect(card.turns).toBe(2); // one that moved a frame, one that was idle
  expect(link.sent).toBe(1);
});

test('a poll takes one turn at once', () => {
  card.work = 3;
  engine.poll();
  expect(card.turns).toBe(1);
  expect(link.sent).toBe(1);
});

test('an idle device sleeps until the earlier of the two deadlines', async () => {
  card.deadline = 5e9;
  link.deadline = 4e9;
  engine.schedule();
  await tick();
  expect(lastWait()).toMatchObject({ deadline: 4e9, keepAlive: false });
});

test('a post does not ask the link for frames, unless a deadline has passed: then received frames count first', async () => {
  const asked: string[] = [];
  link.receive = () => {
    asked.push('receive');
    return 0;
  };
  card.exports.expire = () => asked.push('expire');
  engine.schedule();
  await Promise.resolve();
  expect(asked).toEqual(['expire']);
  await tick();
  asked.length = 0;
  card.deadline = 1;
  engine.schedule();
  await Promise.resolve();
  expect(asked).toEqual(['receive', 'expire']);
});

test('a sleep that ends early enough is not changed', async () => {
  card.deadline = 5e9;
  engine.schedule();
  await tick();
  const count = link.waits.length;
  card.deadline = 6e9;
  engine.schedule();
  await tick();
  expect(link.waits.length).toBe(count);
  card.deadline = 3e9;
  engine.schedule();
  await tick();
  expect(lastWait()?.deadline).toBe(3e9);
});

test('an engine keeps the process running while someone has a reference to it', async () => {
  engine.schedule();
  await tick();
  engine.ref();
  await tick();
  expect(lastWait()?.keepAlive).toBe(true);
  engine.ref();
  engine.unref();
  await tick();
  expect(lastWait()?.keepAlive).toBe(true);
  engine.unref();
  await tick();
  expect(lastWait()?.keepAlive).toBe(false);
});

test('a wake-up takes turns, then the engine sleeps again', async () => {
  engine.schedule();
  await tick();
  card.work = 2;
  lastWait()?.wake();
  expect(link.sent).toBe(2);
  expect(link.waits.length).toBe(2);
});

test('frames that the link refuses are sent again soon, without a busy loop', async () => {
  link.takes = false;
  card.work = 1;
  engine.schedule();
  await tick();
  expect(card.turns).toBeLessThan(5);
  const wait = lastWait();
  expect(wait?.deadline).toBeGreaterThan(engine.now() - 1e9);
  expect(wait?.deadline).toBeLessThan(engine.now() + 1e6);
  link.takes = true;
  wait?.wake();
  expect(link.sent).toBe(1);
});

/** Makes each send of the link take this long. */
function slow(us: number): void {
  link.send = () => {
    ns += us * 1000;
    return StubLink.prototype.send.call(link);
  };
}

test('an engine that always has work leaves turns to the event loop', async () => {
  slow(100);
  card.work = Number.POSITIVE_INFINITY;
  engine.schedule();
  // otherwise the test would never get here
  for (let ticks = 0; ticks < 5; ticks++) {
    const { turns } = card;
    await tick();
    if (ticks > 0) expect(card.turns).toBeGreaterThan(turns);
  }
  card.work = 0;
});

test('a wake-up while a batch waits in the event loop adds no second one', async () => {
  engine.schedule();
  await tick();
  const wait = lastWait();
  slow(600);
  card.work = Number.POSITIVE_INFINITY;
  engine.schedule();
  await Promise.resolve();
  for (let wakes = 0; wakes < 3; wakes++) wait?.wake();
  await tick();
  for (let ticks = 0; ticks < 3; ticks++) {
    const { turns } = card;
    await tick();
    expect(card.turns - turns).toBe(1);
  }
  card.work = 0;
});

test('a chain of microtasks that always has work leaves turns to the event loop', async () => {
  let inLoop = false;
  setImmediate(() => {
    inLoop = true;
  });
  for (let i = 0; i < 1e6 && !inLoop; i++) {
    const turns = card.turns;
    card.work = 1;
    engine.schedule();
    // Only microtasks, until the engine no longer runs in one.
    for (let j = 0; j < 4 && card.turns === turns; j++) await Promise.resolve();
    if (card.turns === turns) await tick();
  }
  expect(inLoop).toBe(true);
});

test('an event of the card is dispatched once, also from inside a handler that polls', () => {
  const told: [number, number][] = [];
  engine.onEvent = (type, handle) => {
    told.push([type, handle]);
    engine.poll();
  };
  card.events = [
    [1, 100],
    [4, 200],
  ];
  engine.poll();
  expect(told).toEqual([
    [1, 100],
    [4, 200],
  ]);
});

test('close sends what is ready, however long that takes, and nothing moves afterwards', () => {
  card.work = 3;
  slow(300);
  engine.close();
  expect(link.sent).toBe(3);
  expect(link.closed).toBe(true);
  card.work = 1;
  expect(engine.turn()).toBe(false);
  engine.close();
});
