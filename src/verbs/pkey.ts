/** The table of P_Keys: the partitions that the port is a member of (InfiniBand specification 10.9). */
import type { Card } from '../device/card.js';
import { checkInteger, show } from './check.js';

/** Entries that the card's table has. */
const MOST = 128;

/**
 * Gives the card its table.
 * @throws TypeError, RangeError for what is no list of 1 to 128 P_Keys of 16 bits, or names partition 0
 */
export function writePkeys(card: Card, pkeys: readonly number[]): readonly number[] {
  if (!Array.isArray(pkeys)) throw new TypeError(`pkeys is ${show(pkeys)}, must be an array of numbers`);
  checkInteger('the number of pkeys', pkeys.length, 1, MOST);
  const at = card.exports.scratch() >>> 2;
  for (const [i, pkey] of pkeys.entries()) {
    card.u32[at + i] = checkInteger(`pkeys[${i}]`, pkey, 1, 0xffff);
    if ((pkey & 0x7fff) === 0) throw new RangeError(`pkeys[${i}] is ${pkey}, which names partition 0: there is none`);
  }
  card.exports.setPkeys(pkeys.length);
  return [...pkeys];
}
