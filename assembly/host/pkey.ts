// The P_Key table of the port (IBTA 10.9): bit 15 of a P_Key means full member, the other bits are the partition
// number.
import { PKEYS } from '../memorymap';

/** | count u32 | entries u16 |, at least one entry */
const MAX_PKEYS: u32 = 128;

/** The default partition, full member (IBTA 10.9.1). */
export function initPkeys(): void {
  store<u32>(PKEYS, 1);
  store<u16>(PKEYS + 4, 0xffff);
}

/**
 * Copies `count` P_Keys, u32 each, from `from`; false when there are none, too many, or one has no partition number.
 */
export function setPkeyTable(from: usize, count: u32): bool {
  if (count == 0 || count > MAX_PKEYS) return false;
  for (let i: usize = 0; i < count; i++) {
    let pkey = load<u32>(from + (i << 2));
    if (pkey > 0xffff || (pkey & 0x7fff) == 0) return false;
  }
  for (let i: usize = 0; i < count; i++) store<u16>(PKEYS + 4 + (i << 1), load<u32>(from + (i << 2)));
  store<u32>(PKEYS, count);
  return true;
}

/** No P_Key of the table matches. */
export const NO_PKEY: u32 = 0xffff;

/** Same partition, and at least one of the two a full member (IBTA 10.9.3). */
export function doPkeysMatch(a: u32, b: u32): bool {
  return ((a ^ b) & 0x7fff) == 0 && (a & 0x7fff) != 0 && ((a | b) & 0x8000) != 0;
}

/** Returns the index of the first P_Key that matches, or NO_PKEY. */
export function matchingPkeyIndex(pkey: u32): u32 {
  let count = load<u32>(PKEYS);
  for (let i: u32 = 0; i < count; i++) if (doPkeysMatch(pkey, pkeyAt(i))) return i;
  return NO_PKEY;
}

/** Returns the P_Key at `index`, or 0 beyond the end of the table. */
export function pkeyAt(index: u32): u32 {
  return index < load<u32>(PKEYS) ? load<u16>(PKEYS + 4 + ((<usize>index) << 1)) : 0;
}
