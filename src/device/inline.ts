/**
 * The engine of mode `inline` takes turns in the application's thread. A post schedules a batch of turns, a poll takes
 * one turn. An idle device waits in the event loop until its link is readable or a deadline expires.
 */
import { performance, setImmediate } from '../base/timers.js';
import type { Link } from '../link/link.js';
import type { FaultOrder } from '../probe/faults/rules.js';
import type { Card } from './card.js';
import { dispatchEvents, type Engine, setLinkFeatures } from './engine.js';
import { Trace } from './trace.js';
import { MAX_CLOSING_TURNS, Turns } from './turns.js';

/** Maximum duration of a batch of turns before the event loop continues (ns). */
const BATCH_BUDGET_NS = 500_000;
/** Maximum number of consecutive batches in microtasks, which timers and sockets cannot interrupt. */
const MAX_MICROTASK_BATCHES = 16;

const RESOLVED = Promise.resolve();

/** Takes turns in the application's thread. */
export class InlineEngine implements Engine {
  readonly mode = 'inline';
  readonly notes = ['mode inline: the card runs in the thread of the application'];
  readonly failure = undefined;
  readonly ended = RESOLVED;
  onEvent: (type: number, handle: number) => void = () => {};
  onFailure: (reason: string) => void = () => {};
  readonly trace: Trace | undefined;
  readonly #turns: Turns;

  #inTurn = false;
  #inBatch = false;
  #closed = false;
  #scheduled = false;
  /** A batch waits in the event loop. A wake-up or a post may start another before it, but adds none there. */
  #isInLoop = false;
  #microtaskBatches = 0;
  #waiting = false;
  #waitDeadline = 0;
  #waitKeepsAlive = false;
  #refs = 0;
  #hasFaults = false;

  /** @param trace number of frames whose headers the trace keeps; 0 = no trace */
  constructor(
    readonly card: Card,
    readonly link: Link,
    trace = 0,
  ) {
    link.attach(card.frames);
    this.#turns = new Turns(card, link);
    if (trace > 0) this.trace = this.#turns.trace = new Trace(card, trace);
    this.linkChanged();
    this.schedule();
  }

  linkChanged(): void {
    setLinkFeatures(this.card, this.link.features, this.#hasFaults);
  }

  async setFaults(orders: readonly FaultOrder[], hits: SharedArrayBuffer): Promise<void> {
    const { FaultGate } = await import('../probe/faults/gate.js');
    if (this.#closed) return;
    this.#turns.setFaults(FaultGate, orders, hits);
    this.#hasFaults = orders.length > 0;
    this.linkChanged();
    this.schedule();
  }

  /** Returns the device's clock: monotonic nanoseconds, origin unspecified. */
  now(): number {
    return performance.now() * 1e6;
  }

  /**
   * Takes one turn and dispatches events. Does nothing inside a turn or after close.
   * @param polls whether to call the link's `receive`. Not needed before a sleep, which frames end.
   * @returns whether anything moved, so that another turn may find work
   */
  turn(polls = true): boolean {
    if (this.#inTurn || this.#closed) return false;
    this.#inTurn = true;
    let moved: number;
    try {
      moved = this.#turns.run(this.now(), polls);
    } finally {
      this.#inTurn = false;
    }
    dispatchEvents(this.card, this.onEvent);
    return moved > 0;
  }

  /** Takes a turn now. If anything moved, schedules more, so that the device sleeps only after an idle turn. */
  poll(): void {
    if (this.turn()) this.schedule();
  }

  posted(): void {
    if (this.card.exports.isDoorbellRung()) this.schedule();
  }

  /** Schedules a batch of turns: in a microtask, or after the event loop if too many batches ran in microtasks. */
  schedule(): void {
    if (this.#scheduled || this.#closed) return;
    this.#scheduled = true;
    if (this.#microtaskBatches < MAX_MICROTASK_BATCHES) RESOLVED.then(this.#runInMicrotask);
    else this.#runAfterEvents();
  }

  ref(): void {
    if (this.#refs++ > 0) return;
    this.#rearm();
  }

  unref(): void {
    if (--this.#refs > 0) return;
    this.#rearm();
  }

  close(): void {
    if (this.#closed) return;
    for (let turns = 0; turns < MAX_CLOSING_TURNS && this.turn(); turns++);
    this.#closed = true;
    this.link.cancelWait();
    this.link.close();
  }

  /** Takes turns until one is idle or the time is over. @returns whether there is work left */
  #takeTurns(polls: boolean): boolean {
    const end = this.now() + BATCH_BUDGET_NS;
    while (this.turn(polls)) {
      if (this.now() >= end) return true;
      polls = this.#turns.hasReceivedMany;
    }
    return false;
  }

  #runBatch(polls: boolean): void {
    this.#scheduled = false;
    if (this.#closed) return;
    this.#inBatch = true;
    const more = this.#takeTurns(polls);
    this.#inBatch = false;
    if (this.#closed || this.#scheduled) return;
    if (more) {
      this.#scheduled = true;
      this.#runAfterEvents();
    } else {
      this.#sleep();
    }
  }

  #runAfterEvents(): void {
    if (!this.#isInLoop) setImmediate(this.#runInLoop);
    this.#isInLoop = true;
  }

  readonly #runInMicrotask = (): void => {
    this.#microtaskBatches++;
    this.#runBatch(false);
  };

  readonly #runInLoop = (): void => {
    this.#isInLoop = false;
    this.#microtaskBatches = 0;
    this.#runBatch(true);
  };

  readonly #onReadable = (): void => {
    this.#waiting = false;
    this.#microtaskBatches = 0;
    this.#runBatch(true);
  };

  #sleep(): void {
    const deadline = this.#turns.nextDeadline(this.now());
    const keepAlive = this.#refs > 0;
    // A wait that ends too early costs one idle turn, less than starting a new wait after every turn.
    const endsInTime = deadline === 0 || (this.#waitDeadline !== 0 && this.#waitDeadline <= deadline);
    if (this.#waiting && endsInTime && this.#waitKeepsAlive === keepAlive) return;
    this.#waiting = true;
    this.#waitDeadline = deadline;
    this.#waitKeepsAlive = keepAlive;
    this.link.wait(deadline, keepAlive, this.#onReadable);
  }

  /** Applies a change of `ref` to the wait. A running or scheduled batch does that itself. */
  #rearm(): void {
    if (this.#closed || this.#inBatch || this.#scheduled) return;
    if (this.#waiting) this.#sleep();
    else this.schedule();
  }
}
