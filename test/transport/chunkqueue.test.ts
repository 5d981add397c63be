import { expect, test } from 'vitest';
import { ChunkQueue } from '../../src/transport/pools/chunkqueue.js';

const bytesOf = (queue: ChunkQueue, ...sizes: number[]) =>
  sizes.map((size) => Buffer.from(queue.take(size)).toString());

test('take returns the bytes in the order in which chunks were pushed, whatever the sizes', () => {
  const queue = new ChunkQueue();
  for (const text of ['ab', '', 'cdef', 'g']) queue.push(Buffer.from(text));
  expect(queue.bytes).toBe(7);
  expect(bytesOf(queue, 1, 3, 0)).toEqual(['a', 'bcd', '']);
  queue.push(Buffer.from('hi'));
  expect(queue.bytes).toBe(5);
  expect(bytesOf(queue, 1, 100, 1)).toEqual(['e', 'fghi', '']);
  expect(queue.bytes).toBe(0);
});

test('take copies no bytes of a single chunk', () => {
  const queue = new ChunkQueue();
  const chunk = Buffer.from('abcdef');
  queue.push(chunk);
  const parts = [queue.take(2), queue.take(10)];
  expect(parts.map(({ buffer, byteOffset }) => [buffer, byteOffset - chunk.byteOffset])).toEqual([
    [chunk.buffer, 0],
    [chunk.buffer, 2],
  ]);
});

test('a million chunks are taken in linear time', () => {
  const queue = new ChunkQueue();
  const chunk = Buffer.from('x');
  for (let i = 0; i < 1_000_000; i++) queue.push(chunk);
  let taken = 0;
  while (queue.bytes > 0) taken += queue.take(3).length;
  expect(taken).toBe(1_000_000);
});

test('clear discards what waits', () => {
  const queue = new ChunkQueue();
  queue.push(Buffer.from('abc'));
  queue.clear();
  queue.push(Buffer.from('de'));
  expect([queue.bytes, ...bytesOf(queue, 9)]).toEqual([2, 'de']);
});
