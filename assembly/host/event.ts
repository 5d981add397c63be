// What the card tells the thread that runs it: a completion queue that was armed has something, or an asynchronous event.
// A ring in the pool; when nobody takes events the newest are lost and counted.
import { Counter, countDevice } from '../counters';
import { EventType } from '../limits';
import { allocate } from './pool';

const ENTRIES: u32 = 4096;

@unmanaged
@final
export class Events {
  producer: u32;
  consumer: u32;

  static create(): Events {
    return changetype<Events>(allocate(64 + ENTRIES * 8));
  }
  private entry(n: u32): usize {
    return changetype<usize>(this) + 64 + ((<usize>(n & (ENTRIES - 1))) << 3);
  }

  /** A cq or qp, as `handle`, has something to tell. */
  raise(type: EventType, handle: usize): void {
    if (this.producer - this.consumer == ENTRIES) return countDevice(Counter.events_lost);
    store<u32>(this.entry(this.producer), type);
    store<u32>(this.entry(this.producer), handle, 4);
    this.producer++;
  }

  peek(): usize {
    return this.producer == this.consumer ? 0 : this.entry(this.consumer);
  }
  pop(): void {
    if (this.producer != this.consumer) this.consumer++;
  }

  /** An object goes away: nothing more is told of it. */
  forget(handle: usize): void {
    let kept = this.consumer;
    for (let n = this.consumer; n != this.producer; n++) {
      if (load<u32>(this.entry(n), 4) == <u32>handle) continue;
      store<u64>(this.entry(kept++), load<u64>(this.entry(n)));
    }
    this.producer = kept;
  }
}
