// A soak finds leaks, and takes nothing else for one.
import { expect, test } from 'vitest';
import { leaks, type Resources } from './tally.js';

const before: Resources = {
  'queue pairs': 1,
  'rdma_cm connections': 0,
  'card memory, free bytes': 2 ** 27,
  'file descriptors': 50,
  threads: 12,
  timers: 3,
  'heap, bytes': 2 ** 24,
  'buffers, bytes': 2 ** 17,
  'resident memory, bytes': 2 ** 27,
};

test('counts must be the same or lower, and memory has a margin', () => {
  expect(leaks(before, before)).toEqual([]);
  expect(leaks(before, { ...before, timers: 2, 'heap, bytes': before['heap, bytes'] + 2 ** 20 })).toEqual([]);
  const more = { timers: 4, 'file descriptors': 51, 'heap, bytes': before['heap, bytes'] + 2 ** 23 };
  expect(leaks(before, { ...before, ...more })).toEqual(['file descriptors', 'timers', 'heap, bytes']);
});

test('free memory must not become less', () => {
  const free = (bytes: number) => leaks(before, { ...before, 'card memory, free bytes': 2 ** 27 + bytes });
  expect([free(2 ** 20), free(-(2 ** 20))]).toEqual([[], ['card memory, free bytes']]);
});
