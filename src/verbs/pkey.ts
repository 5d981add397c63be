/** The P_Key table: the partitions that the port is a member of (IBTA 10.9). */

import { checkInteger, show } from '../base/options.js';
import type { Card } from '../device/card.js';
import { invalidType, outOfRange } from '../errors.js';

/** Entries of the card's table. */
const MAX_PKEYS = 128;

/**
 * Writes the P_Key table to the card.
 * @param pkeys 1 to 128 P_Keys of 16 bits; bit 15 = full member
 * @returns the table
 * @throws TypeError when it is no array of integers; RangeError for a wrong number of P_Keys, a wrong P_Key or
 * partition 0
 */
export function writePkeys(card: Card, pkeys: readonly number[]): readonly number[] {
  if (!Array.isArray(pkeys)) throw invalidType(`pkeys is ${show(pkeys)}, must be an array of numbers`);
  checkInteger('the number of pkeys', pkeys.length, 1, MAX_PKEYS);
  const at = card.exports.scratch() >>> 2;
  for (const [i, pkey] of pkeys.entries()) {
    card.u32[at + i] = checkInteger(`pkeys[${i}]`, pkey, 1, 0xffff);
    if ((pkey & 0x7fff) === 0) throw outOfRange(`pkeys[${i}] is ${pkey}, must not name partition 0`);
  }
  card.exports.setPkeys(pkeys.length);
  return [...pkeys];
}
