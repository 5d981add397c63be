// What all objects of the card share.
import { RNIC } from '../limits';
import { Doorbells } from './doorbell';
import { Events } from './event';
import { Ring } from './ring';
import { Table } from './table';

@unmanaged
@final
export class Card {
  /** Time of the present turn in nanoseconds. */
  now: u64;
  memoryBytes: u64;
  keys: Table;
  qps: Table;
  events: Events;
  doorbells: Doorbells;
  txRing: Ring;
  rxRing: Ring;
  /** LinkFlag bits, and the UDP source port of a link that has a fixed one. */
  linkFlags: u32;
  linkSourcePort: u32;
  /** Bytes of payload that a datagram may have. */
  portMtu: u32;
  /** Members of multicast groups (qp/multicast). */
  memberships: usize;
  /** Windows of type 2B that are bound (host/mr). */
  boundWindows: u32;
  /** Queue pairs that have something to send, first and last (qp/schedule). */
  readyFirst: usize;
  readyLast: usize;
  /** Queue pairs with a deadline: a heap (qp/timer). */
  timers: usize;
  timerCount: u32;
  lastErrno: u32;
  /** What is wrong with the work request that is being described (qp/post). */
  spoiled: u32;
  /** Attributes at which the last qpModify took offence. */
  refusedMissing: u32;
  refusedForbidden: u32;
  refusedRange: u32;

  static get(): Card {
    return changetype<Card>(RNIC);
  }
}
