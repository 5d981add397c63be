/**
 * The engine that takes the device's turns in the application's own thread: posting schedules a run of turns, polling runs
 * one turn, and an idle device sleeps in the event loop until its link is readable or a deadline comes.
 */
import { performance } from 'node:perf_hooks';
import type { Link } from '../link/link.js';
import type { Card } from './card.js';
import { type Engine, tellEvents, tellLink } from './engine.js';
import { Trace } from './trace.js';
import { LAST_TURNS, Turns } from './turns.js';

/** A run of turns lasts at most so long before the event loop gets its turn (ns). */
const RUN_BUDGET = 500_000;
/** So many runs may follow each other in microtasks, which timers and sockets cannot interrupt. */
const RUNS_BEFORE_YIELD = 16;

const RESOLVED = Promise.resolve();

export class InlineEngine implements Engine {
  readonly mode = 'inline';
  readonly notes = ['mode inline: the thread of the program itself runs the card'];
  readonly failure = undefined;
  readonly ended = RESOLVED;
  onEvent: (type: number, handle: number) => void = () => {};
  onFailure: (reason: string) => void = () => {};
  readonly trace: Trace | undefined;
  readonly #turns: Turns;

  #inTurn = false;
  #inRun = false;
  #closed = false;
  #scheduled = false;
  #runsInARow = 0;
  #waiting = false;
  #waitsUntil = 0;
  #waitKeepsAlive = false;
  #holds = 0;

  /** @param trace frames whose headers are kept; 0 = none */
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
    tellLink(this.card, this.link.features);
  }

  /** The device's clock: nanoseconds, monotonic, origin unspecified. */
  now(): number {
    return performance.now() * 1e6;
  }

  /**
   * One pass: receive, expire, transmit, tell. Does nothing when called from inside a turn or after close.
   * @param looks whether the link is asked for frames: who sleeps next will be woken by them, and need not ask
   * @returns whether anything moved, so that another turn is worth while
   */
  turn(looks = true): boolean {
    if (this.#inTurn || this.#closed) return false;
    this.#inTurn = true;
    let moved: number;
    try {
      moved = this.#turns.take(this.now(), looks);
    } finally {
      this.#inTurn = false;
    }
    tellEvents(this.card, this.onEvent);
    return moved > 0;
  }

  /** A turn on behalf of a poller who does not return to the event loop; the sleep is arranged for when it does. */
  poll(): void {
    if (this.turn()) this.schedule();
  }

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

  hold(): void {
    if (this.#holds++ > 0) return;
    this.#rearm();
  }

  release(): void {
    if (--this.#holds > 0) return;
    this.#rearm();
  }

  close(): void {
    if (this.#closed) return;
    for (let turns = 0; turns < LAST_TURNS && this.turn(); turns++);
    this.#closed = true;
    this.link.cancelWait();
    this.link.close();
  }

  /** @returns whether there is still something to do */
  #takeTurns(looks: boolean): boolean {
    const end = this.now() + RUN_BUDGET;
    while (this.turn(looks)) {
      if (this.now() >= end) return true;
      looks = this.#turns.hasReceivedMany;
    }
    return false;
  }

  #run(looks: boolean): void {
    this.#scheduled = false;
    if (this.#closed) return;
    this.#inRun = true;
    const more = this.#takeTurns(looks);
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
    this.#run(false);
  };

  readonly #runInLoop = (): void => {
    this.#runsInARow = 0;
    this.#run(true);
  };

  readonly #onReadable = (): void => {
    this.#waiting = false;
    this.#runsInARow = 0;
    this.#run(true);
  };

  #sleep(): void {
    const deadline = this.#turns.nextDeadline(this.now());
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
}
