/**
 * The device's turns: the only loop, and the only reader of a clock.
 *
 * The engine owns a card and a link and moves frames between them. It runs inline, on the application's own thread:
 * posting schedules a run, polling runs one turn, and an idle device sleeps in the event loop until its link is readable
 * or a deadline comes.
 */
import type { Link } from '../link/link.js';
import type { Card } from './card.js';
import { EventOffset, LinkFlag } from './codes.js';
import type { Trace } from './trace.js';

/** Frames that one turn moves in either direction. */
const BATCH = 64;
/** A run of turns lasts at most so long before the event loop gets its turn (ns). */
const RUN_BUDGET = 500_000;
/** So many runs may follow each other in microtasks, which timers and sockets cannot interrupt. */
const RUNS_BEFORE_YIELD = 16;
/** How soon to try again when the link would not take a frame (ns). */
const RETRY_SEND = 100_000;

const RESOLVED = Promise.resolve();

export class Engine {
  /** Takes what the card tells: an EventType and the handle of the cq or qp it is about. */
  onEvent: (type: number, handle: number) => void = () => {};
  /** Keeps the headers of what passes. */
  trace: Trace | undefined;

  #inTurn = false;
  #inRun = false;
  #closed = false;
  #scheduled = false;
  #runsInARow = 0;
  #waiting = false;
  #waitsUntil = 0;
  #waitKeepsAlive = false;
  #holds = 0;
  readonly #txProducer: number;
  readonly #txConsumer: number;

  constructor(
    readonly card: Card,
    readonly link: Link,
  ) {
    const { frames } = card;
    this.#txProducer = frames.tx.producer >>> 2;
    this.#txConsumer = frames.tx.consumer >>> 2;
    link.attach(frames);
    this.linkChanged();
    this.schedule();
  }

  /** Tells the card what the link promises. */
  linkChanged(): void {
    const { sourcePort, runs = { packets: 0, bytes: 0 } } = this.link.features;
    const flags = sourcePort === 0 ? 0 : LinkFlag.FIXED_SOURCE_PORT;
    this.card.exports.setLink(flags, sourcePort, runs.packets, runs.bytes);
  }

  /** The device's clock: nanoseconds, monotonic, origin unspecified. */
  now(): number {
    return performance.now() * 1e6;
  }

  /**
   * One pass: receive, expire, transmit, tell. Does nothing when called from inside a turn or after close.
   * @returns whether anything moved, so that another turn is worth while
   */
  turn(): boolean {
    if (this.#inTurn || this.#closed) return false;
    const { card, link } = this;
    const now = this.now();
    this.#inTurn = true;
    let moved: number;
    try {
      moved = link.receive(now);
      this.trace?.received(now);
      moved += card.exports.rx(now, BATCH);
      card.exports.expire(now);
      moved += card.exports.tx(now, BATCH);
      this.trace?.sent(now);
      if (this.#txPending) moved += link.send(now);
    } finally {
      this.#inTurn = false;
    }
    this.#tell();
    return moved > 0;
  }

  /** A turn on behalf of a poller who does not return to the event loop; the sleep is arranged for when it does. */
  poll(): void {
    if (this.turn()) this.schedule();
  }

  /** Work requests were posted: the card looks at them soon, where it has to. */
  posted(): void {
    if (this.card.exports.isRung()) this.schedule();
  }

  /** Makes sure that turns run soon: before the event loop goes on, unless that has had to wait too long already. */
  schedule(): void {
    if (this.#scheduled || this.#closed) return;
    this.#scheduled = true;
    if (this.#runsInARow < RUNS_BEFORE_YIELD) RESOLVED.then(this.#runInMicrotask);
    else setImmediate(this.#runInLoop);
  }

  /** From now until `release` the device's sleep keeps the process running. */
  hold(): void {
    if (this.#holds++ > 0) return;
    this.#rearm();
  }

  release(): void {
    if (--this.#holds > 0) return;
    this.#rearm();
  }

  /** Sends what is ready and closes the link. */
  close(): void {
    if (this.#closed) return;
    this.#takeTurns();
    this.#closed = true;
    this.link.cancelWait();
    this.link.close();
  }

  get #txPending(): boolean {
    const { u32 } = this.card;
    return u32[this.#txProducer] !== u32[this.#txConsumer];
  }

  /** @returns whether there is still something to do */
  #takeTurns(): boolean {
    const end = this.now() + RUN_BUDGET;
    while (this.turn()) if (this.now() >= end) return true;
    return false;
  }

  #run(): void {
    this.#scheduled = false;
    if (this.#closed) return;
    this.#inRun = true;
    const more = this.#takeTurns();
    this.#inRun = false;
    if (this.#closed || this.#scheduled) return;
    if (more) {
      this.#scheduled = true;
      setImmediate(this.#runInLoop);
    } else {
      this.#sleep();
    }
  }

  readonly #runInMicrotask = (): void => {
    this.#runsInARow++;
    this.#run();
  };

  readonly #runInLoop = (): void => {
    this.#runsInARow = 0;
    this.#run();
  };

  readonly #onReadable = (): void => {
    this.#waiting = false;
    this.#runsInARow = 0;
    this.#run();
  };

  #sleep(): void {
    let deadline = earliest(this.card.exports.nextDeadline(), this.link.nextDeadline());
    if (this.#txPending) deadline = earliest(deadline, this.now() + RETRY_SEND);
    const keepAlive = this.#holds > 0;
    // A wait that ends too early costs one idle turn, less than asking anew after every turn.
    const endsInTime = deadline === 0 || (this.#waitsUntil !== 0 && this.#waitsUntil <= deadline);
    if (this.#waiting && endsInTime && this.#waitKeepsAlive === keepAlive) return;
    this.#waiting = true;
    this.#waitsUntil = deadline;
    this.#waitKeepsAlive = keepAlive;
    this.link.wait(deadline, keepAlive, this.#onReadable);
  }

  /** Lets a change of `hold` take effect on the sleep; a run or a scheduled run will do that itself. */
  #rearm(): void {
    if (this.#closed || this.#inRun || this.#scheduled) return;
    if (this.#waiting) this.#sleep();
    else this.schedule();
  }

  #tell(): void {
    const { exports, u32 } = this.card;
    for (let at = exports.eventPeek(); at !== 0; at = exports.eventPeek()) {
      const type = u32[(at + EventOffset.TYPE) >>> 2] as number;
      const handle = u32[(at + EventOffset.HANDLE) >>> 2] as number;
      exports.eventPop();
      this.onEvent(type, handle);
    }
  }
}

/** The earlier of two deadlines, 0 meaning none. */
function earliest(a: number, b: number): number {
  if (a === 0) return b;
  return b === 0 || a < b ? a : b;
}
