/**
 * The program of the thread that runs the card of a device in worker mode: it takes turns, looks a while for more, and
 * sleeps until a frame, the application or a deadline wakes it.
 */
import { performance } from 'node:perf_hooks';
import { parentPort, workerData } from 'node:worker_threads';
import { borrow, type Loan } from '../link/loan.js';
import { native } from '../native.js';
import { Card, type CardOptions } from './card.js';
import { Spin } from './spin.js';
import { Threads } from './threads.js';
import { Trace } from './trace.js';
import { LAST_TURNS, Turns } from './turns.js';

/** What the application's thread hands over (worker.ts). */
export interface ThreadStart {
  readonly module: WebAssembly.Module;
  readonly memory: WebAssembly.Memory;
  readonly options: CardOptions;
  readonly threads: SharedArrayBuffer;
  readonly loan: Loan;
  /** File descriptors that wake this thread and the application's. */
  readonly ownWaker: number;
  readonly otherWaker: number;
  /** Longest look for work before a sleep (ns). */
  readonly spin: number;
  readonly trace?: { readonly capacity: number; readonly shared: SharedArrayBuffer };
  /** What process.hrtime says when the device's clock says 0 (ns). */
  readonly clockOrigin: bigint;
}

/** A sleep that nothing ends does (ns): the end of a process cannot wake who sleeps in the kernel. */
const LONGEST_SLEEP = 500e6;

class CardThread {
  readonly #threads: Threads;
  readonly #card: Card;
  readonly #turns: Turns;
  readonly #spin: Spin;
  /** What to add to this thread's clock for the device's. */
  readonly #clockOffset: number;

  constructor(
    card: Card,
    readonly start: ThreadStart,
  ) {
    this.#card = card;
    this.#threads = new Threads(start.threads);
    this.#turns = new Turns(
      card,
      borrow(start.loan, card.bytes, () => this.#tellOther()),
    );
    if (start.trace) this.#turns.trace = new Trace(card, start.trace.capacity, start.trace.shared);
    this.#spin = new Spin(start.spin);
    this.#clockOffset = Number(process.hrtime.bigint() - start.clockOrigin) - performance.now() * 1e6;
  }

  /** Until it shall stop. */
  run(): void {
    const threads = this.#threads;
    const turns = this.#turns;
    let busyAt = this.#now();
    let sleptFrom = 0;
    while (!threads.isToStop) {
      threads.enter();
      threads.answer();
      const now = this.#now();
      const moved = turns.take(now, true);
      const deadline = moved > 0 ? 0 : turns.nextDeadline(now);
      threads.leave();
      this.#tell();
      if (moved > 0) {
        if (sleptFrom !== 0) this.#spin.slept(now - sleptFrom);
        sleptFrom = 0;
        busyAt = now;
      } else if (now - busyAt >= this.#spin.length) {
        sleptFrom = now;
        this.#sleep(deadline);
      }
    }
    this.#finish();
  }

  /** Sends what is ready. */
  #finish(): void {
    this.#threads.enter();
    for (let turns = 0; turns < LAST_TURNS && this.#turns.take(this.#now(), true) > 0; turns++);
    this.#threads.leave();
    this.#tell();
  }

  #sleep(deadline: number): void {
    const threads = this.#threads;
    threads.fallAsleep();
    // Who rings or asks from now on wakes; who did before is seen here.
    if (!this.#card.exports.isRung() && !threads.isAsked) {
      const longest = deadline === 0 ? LONGEST_SLEEP : Math.min(deadline - this.#now(), LONGEST_SLEEP);
      if (longest > 0) native().wakerSleep(this.start.ownWaker, this.start.loan.fd, longest);
    }
    threads.wakeUp();
  }

  #tell(): void {
    if (this.#card.exports.eventPeek() !== 0) this.#tellOther();
  }

  #tellOther(): void {
    if (this.#threads.tell()) native().wakerWake(this.start.otherWaker);
  }

  #now(): number {
    return performance.now() * 1e6 + this.#clockOffset;
  }
}

const start = workerData as ThreadStart;
const threads = new Threads(start.threads);
try {
  const thread = new CardThread(await Card.join(start.module, start.memory, start.options), start);
  parentPort?.postMessage('running');
  thread.run();
  threads.stopped();
} catch (error) {
  threads.failed(error instanceof Error ? (error.stack ?? error.message) : String(error));
  throw error;
}
