// Completion queues. The card produces and one thread of the application consumes; cursors are free-running.

import { Errno, EventType } from '../codes';
import { Counter, countCard } from '../counters';
import { Cqe } from './cqe';
import { Events } from './event';
import { allocate, release } from './pool';

/** The fields, then the two cursors on cache lines of their own. */
const HEADER_BYTES: usize = 192;
const CQE_BYTES: u32 = 64;

/** Which completion raises an event. */
enum Armed {
  NOT,
  NEXT,
  SOLICITED,
}

@unmanaged
@final
export class Cq {
  mask: u32;
  armedWord: u32;
  /** Queue pairs that complete to this queue. */
  users: u32;
  /** A completion was lost because the queue was full. */
  isOverrun: bool;
  events: Events;
  base: usize;

  /** Creates a queue of at least `cqe` completions; null when memory is short. */
  static create(cqe: u32, events: Events): Cq {
    let cq = changetype<Cq>(allocate(HEADER_BYTES));
    if (cq.ptr == 0) return cq;
    cq.events = events;
    if (cq.resize(cqe) == Errno.OK) return cq;
    release(cq.ptr);
    return changetype<Cq>(0);
  }

  /**
   * Makes room for at least `cqe` completions and moves the pending ones. EINVAL when they would not fit, ENOMEM when
   * memory is short. Called by the application's thread while the card is at rest.
   */
  resize(cqe: u32): Errno {
    let first = this.consumer;
    let pending = this.filled;
    if (pending > cqe) return Errno.EINVAL;
    let entries: u32 = 1;
    while (entries < cqe) entries <<= 1;
    let base = allocate(<u64>entries * CQE_BYTES);
    if (base == 0) return Errno.ENOMEM;
    for (let n = first; n != first + pending; n++)
      memory.copy(base + <usize>(n & (entries - 1)) * CQE_BYTES, this.entry(n), CQE_BYTES);
    if (this.base) release(this.base);
    this.base = base;
    this.mask = entries - 1;
    return Errno.OK;
  }

  destroy(): Errno {
    if (this.users != 0) return Errno.EBUSY;
    this.events.purge(this.ptr);
    release(this.base);
    release(this.ptr);
    return Errno.OK;
  }

  private get ptr(): usize {
    return changetype<usize>(this);
  }
  private get producer(): u32 {
    return atomic.load<u32>(this.ptr, 64);
  }
  private set producer(value: u32) {
    atomic.store<u32>(this.ptr, value, 64);
  }
  private get consumer(): u32 {
    return atomic.load<u32>(this.ptr, 128);
  }
  private set consumer(value: u32) {
    atomic.store<u32>(this.ptr, value, 128);
  }
  get filled(): u32 {
    return this.producer - this.consumer;
  }
  private entry(n: u32): usize {
    return this.base + <usize>(n & this.mask) * CQE_BYTES;
  }

  /** Returns the next completion queue entry, zeroed. Returns null and raises an event when the queue is full. */
  reserve(): Cqe {
    let producer = this.producer;
    if (producer - this.consumer > this.mask) {
      if (!this.isOverrun) {
        this.isOverrun = true;
        countCard(Counter.cq_overrun);
        this.events.raise(EventType.CQ_ERR, this.ptr);
      }
      return changetype<Cqe>(0);
    }
    let cqe = this.entry(producer);
    memory.fill(cqe, 0, CQE_BYTES);
    return changetype<Cqe>(cqe);
  }

  /** Makes the reserved entry visible. */
  commit(wakesSolicited: bool): void {
    this.producer = this.producer + 1;
    // after the cursor: an application that arms and then finds the queue empty is seen here
    let armed = atomic.load<u32>(this.ptr, offsetof<Cq>('armedWord'));
    if (armed == Armed.NOT || (armed == Armed.SOLICITED && !wakesSolicited)) return;
    atomic.store<u32>(this.ptr, Armed.NOT, offsetof<Cq>('armedWord'));
    this.events.raise(EventType.COMPLETION, this.ptr);
  }

  /** Arms the queue. Pending completions raise no event: the caller polls once more afterwards. */
  arm(solicitedOnly: bool): void {
    // a later arm for solicited completions does not narrow one for all completions (IBTA 11.4.2.2)
    if (!solicitedOnly) atomic.store<u32>(this.ptr, Armed.NEXT, offsetof<Cq>('armedWord'));
    else atomic.cmpxchg<u32>(this.ptr, Armed.NOT, Armed.SOLICITED, offsetof<Cq>('armedWord'));
  }

  get isArmed(): bool {
    return atomic.load<u32>(this.ptr, offsetof<Cq>('armedWord')) != Armed.NOT;
  }

  /** Removes the completions of a queue pair. Called by the application's thread while the card is at rest. */
  clean(qp: usize): void {
    // from the newest on: those that stay move towards the producer, whose cursor is the card's
    let first = this.producer;
    for (let n = this.producer; n != this.consumer; ) {
      n--;
      if (changetype<Cqe>(this.entry(n)).qp == qp) continue;
      first--;
      if (first != n) memory.copy(this.entry(first), this.entry(n), CQE_BYTES);
    }
    this.consumer = first;
  }

  peek(): usize {
    return this.producer == this.consumer ? 0 : this.entry(this.consumer);
  }
  pop(): void {
    if (this.producer != this.consumer) this.consumer = this.consumer + 1;
  }
}
