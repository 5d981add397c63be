/** Counters of a device and of its queue pairs, under Linux' names where Linux has one. */
import type { Card } from '../device/card.js';
import { counterNames } from '../device/codes.js';

export type Counters = Record<string, number>;

/** @param at where the card keeps them: u64 each, in the order of the names */
export function readCounters(card: Card, at: number): Counters {
  const values: Counters = {};
  // Two words each, that a turn in another thread must not change in between.
  card.exclusively(() => {
    for (const [i, name] of counterNames.entries()) {
      const word = (at >>> 2) + 2 * i;
      values[name] = (card.u32[word + 1] as number) * 2 ** 32 + (card.u32[word] as number);
    }
  });
  return values;
}
