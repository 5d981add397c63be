/** Counters of a device and of its queue pairs, named as in Linux where Linux has the counter. */
import type { Card } from '../../device/card.js';
import { counterNames } from '../../device/codes.js';

/** Counters by name, each a non-negative integer. */
export type Counters = Record<string, number>;

/** Reads the low 32 bits of a counter. @param at byte offset of all */
export function readCounter(card: Card, at: number, name: (typeof counterNames)[number]): number {
  return card.u32[(at >>> 2) + 2 * counterNames.indexOf(name)] as number;
}

/**
 * Reads counters from the card's memory.
 * @param at byte offset of the first; each is a u64, in the order of the names
 */
export function readCounters(card: Card, at: number): Counters {
  const values: Counters = {};
  // Two words each: a turn of the card's thread must not change them between the reads.
  card.exclusively(() => {
    for (const [i, name] of counterNames.entries()) {
      const word = (at >>> 2) + 2 * i;
      values[name] = (card.u32[word + 1] as number) * 2 ** 32 + (card.u32[word] as number);
    }
  });
  return values;
}
