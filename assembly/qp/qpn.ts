// Queue pair numbers: unpredictable, and not used again soon. A peer keeps the number of a connection that has ended
// for a while (timewait, IBTA 12.9.8.4), and refuses another connection of the same number as stale. Of numbers that
// are merely random, one in some thousand would be such a number where many connections come and go.

import { MULTICAST_QPN } from '../codes';
import { Card } from '../host/card';
import { random32 } from '../host/random';
import { RETIRED_QPNS } from '../memorymap';

/** A queue pair number has 24 bits. */
const ALL: u32 = 0xffffff;
/** At least so many numbers for each queue pair. */
const SPARE: u32 = 4;
/** Numbers that are remembered: those of some seconds of connections, as fast as a card can end them. */
const RETIRED: u32 = 4096;
/** Behind them: how many have been retired, modulo 2^32. */
const COUNT: usize = RETIRED_QPNS + ((<usize>RETIRED) << 2);

/**
 * Numbers are `bits` in the bits of `mask` from now on. Returns false if the mask leaves too few for the queue pairs
 * that a card may have: they must stay hard to guess.
 */
export function setQpnBits(card: Card, mask: u32, bits: u32): bool {
  if ((mask & ~ALL) != 0 || (bits & ~mask) != 0 || (<u32>1) << (24 - popcnt(mask)) < card.qps.limit * SPARE)
    return false;
  card.qpnMask = mask;
  card.qpnBits = bits;
  return true;
}

/** Returns a number that no queue pair has or had lately. 0 and 1 are those of the management queue pairs. */
export function newQpn(card: Card): u32 {
  let qpn: u32;
  do qpn = (random32() & ALL & ~card.qpnMask) | card.qpnBits;
  while (qpn < 2 || qpn == MULTICAST_QPN || card.qps.lookup(qpn) != 0 || isRetired(qpn));
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
