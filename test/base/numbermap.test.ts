// Objects by number: as a Map, which has the same calls.
import { expect, test } from 'vitest';
import { NumberMap } from '../../src/base/numbermap.js';
import { Random } from '../kit/random.js';

test('a NumberMap behaves as a Map', () => {
  const random = new Random(20261125);
  const [map, expected] = [new NumberMap<{ n: number }>(), new Map<number, { n: number }>()];
  for (let n = 0; n < 20_000; n++) {
    const number = random.below(40);
    if (random.below(3) === 0) {
      map.delete(number);
      expected.delete(number);
    } else {
      const object = { n };
      map.set(number, object);
      expected.set(number, object);
    }
    expect(map.get(number)).toBe(expected.get(number));
    expect(map.size).toBe(expected.size);
    if (n % 100 === 0) expect([...map]).toEqual([...expected]);
  }
  expect([...map.values()]).toEqual([...expected.values()]);
  map.clear();
  expect([map.size, [...map]]).toEqual([0, []]);
});

test('add returns numbers that are never used again', () => {
  const map = new NumberMap<{ name: string }>();
  const [a, b] = [map.add({ name: 'a' }), map.add({ name: 'b' })];
  map.delete(a);
  const c = map.add({ name: 'c' });
  expect(new Set([a, b, c]).size).toBe(3);
  expect([...map].map(([number, { name }]) => [number, name])).toEqual([
    [b, 'b'],
    [c, 'c'],
  ]);
});

test('objects may be removed during an iteration', () => {
  const map = new NumberMap<{ n: number }>();
  const numbers = Array.from({ length: 10 }, (_, n) => map.add({ n }));
  const visited: number[] = [];
  for (const [number, { n }] of map) {
    visited.push(n);
    map.delete(number);
    map.delete(numbers[n + 1] as number);
  }
  expect(visited).toEqual([0, 2, 4, 6, 8]);
});
