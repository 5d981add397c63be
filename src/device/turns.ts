/** The device's turns, taken by the application's own thread (inline.ts) or by one for it alone (thread.ts). */
import type { FrameMover } from '../link/link.js';
import type { Card } from './card.js';
import type { Trace } from './trace.js';

/** Frames that one turn moves in either direction. */
const BATCH = 128;
/** So many turns send what is ready when a device ends, however long they take; what comes in goes on for ever, perhaps. */
export const LAST_TURNS = 64;
/** So many received packets take long enough that more may have come meanwhile. */
const MANY = 8;
/** How soon to try again when the link would not take a frame (ns). */
const RETRY_SEND = 100_000;

export class Turns {
  /** Keeps the headers of what passes. */
  trace: Trace | undefined;
  /** The last turn has received so much that the next should look for more. */
  hasReceivedMany = false;
  readonly #txProducer: number;
  readonly #txConsumer: number;

  constructor(
    readonly card: Card,
    readonly link: FrameMover,
  ) {
    const { tx } = card.frames;
    this.#txProducer = tx.producer >>> 2;
    this.#txConsumer = tx.consumer >>> 2;
  }

  /**
   * One pass: receive, expire, transmit.
   * @param looks whether the link is asked for frames, which may cost a system call; always before a
   * deadline is taken for passed, as the answer may be there, and where frames come by themselves, to be noted first
   * @returns how much has moved; when anything has, another turn is worth while
   */
  take(now: number, looks: boolean): number {
    const { card, link, trace } = this;
    const { exports } = card;
    let moved = looks || link.arrivesByItself || this.#isDue(now) ? link.receive(now) : 0;
    trace?.received(now);
    moved += exports.rx(now, BATCH);
    this.hasReceivedMany = moved >= MANY;
    exports.expire(now);
    moved += exports.tx(now, BATCH);
    trace?.sent(now);
    if (this.#txPending) moved += link.send(now);
    return moved;
  }

  /** When a turn is due although nothing comes: nanoseconds, 0 = never. */
  nextDeadline(now: number): number {
    const deadline = earliest(this.card.exports.nextDeadline(), this.link.nextDeadline());
    return this.#txPending ? earliest(deadline, now + RETRY_SEND) : deadline;
  }

  #isDue(now: number): boolean {
    const deadline = this.card.exports.nextDeadline();
    return deadline !== 0 && deadline <= now;
  }

  get #txPending(): boolean {
    const { u32 } = this.card;
    return u32[this.#txProducer] !== u32[this.#txConsumer];
  }
}

/** The earlier of two deadlines, 0 meaning none. */
function earliest(a: number, b: number): number {
  if (a === 0) return b;
  return b === 0 || a < b ? a : b;
}
