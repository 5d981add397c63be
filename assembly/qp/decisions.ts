// The trace of decisions: a ring of what the queue pairs have decided off the fast path, and why. It is off by
// default, and then each call costs a load and a branch. The thread that runs the turns writes it, or the
// application's thread while the card is at rest; readers do so while the card is at rest. The layout is exported as
// DecisionRingOffset and DecisionOffset.
import { DecisionKind, Errno } from '../codes';
import { Card } from '../host/card';
import { allocate, release } from '../host/pool';
import { DECISION_BYTES, DecisionOffset, DecisionRingOffset } from '../layout';
import { MAX_DECISIONS } from '../limits';
import { Qp } from './qp';

/** Starts a ring of `entries` decisions, a power of two, in place of the present one; 0 switches the trace off. */
export function setDecisionTrace(entries: u32): Errno {
  if (entries > MAX_DECISIONS || (entries & (entries - 1)) != 0) return Errno.EINVAL;
  let card = Card.get();
  let ring: usize = 0;
  if (entries != 0) {
    ring = allocate(<u64>entries * DECISION_BYTES + DecisionRingOffset.ENTRIES);
    if (ring == 0) return Errno.ENOMEM;
    store<u32>(ring, entries - 1, DecisionRingOffset.MASK);
  }
  if (card.decisions != 0) release(card.decisions);
  card.decisions = ring;
  return Errno.OK;
}

export function isTracingDecisions(): bool {
  return Card.get().decisions != 0;
}

/** Traces a decision, if the trace is on. The meaning of `reason` and `value` depends on `kind`. */
export function recordDecision(qp: Qp, kind: DecisionKind, reason: u32, psn: u32, packets: i32, value: u32): void {
  if (isTracingDecisions()) write(qp, kind, reason, psn, packets, value);
}

function write(qp: Qp, kind: DecisionKind, reason: u32, psn: u32, packets: i32, value: u32): void {
  let card = Card.get();
  let ring = card.decisions;
  let count = load<u32>(ring, DecisionRingOffset.COUNT);
  let slot = count & load<u32>(ring, DecisionRingOffset.MASK);
  let entry = ring + DecisionRingOffset.ENTRIES + <usize>slot * DECISION_BYTES;
  store<f64>(entry, <f64>card.now, DecisionOffset.AT);
  store<u32>(entry, qp.qpn, DecisionOffset.QPN);
  store<u32>(entry, kind, DecisionOffset.KIND);
  store<u32>(entry, reason, DecisionOffset.REASON);
  store<u32>(entry, psn, DecisionOffset.PSN);
  store<i32>(entry, packets, DecisionOffset.PACKETS);
  store<u32>(entry, value, DecisionOffset.VALUE);
  store<u32>(ring, count + 1, DecisionRingOffset.COUNT);
}
