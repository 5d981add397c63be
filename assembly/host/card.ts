// State that all objects of the card share.
import { RNIC } from '../memorymap';
import { Doorbells } from './doorbell';
import { Events } from './event';
import { Ring } from './ring';
import { Table } from './table';

@unmanaged
@final
export class Card {
  /** Time of the current turn in nanoseconds. */
  now: u64;
  keys: Table;
  qps: Table;
  events: Events;
  doorbells: Doorbells;
  txRing: Ring;
  rxRing: Ring;
  /** LinkFlag bits, and the UDP source port if the link has a fixed one. */
  linkFlags: u32;
  linkSourcePort: u32;
  /** Bits of a queue pair number that the link has set, and their values (qp/qpn). */
  qpnMask: u32;
  qpnBits: u32;
  /** Largest payload of a datagram in bytes. */
  portMtu: u32;
  /** Members of multicast groups, a list (qp/multicast). */
  memberships: usize;
  /** Number of bound memory windows of type 2B (host/mr). */
  boundWindows: u32;
  /** Queue pairs that have something to send, first and last of a list (qp/schedule). */
  readyFirst: usize;
  readyLast: usize;
  /** Queue pairs with a deadline: a heap (qp/timer). */
  timers: usize;
  timerCount: u32;
  /** The shortest ACK timeout in nanoseconds; 0 = each queue pair's own, whatever the round trip is. */
  minAckTimeout: u64;
  lastErrno: u32;
  /** Error of the work request that is being described (qp/post). */
  postErrno: u32;
  /** Attributes for which the last qpModify was refused. */
  refusedMissing: u32;
  refusedForbidden: u32;
  refusedRange: u32;
  /** Most packets that a kept packet may be ahead of the expected PSN; 0 = none is kept. */
  reorderWindow: u32;
  /** The slots of the reorder buffer, all of them, and those that are free: a list and its length (qp/reorder). */
  reorderSlots: usize;
  reorderFree: usize;
  reorderFreeCount: u32;
  /** The ring of decisions; 0 = not traced (qp/decisions). */
  decisions: usize;
  /** The next dropped or retransmitted packet raises an event (host/loss). */
  isLossAwaited: bool;

  static get(): Card {
    return changetype<Card>(RNIC);
  }
}
