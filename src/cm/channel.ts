/** Channels of events (rdma_event_channel), and the events with rdma_cm's names. */
import { VerbsError } from '../errors.js';
import type { Ah } from '../verbs/udah.js';
import type { CmError } from './cmerror.js';
import type { CmId } from './cmid.js';
import type { ConnectReply, ConnectRequest } from './events.js';

/** Where datagrams of a service or group go. */
export interface DatagramDestination {
  /** Address handle in the domain of the id's queue pair; closed with the id. Without a queue pair there is none. */
  readonly ah: Ah | undefined;
  readonly qpNum: number;
  readonly qkey: number;
}

/** What happened to an id. Private data is padded with zeroes to what fits the message. */
export type CmEvent = { readonly id: CmId } & (
  | { readonly type: 'ADDR_RESOLVED' | 'ROUTE_RESOLVED' }
  | { readonly type: 'ADDR_ERROR' | 'ROUTE_ERROR' | 'MULTICAST_ERROR'; readonly error: Error }
  /** `id` is a new one, to be accepted, rejected or closed. */
  | { readonly type: 'CONNECT_REQUEST'; readonly listenId: CmId; readonly request: ConnectRequest }
  /** Only without a queue pair of the id's: the program brings its own up, then calls `establish`. */
  | { readonly type: 'CONNECT_RESPONSE'; readonly reply: ConnectReply }
  /** The queue pair could not be brought up. */
  | { readonly type: 'CONNECT_ERROR'; readonly error: Error }
  | { readonly type: 'UNREACHABLE' | 'REJECTED'; readonly error: CmError }
  /** `datagram`: of a datagram service. */
  | { readonly type: 'ESTABLISHED'; readonly privateData: Uint8Array; readonly datagram?: DatagramDestination }
  /** `timedOut`: we ended it, and the peer has not agreed. */
  | { readonly type: 'DISCONNECTED'; readonly privateData: Uint8Array; readonly timedOut: boolean }
  | { readonly type: 'MULTICAST_JOIN'; readonly group: string; readonly datagram: DatagramDestination }
  /** The queue pair's number may be used anew. */
  | { readonly type: 'TIMEWAIT_EXIT' }
);

export type CmEventType = CmEvent['type'];

export interface WaitOptions {
  /** Ends the waiting: the promise is rejected with the signal's reason. */
  readonly signal?: AbortSignal;
  /** Milliseconds until the waiting ends with ETIMEDOUT. Default: never. */
  readonly timeout?: number;
}

interface Waiter {
  resolve(event: CmEvent): void;
  reject(error: unknown): void;
}

/** setTimeout takes no more (ms). */
const LONGEST_TIMER = 2 ** 31 - 1;

/**
 * Events of one or several ids, in the order in which they came. Who waits for one keeps the process running. A channel that
 * several ids share must be read, or it grows.
 */
export class EventChannel {
  /** @internal Hears of every event as it comes, and leaves it to the readers. */
  onEvent: (event: CmEvent) => void = () => {};
  #events: CmEvent[] = [];
  readonly #waiters: Waiter[] = [];
  #isClosed = false;

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** The next event if there is one already. */
  poll(): CmEvent | undefined {
    return this.#events.shift();
  }

  /**
   * The next event (rdma_get_cm_event).
   * @throws the signal's reason; VerbsError ETIMEDOUT, ECANCELED when the channel is closed
   */
  async next({ signal, timeout }: WaitOptions = {}): Promise<CmEvent> {
    signal?.throwIfAborted();
    const event = this.poll();
    if (event !== undefined) return event;
    if (this.#isClosed) throw closed();
    return new Promise<CmEvent>((resolve, reject) => {
      const done = () => {
        const place = this.#waiters.indexOf(waiter);
        if (place >= 0) this.#waiters.splice(place, 1);
        signal?.removeEventListener('abort', onAbort);
        clearTimeout(timer);
      };
      const waiter: Waiter = {
        resolve(event) {
          done();
          resolve(event);
        },
        reject(error) {
          done();
          reject(error);
        },
      };
      const onAbort = () => waiter.reject(signal?.reason);
      // also without a limit: the timer keeps the process running
      const late = () => waiter.reject(new VerbsError('ETIMEDOUT', `no event within ${timeout} ms`));
      const timer = setTimeout(
        timeout === undefined ? () => {} : late,
        Math.min(timeout ?? LONGEST_TIMER, LONGEST_TIMER),
      );
      signal?.addEventListener('abort', onAbort, { once: true });
      this.#waiters.push(waiter);
    });
  }

  /** All events from now on; ends when the channel is closed. */
  async *[Symbol.asyncIterator](): AsyncGenerator<CmEvent, void, void> {
    while (!this.#isClosed || this.#events.length > 0) {
      let event: CmEvent;
      try {
        event = await this.next();
      } catch (error) {
        if (this.#isClosed && error instanceof VerbsError && error.code === 'ECANCELED') return;
        throw error;
      }
      yield event;
    }
  }

  /** Ends the waiting of all; events that come later are lost. The ids stay open. */
  close(): void {
    this.#isClosed = true;
    for (const waiter of [...this.#waiters]) waiter.reject(closed());
  }

  [Symbol.dispose](): void {
    this.close();
  }

  /** @internal */
  push(event: CmEvent): void {
    this.onEvent(event);
    const [waiter] = this.#waiters;
    if (waiter !== undefined) waiter.resolve(event);
    else if (!this.#isClosed) this.#events.push(event);
  }

  /** @internal Takes out what nobody has read yet. */
  withdraw(isMeant: (event: CmEvent) => boolean): CmEvent[] {
    const out = this.#events.filter(isMeant);
    this.#events = this.#events.filter((event) => !isMeant(event));
    return out;
  }
}

function closed(): VerbsError {
  return new VerbsError('ECANCELED', 'the event channel is closed');
}
