// How often a message that waits for a receive WQE is sent again. The RNR timer is a minimum (IBTA 9.7.5.2.8), often
// well below a millisecond, and a consumer may take seconds. Both ends therefore lengthen the wait to a share of the
// time that the message has waited already: it is late by no more than that share, and thousands of such messages cost
// little. A requester that has a limited number of retries is not concerned: the user reckons with their time.
import { Card } from '../host/card';
import { rnrDelay } from '../wire/aeth';
import { Qp } from './qp';

const SHARE: u64 = 4;
/** The longest wait that is not asked for is 41 ms, and the code of that. */
const LONGEST: u64 = 40_960_000;
const LONGEST_CODE: u32 = 24;
/** RNR NAKs after which a requester with a limited number of retries has failed: the largest limit is 6. */
const MOST_LIMITED: u32 = 7;

function patience(since: u64): u64 {
  return min((Card.get().now - since) / SHARE, LONGEST);
}

/** Returns how long the requester waits after an RNR NAK. @param since when the first one for the message came */
export function rnrWait(code: u32, since: u64): u64 {
  return max(rnrDelay(code), patience(since));
}

/** Returns the timer code of the responder's next RNR NAK: that of the queue pair, or a longer one. */
export function nextRnrCode(qp: Qp): u32 {
  let code = qp.minRnrTimer;
  if (qp.rnrNaks == 0) qp.rnrNakSince = Card.get().now;
  if (qp.rnrNaks++ < MOST_LIMITED || code == 0) return code;
  let longest = patience(qp.rnrNakSince);
  while (code < LONGEST_CODE && rnrDelay(code + 1) <= longest) code++;
  return code;
}
