// Completion queues. The card produces and one thread of the user's consumes; cursors are free-running.
import { Counter, countDevice } from '../counters';
import { Errno, EventType } from '../limits';
import { Cqe } from './cqe';
import { Events } from './event';
import { allocate, release } from './pool';

const HEADER_BYTES: usize = 192;
const CQE_BYTES: u32 = 64;

/** For what an armed queue waits. */
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
  /** Queue pairs that complete here. */
  users: u32;
  /** A completion was lost because nobody made room. */
  isOverrun: bool;
  events: Events;

  /** For at least `cqe` completions. */
  static create(cqe: u32, events: Events): Cq {
    let entries: u32 = 1;
    while (entries < cqe) entries <<= 1;
    let cq = changetype<Cq>(allocate(<u64>entries * CQE_BYTES + HEADER_BYTES));
    if (changetype<usize>(cq) == 0) return cq;
    cq.mask = entries - 1;
    cq.events = events;
    return cq;
  }

  destroy(): Errno {
    if (this.users != 0) return Errno.EBUSY;
    this.events.forget(changetype<usize>(this));
    release(changetype<usize>(this));
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
  private entry(n: u32): usize {
    return this.ptr + HEADER_BYTES + <usize>(n & this.mask) * CQE_BYTES;
  }

  /** Room for the next completion, zeroed; null and an event when there is none. */
  reserve(): Cqe {
    let producer = this.producer;
    if (producer - this.consumer > this.mask) {
      if (!this.isOverrun) {
        this.isOverrun = true;
        countDevice(Counter.cq_overrun);
        this.events.raise(EventType.CQ_ERR, this.ptr);
      }
      return changetype<Cqe>(0);
    }
    let cqe = this.entry(producer);
    memory.fill(cqe, 0, CQE_BYTES);
    return changetype<Cqe>(cqe);
  }

  /** Makes the reserved completion visible. */
  commit(wakesSolicited: bool): void {
    this.producer = this.producer + 1;
    // after the cursor: who arms and then finds the queue empty is seen here
    let armed = atomic.load<u32>(this.ptr, offsetof<Cq>('armedWord'));
    if (armed == Armed.NOT || (armed == Armed.SOLICITED && !wakesSolicited)) return;
    atomic.store<u32>(this.ptr, Armed.NOT, offsetof<Cq>('armedWord'));
    this.events.raise(EventType.COMPLETION, this.ptr);
  }

  /** What came before does not count: look once more afterwards. */
  arm(solicitedOnly: bool): void {
    // an arm for all completions is not narrowed by a later one for solicited ones only (IBTA 11.4.2.2)
    if (!solicitedOnly) atomic.store<u32>(this.ptr, Armed.NEXT, offsetof<Cq>('armedWord'));
    else atomic.cmpxchg<u32>(this.ptr, Armed.NOT, Armed.SOLICITED, offsetof<Cq>('armedWord'));
  }

  peek(): usize {
    return this.producer == this.consumer ? 0 : this.entry(this.consumer);
  }
  pop(): void {
    if (this.producer != this.consumer) this.consumer = this.consumer + 1;
  }
}
