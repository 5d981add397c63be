// Events for the application: completions of armed queues, and asynchronous events. They are in a ring in the pool,
// which one thread of the application empties. When the ring is full, new events are not written to it. No completion
// event is lost by that: behind all others comes one MISSED event, after which the application polls every completion
// queue that raised an event. Asynchronous events are lost and counted.

import { EventType } from '../codes';
import { Counter, countCard } from '../counters';
import { allocate } from './pool';

const ENTRIES: u32 = 4096;
const HEADER_BYTES: usize = 192;
/** In the header: whether an event found no room, and the MISSED event itself. */
const MISSED: usize = 0;
const MISSED_EVENT: usize = 8;

@unmanaged
@final
export class Events {
  static create(): Events {
    let events = changetype<Events>(allocate(HEADER_BYTES + ENTRIES * 8));
    store<u32>(events.ptr, EventType.MISSED, MISSED_EVENT);
    return events;
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

  /** Raises an event about a cq or qp, as `handle`. */
  raise(type: EventType, handle: usize): void {
    let producer = this.producer;
    if (producer - this.consumer == ENTRIES) {
      atomic.store<u32>(this.ptr, 1, MISSED);
      // check again: an application that has emptied the ring meanwhile may not have seen the flag
      if (producer - this.consumer == ENTRIES) {
        if (type != EventType.COMPLETION) countCard(Counter.events_lost);
        return;
      }
    }
    store<u32>(this.entry(producer), type);
    store<u32>(this.entry(producer), handle, 4);
    this.producer = producer + 1;
  }

  peek(): usize {
    if (this.producer != this.consumer) return this.entry(this.consumer);
    return atomic.load<u32>(this.ptr, MISSED) != 0 ? this.ptr + MISSED_EVENT : 0;
  }
  /** @param event the return value of `peek`: the ring may have been empty then but not now */
  pop(event: usize): void {
    if (event == this.ptr + MISSED_EVENT) atomic.store<u32>(this.ptr, 0, MISSED);
    else this.consumer++;
  }

  /**
   * Removes the events of an object that is being destroyed. Called by the application's thread while the card is at
   * rest.
   */
  purge(handle: usize): void {
    let kept = this.consumer;
    for (let n = this.consumer; n != this.producer; n++) {
      if (load<u32>(this.entry(n), 4) == <u32>handle) continue;
      store<u64>(this.entry(kept++), load<u64>(this.entry(n)));
    }
    this.producer = kept;
  }
}
