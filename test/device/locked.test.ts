// Which calls of the card may run during a turn in another thread.
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { Card } from '../../src/device/card.js';
import { LOCK_FREE, type Lock } from '../../src/device/locked.js';

class Log implements Lock {
  readonly calls: string[] = [];
  hasFailed = false;
  acquire(): void {
    this.calls.push('acquire');
  }
  release(): void {
    this.calls.push('release');
  }
}

const open = (lock: Lock) => Card.create({ memoryBytes: 2 ** 24, seed: new Uint8Array(32), maxQp: 16 }, lock);

test('lock-free calls are those of posting.ts, and those that read constants or data of the caller', () => {
  const source = readFileSync(new URL('../../assembly/posting.ts', import.meta.url), 'utf8');
  const posting = [...source.matchAll(/^export function (\w+)/gm)].map(([, name]) => name as string);
  const others = [...LOCK_FREE].filter((name) => !posting.includes(name));
  expect(posting.filter((name) => !LOCK_FREE.has(name as never))).toEqual([]);
  expect(others.sort()).toEqual(
    [
      'counters',
      'fastLkey',
      'lastErrno',
      'mrLkey',
      'mrRkey',
      'qpCounters',
      'qpNumber',
      'qpState',
      'randomPsn',
      'rxRing',
      'scratch',
      'txRing',
    ].sort(),
  );
});

test('the other calls hold the lock, also when they throw', async () => {
  const log = new Log();
  const card = await open(log);
  log.calls.length = 0;
  const cq = card.exports.cqCreate(4);
  expect(log.calls).toEqual(['acquire', 'release']);
  card.exports.cqArm(cq, false);
  expect([card.exports.cqPeek(cq), card.exports.isDoorbellRung(), card.exports.scratch() > 0]).toEqual([
    0,
    false,
    true,
  ]);
  expect(log.calls).toEqual(['acquire', 'release']);
  expect(() => card.exports.cqDestroy(0xfffffff0)).toThrow(WebAssembly.RuntimeError);
  expect(log.calls).toEqual(['acquire', 'release', 'acquire', 'release']);
  expect(() =>
    card.exclusively(() => {
      throw new Error('inside');
    }),
  ).toThrow('inside');
  expect(log.calls.slice(4)).toEqual(['acquire', 'release']);
});

test('a card whose thread has failed is not called any more', async () => {
  const log = new Log();
  const card = await open(log);
  const cq = card.exports.cqCreate(4);
  log.hasFailed = true;
  log.calls.length = 0;
  expect(card.exports.cqDestroy(cq)).toBe(0);
  expect(log.calls).toEqual([]);
  log.hasFailed = false;
  expect(card.exports.cqDestroy(cq)).toBe(0);
});

test('names, codes and limits are the same on a locked card', async () => {
  const plain = await Card.create({ memoryBytes: 2 ** 24, seed: new Uint8Array(32), maxQp: 16 });
  const card = await open(new Log());
  expect(card.exports.WcStatus).toBe(card.exports.WcStatus);
  expect(card.exports.WcStatus.SUCCESS).toBe(plain.exports.WcStatus.SUCCESS);
  expect(card.exports.MAX_WR.value).toBe(plain.exports.MAX_WR.value);
});
