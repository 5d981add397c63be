// Limit of the WQEs of a shared receive queue that a queue pair holds: from when a message takes one until the
// application has returned it. Without a quota, a peer whose messages nobody reads would take the receives of all
// others. Messages beyond the quota find the queue empty, so that the peer gets an RNR NAK (IBTA 9.7.5.2.8).
//
// A queue may have fewer WQEs than the quotas of its queue pairs together. Its reserve is for those that hold none, so
// that a queue pair which holds one leaves it alone, and many peers whose messages nobody reads do not empty the queue.

import { Qp } from './qp';

/** Returns whether a message may take a receive WQE. */
export function hasRecvWqeFor(qp: Qp): bool {
  let queue = qp.rq;
  let left = queue.filled;
  if (qp.recvQuota == 0) return left != 0;
  let inUse = qp.recvTaken - qp.recvReturned;
  return inUse < qp.recvQuota && left > (inUse == 0 ? 0 : queue.reserve);
}

/** The application has returned a receive WQE of the shared queue, by posting another one. */
export function returnRecv(qp: Qp): void {
  qp.recvReturned++;
}
