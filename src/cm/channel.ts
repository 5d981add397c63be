/** Channels of events (rdma_event_channel), and the events with rdma_cm's names. */
import { VerbsError } from '../errors.js';
import type { Ah } from '../verbs/udah.js';
import { checkWait, LONGEST_TIMER, orGiveUp, type WaitOptions } from '../verbs/waiting.js';
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
  /** `timedOut`: we ended it, and the peer has not agreed. `error`: it did not end in good order. */
  | {
      readonly type: 'DISCONNECTED';
      readonly privateData: Uint8Array;
      readonly timedOut: boolean;
      readonly error?: CmError;
    }
  | { readonly type: 'MULTICAST_JOIN'; readonly group: string; readonly datagram: DatagramDestination }
  /** The device has failed: nothing else comes, and the id can be closed only. */
  | { readonly type: 'DEVICE_REMOVAL'; readonly error: Error }
  /** The queue pair's number may be used anew. */
  | { readonly type: 'TIMEWAIT_EXIT' }
);

export type CmEventType = CmEvent['type'];

interface Waiter {
  resolve(event: CmEvent): void;
  reject(error: unknown): void;
}

/**
 * Events of one or several ids, in the order in which they came. Who waits for one keeps the process running. A channel that
 * several ids share must be read, or it grows.
 */
export class EventChannel {
  /** @internal Hears of every event as it comes, and leaves it to the readers. */
  onEvent: (event: CmEvent) => void = () => {};
  #events: CmEvent[] = [];
  #waiters: Waiter[] = [];
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
  async next(wait: WaitOptions = {}): Promise<CmEvent> {
    checkWait(wait);
    const event = this.poll();
    if (event !== undefined) return event;
    if (this.#isClosed) throw closed();
    let waiter: Waiter | undefined;
    const next = new Promise<CmEvent>((resolve, reject) => {
      waiter = { resolve, reject };
      this.#waiters.push(waiter);
    });
    const awake = setInterval(() => {}, LONGEST_TIMER);
    try {
      return await orGiveUp(next, 'no event', wait, () => {
        this.#waiters = this.#waiters.filter((other) => other !== waiter);
      });
    } finally {
      clearInterval(awake);
    }
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
    for (const { reject } of this.#waiters.splice(0)) reject(closed());
  }

  [Symbol.dispose](): void {
    this.close();
  }

  /** @internal */
  push(event: CmEvent): void {
    this.onEvent(event);
    const waiter = this.#waiters.shift();
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
