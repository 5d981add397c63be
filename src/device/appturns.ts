/**
 * Turns that the application's thread takes although the card has a thread of its own (worker.ts), while that one
 * sleeps. A frame that the application waits for then needs one thread to wake up in place of two, one after the other,
 * and a post needs none. The card's thread looks now and then whether this one still takes turns, and serves the peers
 * when it is busy (native/core/turnthread.h).
 */
import { performance } from '../base/timers.js';
import type { Link } from '../link/link.js';
import { adoptLink } from '../link/transfer.js';
import type { ThreadPlan } from './cardthread.js';
import { Turns } from './turns.js';

/** Frames that a turn moves in each direction. More are for the card's thread: the application has other work. */
const BATCH = 8;
/** Consecutive wake-ups without an event after which this thread no longer watches. */
const MAX_IDLE_WAKEUPS = 4;
/** Time for which this thread does not watch after many frames (ms). */
const PAUSE_MS = 10;

/** The turns of the application's thread. */
export class AppTurns {
  readonly #turns: Turns;
  #isWatching = false;
  #idleWakeups = 0;
  #pausedUntil = 0;

  /**
   * @param onFrames called when frames have woken this thread: it calls `receive`
   * @param wakeThread wakes the card's thread if it sleeps
   */
  constructor(
    readonly plan: Pick<ThreadPlan, 'card' | 'turnLock' | 'transfer'>,
    readonly link: Link,
    readonly onFrames: () => void,
    readonly wakeThread: () => void,
  ) {
    const { card, transfer } = plan;
    this.#turns = new Turns(
      card,
      adoptLink(transfer, card.bytes, () => link.onTransferNotice?.()),
    );
  }

  /** Called when an event of the card has woken this thread: the next frame may wake it directly. */
  watch(): void {
    this.#idleWakeups = 0;
    this.#watchIfUseful();
  }

  /** Leaves all turns to the card's thread from now on. */
  end(): void {
    this.#pausedUntil = Number.POSITIVE_INFINITY;
    this.link.cancelWait();
    this.plan.turnLock.setAppWatching(false);
  }

  /** Takes a turn after frames have woken this thread. */
  receive(): void {
    const { card, turnLock } = this.plan;
    this.#isWatching = false;
    if (this.#run(true)) {
      this.#pausedUntil = performance.now() + PAUSE_MS;
      this.wakeThread();
    }
    turnLock.countAppTurn();
    this.#idleWakeups = card.exports.eventPeek() === 0 ? this.#idleWakeups + 1 : 0;
    this.#watchIfUseful();
  }

  /** Takes a turn after a post, in place of the card's thread, which sleeps. */
  transmit(): void {
    if (this.#run(false)) this.wakeThread();
  }

  /** @returns whether the card's thread must go on: there may be much left to do, or it would sleep for too long */
  #run(polls: boolean): boolean {
    const { turnLock } = this.plan;
    if (turnLock.hasFailed) return false;
    try {
      turnLock.acquire();
    } catch {
      // the other thread does not end its turn: the next call of the program says so
      return false;
    }
    try {
      const now = performance.now() * 1e6;
      if (this.#turns.run(now, polls, BATCH) >= BATCH) return true;
      if (polls) return false; // the frames have woken that thread, too: it looks at its deadline soon
      const deadline = this.#turns.nextDeadline(now);
      return deadline !== 0 && deadline < turnLock.sleepEnd;
    } catch (error) {
      turnLock.markFailed((error as Error).message);
      return true;
    } finally {
      turnLock.release();
    }
  }

  /** Watches as long as that brings events, in few frames. */
  #watchIfUseful(): void {
    const isUseful = this.#idleWakeups < MAX_IDLE_WAKEUPS && performance.now() >= this.#pausedUntil;
    this.plan.turnLock.setAppWatching(isUseful);
    if (!isUseful || this.#isWatching) return;
    this.#isWatching = true;
    this.link.wait(0, false, this.onFrames);
  }
}
