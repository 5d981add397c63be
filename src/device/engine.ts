/**
 * The contract of an engine. An engine takes the turns of a device and reports the card's events. There are two:
 * `InlineEngine` takes turns in the application's thread (inline.ts), `WorkerEngine` has a thread for them (worker.ts
 * and cardworker.ts).
 *
 * Words:
 * - turn: one pass of the device loop: receive, expire timers, transmit (turns.ts).
 * - batch: turns that the inline engine takes one after the other before it returns to the event loop.
 * - doorbell: what a post sets in the card's memory when the card must look at the queue; `isDoorbellRung` reads it.
 * - event: an asynchronous event or completion event of the card, in a ring of the card's memory.
 * - application's thread: the thread that opened the device. Card's thread: the one that takes its turns.
 *
 * Invariants:
 * - One thread takes the turns of a device. In a turn it may read and write all of the card's memory.
 * - In mode `worker` the application's thread posts and polls without a lock: locked.ts lists the calls of the card
 * that may run during a turn. It makes all other calls while it holds the TurnLock, which keeps turns out.
 * - The card's thread moves the link's frames; everything else of the link belongs to the application's thread
 *   (link.ts).
 * - Events are dispatched in the application's thread only.
 * - A thread that is about to sleep announces it first, then checks for work again. Only an announced sleeper is woken.
 */
import { outOfRange } from '../errors.js';
import type { LinkFeatures } from '../link/link.js';
import type { FaultOrder } from '../probe/faults/rules.js';
import type { Card } from './card.js';
import { EventOffset, LinkFlag } from './codes.js';
import type { Trace } from './trace.js';

/** Which thread runs the card: `inline` = the application's, `worker` = a thread of its own. */
export type Mode = 'inline' | 'worker';

/** Takes the turns of a device. See the head of this file for the invariants. */
export interface Engine {
  /** Which thread takes the turns. */
  readonly mode: Mode;
  /** Description of the engine, for people to read. */
  readonly notes: readonly string[];
  /** Headers of the last frames; undefined if no trace was requested. */
  readonly trace: Trace | undefined;
  /** Called for each event of the card, with an EventType and the handle of its completion queue or queue pair. */
  onEvent: (type: number, handle: number) => void;
  /** Called when the card's thread has failed. No more turns are taken. */
  onFailure: (reason: string) => void;
  /** The reason for the failure of the card's thread; undefined as long as it works. */
  readonly failure: string | undefined;
  /** Does now what the event loop would do next. For callers that poll without returning to the event loop. */
  poll(): void;
  /** Called after work requests were posted. Schedules a turn if the doorbell rings. */
  posted(): void;
  /** Schedules a turn. Called after a change to the card. */
  schedule(): void;
  /** Tells the card that the link's features have changed. */
  linkChanged(): void;
  /**
   * Sets the rules of faults that are in force from the next turn on.
   * @param hits receives the numbers of packets that the rules have hit: f64 each, by `FaultOrder.slot`
   * @throws RangeError if the card has not enough memory left
   */
  setFaults(orders: readonly FaultOrder[], hits: SharedArrayBuffer): Promise<void>;
  /** Makes the device keep the process running until `unref`. Calls are counted. */
  ref(): void;
  /** Undoes one `ref`. */
  unref(): void;
  /** Sends what is ready and closes the link. */
  close(): void;
  /** Resolves after `close`, when threads and file descriptors are released. */
  readonly ended: Promise<void>;
}

/**
 * Sets the card's link parameters from the features of its link.
 * @param hasFaults rules of faults read each frame, so that the card writes it whole, and by itself
 */
export function setLinkFeatures(
  { exports, options }: Card,
  { sourcePort, gso, flowSteering }: LinkFeatures,
  hasFaults = false,
): void {
  let flags = sourcePort === 0 ? 0 : LinkFlag.FIXED_SOURCE_PORT;
  if (options.icrcOffload && !hasFaults) flags |= LinkFlag.ICRC_OFFLOAD;
  const { packets, bytes } = (!hasFaults && gso) || { packets: 0, bytes: 0 };
  exports.setLink(flags, sourcePort, packets, bytes);
  if (flowSteering === undefined) return;
  const { mask, value } = flowSteering;
  if (exports.setQpn(mask, value) !== 0)
    throw outOfRange(`flowSteering is ${value} in the bits ${mask}, must leave 4 numbers for each queue pair`);
}

/** Takes all events from the card's ring and calls `onEvent` for each. */
export function dispatchEvents({ exports, u32 }: Card, onEvent: (type: number, handle: number) => void): void {
  for (let at = exports.eventPeek(); at !== 0; at = exports.eventPeek()) {
    const type = u32[(at + EventOffset.TYPE) >>> 2] as number;
    const handle = u32[(at + EventOffset.HANDLE) >>> 2] as number;
    exports.eventPop(at);
    onEvent(type, handle);
  }
}
