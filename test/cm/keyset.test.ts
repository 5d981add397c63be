/** A set of keys beside one of the language. */
import { expect, test } from 'vitest';
import { KeySet } from '../../src/cm/keyset.js';
import { Random } from '../kit/random.js';

test('a KeySet has the same keys as a Set after random changes', () => {
  const random = new Random(7);
  for (const capacity of [1, 3, 64]) {
    const keys = new KeySet(capacity);
    const known = new Set<number>();
    // few different keys, so that they meet, with bits above and below the 32nd
    const pick = () => random.below(3 * capacity) * 2 ** random.pick([0, 20, 40]);
    for (let i = 0; i < 20_000; i++) {
      const key = pick();
      if (known.size < capacity && random.below(2) === 0) {
        expect(keys.add(key)).toBe(!known.has(key));
        known.add(key);
      } else {
        keys.delete(key);
        known.delete(key);
      }
    }
    for (const key of known) expect(keys.add(key)).toBe(false);
  }
});

test('a full set finds every key that it has, and no other', () => {
  const keys = new KeySet(1000);
  for (let key = 0; key < 1000; key++) expect(keys.add(key * 2 ** 32 + 5)).toBe(true);
  for (let key = 0; key < 1000; key++) expect(keys.add(key * 2 ** 32 + 5)).toBe(false);
  for (let key = 0; key < 1000; key += 2) keys.delete(key * 2 ** 32 + 5);
  for (let key = 0; key < 1000; key++) expect(keys.add(key * 2 ** 32 + 5)).toBe(key % 2 === 0);
});
