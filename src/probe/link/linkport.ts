/** A script's packets over a real link. */
import { clearImmediate, clearTimeout, performance, setImmediate, setTimeout } from '../../base/timers.js';
import type { Flow } from '../packet/packets.js';
import type { Arrival, PacketPort } from '../script/port.js';
import type { ScriptedQueue } from './scriptedlink.js';

/** Timers of Node are exact to a millisecond or two; shorter waits run the event loop without pause. */
const TIMER_MS = 2;

/** Sends and receives the frames of one scripted queue pair. Times are nanoseconds of `performance.now()`. */
export class LinkPort implements PacketPort {
  constructor(
    /** The queue pair number's frames. */
    readonly queue: ScriptedQueue,
    readonly flow: Flow,
    readonly mtu: number,
  ) {}

  now(): number {
    return performance.now() * 1e6;
  }

  send(frame: Uint8Array): number {
    return this.queue.send(frame);
  }

  async receive(until: number): Promise<Arrival | undefined> {
    for (;;) {
      const arrival = this.queue.shift();
      if (arrival !== undefined) return arrival;
      const left = (until - this.now()) / 1e6;
      if (left <= 0 || this.queue.isClosed) return undefined;
      await this.#arrivalOr(left);
    }
  }

  /** Waits for a frame, or for some of the time. */
  #arrivalOr(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = ms > TIMER_MS ? setTimeout(done, ms - TIMER_MS) : undefined;
      const immediate = timer === undefined ? setImmediate(done) : undefined;
      const { queue } = this;
      function done() {
        clearTimeout(timer);
        clearImmediate(immediate);
        queue.onArrival = undefined;
        resolve();
      }
      queue.onArrival = done;
    });
  }
}
