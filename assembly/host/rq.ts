// Receive queues, of one queue pair or shared by several (SRQ, IBTA 10.2.9). Cursors are free-running; one thread of
// the application produces, the card consumes.
import { Errno, EventType } from '../codes';
import { MAX_MESSAGE, MAX_SGE, MAX_WR } from '../limits';
import { Events } from './event';
import { Pd } from './pd';
import { allocate, release } from './pool';
import { RECV_WQE_BYTES, RecvWqe, SGE_BYTES, writeSge } from './wqe';

/** The fields, then the two cursors on cache lines of their own. */
const HEADER_BYTES: u64 = 192;

@unmanaged
@final
export class RecvQueue {
  mask: u32;
  stride: u32;
  maxSge: u32;
  /**
   * Of a shared queue: its protection domain, the number of its queue pairs, and the limit below which it raises an
   * event (0 = none).
   */
  pd: Pd;
  users: u32;
  limit: u32;
  isShared: bool;
  /** WQEs of a shared queue that are left to queue pairs which hold none (qp/quota). */
  reserve: u32;
  base: usize;

  /** Creates a queue of at least `wr` entries of up to `sge` SGEs; null when memory is short. */
  static create(wr: u32, sge: u32): RecvQueue {
    let queue = changetype<RecvQueue>(allocate(HEADER_BYTES));
    if (queue.ptr == 0) return queue;
    queue.maxSge = sge;
    queue.stride = strideFor(sge);
    if (queue.resize(wr)) return queue;
    release(queue.ptr);
    return changetype<RecvQueue>(0);
  }

  /** Creates a queue that queue pairs of a protection domain share; null when memory is short. */
  static createShared(pd: Pd, wr: u32, sge: u32): RecvQueue {
    let queue = RecvQueue.create(wr, sge);
    if (queue.ptr == 0) return queue;
    queue.isShared = true;
    queue.pd = pd;
    pd.users++;
    return queue;
  }

  /** Whether a shared queue may have these sizes. */
  static areSizesValid(wr: u32, sge: u32): bool {
    return wr != 0 && wr <= MAX_WR && sge <= MAX_SGE;
  }

  get ptr(): usize {
    return changetype<usize>(this);
  }
  private get head(): u32 {
    return atomic.load<u32>(this.ptr, 64);
  }
  private set head(value: u32) {
    atomic.store<u32>(this.ptr, value, 64);
  }
  private get tail(): u32 {
    return atomic.load<u32>(this.ptr, 128);
  }
  private set tail(value: u32) {
    atomic.store<u32>(this.ptr, value, 128);
  }
  get filled(): u32 {
    return this.head - this.tail;
  }
  get isEmpty(): bool {
    return this.head == this.tail;
  }
  get entries(): u32 {
    return this.mask + 1;
  }

  destroy(): void {
    release(this.base);
    release(this.ptr);
  }

  /** Destroys a shared queue. EBUSY while queue pairs use it. */
  destroyShared(events: Events): Errno {
    if (this.users != 0) return Errno.EBUSY;
    this.pd.users--;
    events.purge(this.ptr);
    this.destroy();
    return Errno.OK;
  }

  /**
   * Makes room for at least `wr` entries and moves the posted ones. False when they would not fit or memory is short.
   */
  resize(wr: u32): bool {
    if (wr < this.filled) return false;
    let entries: u32 = 1;
    while (entries < wr) entries <<= 1;
    let base = allocate(<u64>entries * this.stride);
    if (base == 0) return false;
    let count = this.filled;
    for (let n: u32 = 0; n < count; n++) memory.copy(base + n * this.stride, this.wqe(this.tail + n).ptr, this.stride);
    if (this.base) release(this.base);
    this.base = base;
    this.mask = entries - 1;
    this.tail = 0;
    this.head = count;
    return true;
  }

  private wqe(n: u32): RecvWqe {
    return changetype<RecvWqe>(this.base + <usize>(n & this.mask) * this.stride);
  }

  /** The oldest entry; there must be one. */
  get oldest(): RecvWqe {
    return this.wqe(this.tail);
  }

  /** Copies the oldest entry to `copy` and removes it; there must be one. */
  take(copy: RecvWqe, events: Events): void {
    let tail = this.tail;
    let wqe = this.wqe(tail);
    memory.copy(copy.ptr, wqe.ptr, RECV_WQE_BYTES + <usize>wqe.sgeCount * SGE_BYTES);
    this.tail = tail + 1;
    if (this.limit == 0 || this.filled >= this.limit) return;
    this.limit = 0;
    events.raise(EventType.SRQ_LIMIT_REACHED, this.ptr);
  }

  /** Discards all posted entries. */
  clear(): void {
    this.tail = this.head;
  }

  /** Starts an entry; ENOMEM when the queue is full. */
  begin(wrId: f64): Errno {
    if (this.filled > this.mask) return Errno.ENOMEM;
    let wqe = this.wqe(this.head);
    wqe.wrId = wrId;
    wqe.length = 0;
    wqe.sgeCount = 0;
    return Errno.OK;
  }

  addSge(addr: u64, length: u32, lkey: u32): Errno {
    let wqe = this.wqe(this.head);
    if (wqe.sgeCount >= this.maxSge) return Errno.EINVAL;
    if (<u64>wqe.length + length > MAX_MESSAGE) return Errno.EMSGSIZE;
    writeSge(wqe.sges, wqe.sgeCount++, addr, length, lkey);
    wqe.length += length;
    return Errno.OK;
  }

  /** Makes the entry visible. */
  commit(): void {
    this.head++;
  }
}

/** Returns the bytes of a receive WQE with `sge` SGEs. */
export function strideFor(sge: u32): u32 {
  return (<u32>RECV_WQE_BYTES + sge * SGE_BYTES + 7) & ~7;
}
