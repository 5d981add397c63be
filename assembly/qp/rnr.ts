// Repetition of a message that waits for a receive WQE. The RNR timer is a minimum (IBTA 9.7.5.2.8), often
// well below a millisecond, and a consumer may take seconds. Both ends therefore lengthen the wait to a share of the
// time that the message has waited already: it is late by no more than that share, and thousands of such messages cost
// little. A requester that has a limited number of retries is not concerned: the user reckons with their time.
import { EventType } from '../codes';
import { Card } from '../host/card';
import { rnrDelay } from '../wire/aeth';
import { Qp } from './qp';

const SHARE: u64 = 4;
/** The longest wait that is not asked for is 41 ms, and the code of that. */
const LONGEST: u64 = 40_960_000;
const LONGEST_CODE: u32 = 24;
/** A message that has waited for so long may have been forgotten: nanoseconds. */
const FORGOTTEN_AFTER: u64 = 1_000_000_000;
/**
 * An rnr_retry of 7 means infinite (IBTA 9.7.5.2.8). The largest limit is 6, so a requester that has one has failed
 * after seven RNR NAKs.
 */
export const RNR_RETRY_INFINITE: u32 = 7;
const NAKS_OF_LIMITED = RNR_RETRY_INFINITE;

function patience(since: u64): u64 {
  return min((Card.get().now - since) / SHARE, LONGEST);
}

/** Returns how long the requester waits after an RNR NAK. @param code the timer code in it */
export function rnrWait(qp: Qp, code: u32): u64 {
  let delay = rnrDelay(code);
  return qp.rnrRetry == RNR_RETRY_INFINITE ? max(delay, patience(qp.rnrSince)) : delay;
}

/**
 * Returns the timer code of the responder's next RNR NAK: that of the queue pair, or a longer one. Raises an event when
 * the message has waited for long.
 */
export function nextRnrCode(qp: Qp): u32 {
  let code = qp.minRnrTimer;
  if (qp.rnrNaks == 0) {
    qp.rnrNakSince = Card.get().now;
    qp.isNoReceiveRaised = false;
  } else if (!qp.isNoReceiveRaised && Card.get().now - qp.rnrNakSince >= FORGOTTEN_AFTER) {
    qp.isNoReceiveRaised = true;
    Card.get().events.raise(EventType.QP_NO_RECEIVE, qp.ptr);
  }
  if (qp.rnrNaks++ < NAKS_OF_LIMITED || code == 0) return code;
  let longest = patience(qp.rnrNakSince);
  while (code < LONGEST_CODE && rnrDelay(code + 1) <= longest) code++;
  return code;
}
