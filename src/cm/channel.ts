/** Event channels (rdma_event_channel) and their events, with the names of rdma_cm. */
import { type InspectOptionsStylized, inspect } from 'node:util';
import { AsyncQueue } from '../base/asyncqueue.js';
import { clearInterval, setInterval } from '../base/timers.js';
import { checkWait, MAX_TIMER_MS, type WaitOptions } from '../base/waiting.js';
import { VerbsError } from '../errors.js';
import { inspectAs } from '../verbs/diagnose/describe.js';
import type { AddressHandle } from '../verbs/objects/ah.js';
import type { CmError } from './cmerror.js';
import type { CmId } from './cmid.js';
import type { ConnectReply, ConnectRequest } from './core/events.js';

/** Destination of datagrams: a service or multicast group. The fields are those of `qp.postSend` for UD. */
export interface DatagramDestination {
  /**
   * Address handle in the protection domain of the id's queue pair, closed with the id. Undefined without a queue pair.
   */
  readonly ah: AddressHandle | undefined;
  /** Queue pair number (`remoteQpn`), 24 bits; 0xffffff for a group. */
  readonly qpNum: number;
  /** Q_Key (`remoteQkey`), 32 bits. */
  readonly qkey: number;
}

/**
 * An event of an id (rdma_cm_event): `type` is the name of RDMA_CM_EVENT_* without the prefix. Private data is padded
 * with zeroes to the size that the message allows.
 */
export type CmEvent = {
  /** The id that the event is about. */
  readonly id: CmId;
} & (
  | { readonly type: 'ADDR_RESOLVED' | 'ROUTE_RESOLVED' }
  | {
      readonly type: 'ADDR_ERROR' | 'ROUTE_ERROR' | 'MULTICAST_ERROR';
      /** The error that the call also throws. */
      readonly error: Error;
    }
  | {
      /** `id` is a new id, to be accepted, rejected or closed. */
      readonly type: 'CONNECT_REQUEST';
      /** The listener. */
      readonly listenId: CmId;
      /** The client's request. */
      readonly request: ConnectRequest;
    }
  | {
      /** Only for an id without a queue pair: the application brings its own to RTS, then calls `establish`. */
      readonly type: 'CONNECT_RESPONSE';
      /** The server's reply. */
      readonly reply: ConnectReply;
    }
  | {
      /** The queue pair could not be brought to RTR or RTS. */
      readonly type: 'CONNECT_ERROR';
      /** The error of `qp.modify`, or of the connection that has ended meanwhile. */
      readonly error: Error;
    }
  | {
      readonly type: 'UNREACHABLE' | 'REJECTED';
      /** The error that `connect` or `accept` also throws. */
      readonly error: CmError;
    }
  | {
      /** The connection is established, or the datagram service is resolved. */
      readonly type: 'ESTABLISHED';
      /** Private data of the peer's REP, RTU or SIDR_REP. */
      readonly privateData: Uint8Array;
      /** Destination of a datagram service; undefined for a connection. */
      readonly datagram?: DatagramDestination;
    }
  | {
      readonly type: 'DISCONNECTED';
      /** Private data of the peer's DREQ or DREP. */
      readonly privateData: Uint8Array;
      /** We have disconnected, and no DREP has arrived. */
      readonly timedOut: boolean;
      /** The peer's process or thread has ended without disconnecting. Only this library tells its peers. */
      readonly hasExited?: true;
      /** The connection was ended by a REJ, or is stale. */
      readonly error?: CmError;
    }
  | {
      readonly type: 'MULTICAST_JOIN';
      /** IP address of the group. */
      readonly group: string;
      /** Destination for datagrams to the group. */
      readonly datagram: DatagramDestination;
    }
  | {
      /** The device has failed: no further event follows, and the id can only be closed. */
      readonly type: 'DEVICE_REMOVAL';
      /** The reason for the failure of the device. */
      readonly error: Error;
    }
  /** Timewait is over: the queue pair number can be used for another connection. */
  | { readonly type: 'TIMEWAIT_EXIT' }
);

/** Name of an event. */
export type CmEventType = CmEvent['type'];

/** The event that `connect` and `accept` wait for. */
export type Established = Extract<CmEvent, { type: 'ESTABLISHED' }>;

/**
 * A queue of events of one or several ids, in order of arrival (rdma_event_channel). A pending `next` keeps the process
 * running while an id of the channel is open. The channel of a single id is closed with the id. Unread events are kept
 * without limit, so a shared channel must be read.
 * @example
 * const channel = new EventChannel();
 * const listener = createCmId(device, { channel });
 * await listener.bindAddr('0.0.0.0', 7174);
 * await listener.listen();
 * for await (const event of channel) {
 *   if (event.type === 'CONNECT_REQUEST') {
 *     await event.id.createQp(pd, { sendCq });
 *     void event.id.accept();
 *   }
 * }
 */
export class EventChannel {
  #onEvent: (event: CmEvent) => void = () => {};
  readonly #events = new AsyncQueue<CmEvent>();
  /** Open ids of the channel. */
  #ids = 0;
  #isRefed = true;
  /** Keeps the process running. */
  #awake: NodeJS.Timeout | undefined;

  /** Whether `close` has been called. */
  get isClosed(): boolean {
    return this.#events.isEnded;
  }

  /** Returns the next event, or undefined when there is none. Does not wait. */
  poll(): CmEvent | undefined {
    return this.#events.shift();
  }

  /**
   * Waits for the next event (rdma_get_cm_event).
   * @throws TypeError for invalid options; the signal's reason; VerbsError ETIMEDOUT, ECANCELED when the channel is
   * closed
   */
  async next(wait: WaitOptions = {}): Promise<CmEvent> {
    checkWait(wait);
    const next = this.#events.take(wait, 'no event');
    this.#updateAwake();
    return next.finally(() => this.#updateAwake());
  }

  /** Iterates over all events until the channel is closed. */
  async *[Symbol.asyncIterator](): AsyncGenerator<CmEvent, void, void> {
    while (!this.isClosed || this.#events.items.length > 0) {
      let event: CmEvent;
      try {
        event = await this.next();
      } catch (error) {
        if (this.isClosed && error instanceof VerbsError && error.code === 'ECANCELED') return;
        throw error;
      }
      yield event;
    }
  }

  /** Rejects pending `next` calls with ECANCELED and drops later events. The ids stay open. */
  close(): void {
    this.#events.end(() => new VerbsError('ECANCELED', 'the event channel is closed'));
    this.#updateAwake();
  }

  /** A pending `next` keeps the process running. This is the default. */
  ref(): this {
    this.#isRefed = true;
    this.#updateAwake();
    return this;
  }

  /** Lets the process exit although a `next` is pending. */
  unref(): this {
    this.#isRefed = false;
    this.#updateAwake();
    return this;
  }

  /** Same as `close`. */
  [Symbol.dispose](): void {
    this.close();
  }

  /** Returns a short description as plain data, for `JSON.stringify` and `console.log`. */
  toJSON(): Record<string, unknown> {
    return { ids: this.#ids, unread: this.#events.items.map(({ type }) => type).slice(0, 8), isClosed: this.isClosed };
  }

  /** @internal */
  [inspect.custom](depth: number, options: InspectOptionsStylized): string {
    return inspectAs(this, depth, options);
  }

  /**
   * @internal Passes every event to a handler as it arrives, before the readers. A call, because V8 puts a function
   * that is assigned to a property into the old generation: all that it refers to would stay in memory until the next
   * collection of that.
   */
  observe(onEvent: (event: CmEvent) => void): void {
    this.#onEvent = onEvent;
  }

  /** @internal Adds an event. */
  push(event: CmEvent): void {
    this.#onEvent(event);
    this.#events.put(event);
    this.#updateAwake();
  }

  /** @internal An id of the channel was created. */
  addId(): void {
    this.#ids++;
    this.#updateAwake();
  }

  /** @internal An id of the channel was closed. */
  removeId(): void {
    this.#ids--;
    this.#updateAwake();
  }

  /** @internal Removes and returns the unread events that match. */
  remove(matches: (event: CmEvent) => boolean): CmEvent[] {
    return this.#events.remove(matches);
  }

  #updateAwake(): void {
    const wants = this.#isRefed && this.#events.waiting > 0 && this.#ids > 0;
    if (wants === (this.#awake !== undefined)) return;
    clearInterval(this.#awake);
    this.#awake = wants ? setInterval(() => {}, MAX_TIMER_MS) : undefined;
  }
}
