// What the card tells its user: a completion queue that was armed has something, or an asynchronous event. A ring in the
// pool, which one thread of the user's empties; when nobody takes events the newest are lost and counted.
import { Counter, countDevice } from '../counters';
import { EventType } from '../limits';
import { allocate } from './pool';

const ENTRIES: u32 = 4096;
const HEADER_BYTES: usize = 192;

@unmanaged
@final
export class Events {
  static create(): Events {
    return changetype<Events>(allocate(HEADER_BYTES + ENTRIES * 8));
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
    return this.ptr + HEADER_BYTES + ((<usize>(n & (ENTRIES - 1))) << 3);
  }

  /** A cq or qp, as `handle`, has something to tell. */
  raise(type: EventType, handle: usize): void {
    let producer = this.producer;
    if (producer - this.consumer == ENTRIES) return countDevice(Counter.events_lost);
    store<u32>(this.entry(producer), type);
    store<u32>(this.entry(producer), handle, 4);
    this.producer = producer + 1;
  }

  peek(): usize {
    return this.producer == this.consumer ? 0 : this.entry(this.consumer);
  }
  pop(): void {
    if (this.producer != this.consumer) this.consumer++;
  }

  /** An object goes away: nothing more is told of it. For the user's thread, while the card is at rest. */
  forget(handle: usize): void {
    let kept = this.consumer;
    for (let n = this.consumer; n != this.producer; n++) {
      if (load<u32>(this.entry(n), 4) == <u32>handle) continue;
      store<u64>(this.entry(kept++), load<u64>(this.entry(n)));
    }
    this.producer = kept;
  }
}
