/** The shares of sources in a bounded queue. */
import { expect, test } from 'vitest';
import { FairQueue } from '../../src/cm/fairqueue.js';

const HONEST = 1;
const ATTACKER = 2;

function drain<T>(queue: FairQueue<T>): T[] {
  const taken: T[] = [];
  for (let item = queue.take(); item !== undefined; item = queue.take()) taken.push(item);
  return taken;
}

test('messages of one source are served in the order of arrival', () => {
  const queue = new FairQueue<number>(4);
  expect([1, 2, 3].map((item) => queue.add([HONEST, 7], item))).toEqual([undefined, undefined, undefined]);
  expect(queue.size).toBe(3);
  expect(drain(queue)).toEqual([1, 2, 3]);
  expect(queue.size).toBe(0);
});

test('neighbours take turns, and so do the addresses behind a neighbour', () => {
  const queue = new FairQueue<string>(16);
  for (const item of ['a1', 'a2', 'a3']) queue.add([1, 10], item);
  for (const item of ['b1', 'b2']) queue.add([1, 11], item);
  queue.add([2, 10], 'c1');
  expect(drain(queue)).toEqual(['a1', 'c1', 'b1', 'a2', 'b2', 'a3']);
});

test('a full queue drops the newest message of the busiest neighbour', () => {
  const queue = new FairQueue<number>(4);
  for (let item = 0; item < 4; item++) queue.add([ATTACKER, 66], item);
  expect(queue.add([ATTACKER, 66], 4)).toBe(4);
  expect(queue.add([HONEST, 7], 100)).toBe(3);
  expect(queue.add([ATTACKER, 66], 5)).toBe(5);
  expect(drain(queue)).toEqual([0, 100, 1, 2]);
});

test('a neighbour that invents addresses does not reduce the share of others', () => {
  const queue = new FairQueue<number>(64);
  for (let item = 0; item < 10_000; item++) queue.add([ATTACKER, item], item);
  const lost = Array.from({ length: 10 }, (_, i) => queue.add([HONEST, 7], 100_000 + i));
  expect(lost.every((item) => item !== undefined && item < 10_000)).toBe(true);
  expect(queue.size).toBe(64);
  expect(
    drain(queue)
      .slice(0, 20)
      .filter((item) => item >= 100_000),
  ).toHaveLength(10);
});

test('an address behind a router has its share beside one that floods', () => {
  const queue = new FairQueue<number>(8);
  for (let item = 0; item < 100; item++) queue.add([1, 66], item);
  expect(queue.add([1, 7], 1000)).toBe(7);
  expect(drain(queue).slice(0, 2)).toEqual([0, 1000]);
});

test('a host has its share beside others of its network', () => {
  const queue = new FairQueue<number>(8);
  for (let item = 0; item < 100; item++) queue.add([0, 64, 66], item);
  expect(queue.add([0, 64, 7], 1000)).toBe(7);
  expect(queue.add([0, 64, 66], 100)).toBe(100);
  expect(drain(queue).slice(0, 2)).toEqual([0, 1000]);
  // and a network has it, however many hosts another one has
  for (let item = 0; item < 100; item++) queue.add([0, 64, item], item);
  for (let item = 1000; item < 1003; item++) expect(queue.add([0, 65, 7], item)).toBeLessThan(100);
  expect(drain(queue).filter((item) => item >= 1000)).toEqual([1000, 1001, 1002]);
});

test('no message is lost or served twice in a long random run', () => {
  const queue = new FairQueue<number>(16);
  const waiting = new Set<number>();
  let random = 1;
  for (let item = 0; item < 20_000; item++) {
    random = (Math.imul(random, 1103515245) + 12345) >>> 0;
    waiting.add(item);
    const lost = queue.add([(random >>> 8) % 5, (random >>> 16) % 7, (random >>> 24) % 3], item);
    if (lost !== undefined) expect(waiting.delete(lost)).toBe(true);
    if (random % 3 === 0) expect(waiting.delete(queue.take() as number)).toBe(true);
    expect(queue.size).toBe(waiting.size);
  }
  expect(new Set(drain(queue))).toEqual(waiting);
});
