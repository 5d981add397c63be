// Queue pair numbers: unpredictable, and not used again soon. A peer keeps the number of a connection that has ended
// for a while (timewait, IBTA 12.9.8.4), and refuses another connection of the same number as stale. Of numbers that
// are merely random, one in some thousand would be such a number where many connections come and go.

import { MULTICAST_QPN } from '../codes';
import { random32 } from '../host/random';
import { Table } from '../host/table';
import { RETIRED_QPNS } from '../memorymap';

/** Numbers that are remembered: those of some seconds of connections, as fast as a card can end them. */
const RETIRED: u32 = 4096;
/** Behind them: how many have been retired, modulo 2^32. */
const COUNT: usize = RETIRED_QPNS + ((<usize>RETIRED) << 2);

/** Returns a number that no queue pair has or had lately. 0 and 1 are those of the management queue pairs. */
export function newQpn(qps: Table): u32 {
  let qpn: u32;
  do qpn = random32() & 0xffffff;
  while (qpn < 2 || qpn == MULTICAST_QPN || qps.lookup(qpn) != 0 || isRetired(qpn));
  return qpn;
}

/** The queue pair of a number is destroyed. */
export function retireQpn(qpn: u32): void {
  let count = load<u32>(COUNT);
  store<u32>(RETIRED_QPNS + ((<usize>(count & (RETIRED - 1))) << 2), qpn);
  store<u32>(COUNT, count + 1);
}

/** Four at a time. Rows that are not used yet have 0, which is no number of a queue pair. */
function isRetired(qpn: u32): bool {
  let wanted = i32x4.splat(qpn);
  for (let at: usize = RETIRED_QPNS; at < COUNT; at += 16)
    if (v128.any_true(i32x4.eq(v128.load(at), wanted))) return true;
  return false;
}
