// The partitions that the port is a member of (IBTA 10.9): bit 15 of a P_Key says full member, the rest names the partition.
import { PKEYS } from '../limits';

/** | count u32 | entries u16 |, at least one entry */
const MOST: u32 = 128;

/** The default partition, full member (IBTA 10.9.1). */
export function initPkeys(): void {
  store<u32>(PKEYS, 1);
  store<u16>(PKEYS + 4, 0xffff);
}

/** Takes over `count` P_Keys, u32 each, at `from`; false when they are none, too many, or one names no partition. */
export function setPkeyTable(from: usize, count: u32): bool {
  if (count == 0 || count > MOST) return false;
  for (let i: usize = 0; i < count; i++) {
    let pkey = load<u32>(from + (i << 2));
    if (pkey > 0xffff || (pkey & 0x7fff) == 0) return false;
  }
  for (let i: usize = 0; i < count; i++) store<u16>(PKEYS + 4 + (i << 1), load<u32>(from + (i << 2)));
  store<u32>(PKEYS, count);
  return true;
}

/** The P_Key at `index`, or 0 when the table is shorter. */
export function pkeyAt(index: u32): u32 {
  return index < load<u32>(PKEYS) ? load<u16>(PKEYS + 4 + ((<usize>index) << 1)) : 0;
}
