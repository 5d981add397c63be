// Transmit: fills the transmit ring from the queue pairs that have something to send, one turn each.
import { QpType } from '../codes';
import { Counter } from '../counters';
import { Card } from '../host/card';
import { Ring } from '../host/ring';
import { nextCnp } from './congestion';
import { takeDoorbells } from './doorbell';
import { GsoBurst } from './gso';
import { Qp } from './qp';
import { nextRequest } from './requester';
import { nextResponse } from './response';
import { schedule, takeReady } from './schedule';
import { nextDatagram } from './ud';

export function transmitFrames(now: u64, maxFrames: u32): u32 {
  let card = Card.get();
  card.now = now;
  takeDoorbells();
  let ring = card.txRing;
  let first = ring.producer;
  let end = first + min(ring.free, maxFrames);
  let n = first;
  // a burst for which the ring has no room waits for the next turn, so that it is not split
  let maxBurst = max(1, GsoBurst.current().maxPackets);
  while (n != end && card.readyFirst != 0 && (n == first || end - n >= maxBurst))
    n = transmitQp(takeReady(), ring, n, end);
  ring.producer = n;
  return n - first;
}

/** One queue pair's turn: responses, then requests. If it has both, each gets a share, so that neither starves. */
function transmitQp(qp: Qp, ring: Ring, n: u32, end: u32): u32 {
  let burst = GsoBurst.current();
  let first = n;
  burst.end();
  let quota = burst.turnFrames;
  let turnEnd = n + min(quota, end - n);
  let bytes = nextCnp(qp, ring.frame(n));
  if (bytes != 0) burst.put(ring, n++, bytes);
  let responseEnd = n + min(qp.sqNext == qp.sqHead ? quota : quota >> 1, turnEnd - n);
  let hasNoMore = true;
  while (n != responseEnd && !burst.isFull) {
    bytes = nextResponse(qp, ring.frame(n));
    if (bytes == 0) break;
    burst.put(ring, n++, bytes);
  }
  if (n == responseEnd || burst.isFull) hasNoMore = false;
  burst.end();
  while (n != turnEnd && !burst.isFull) {
    bytes = qp.type == QpType.UD ? nextDatagram(qp, ring.frame(n)) : nextRequest(qp, ring.frame(n));
    if (bytes == 0) break;
    burst.put(ring, n++, bytes);
  }
  if (n == turnEnd || burst.isFull) hasNoMore = false;
  if (!hasNoMore) schedule(qp);
  if (n != first) {
    qp.countBy(Counter.sent_pkts, n - first);
    qp.countBy(Counter.sent_bytes, burst.takeSentBytes());
  }
  return n;
}
