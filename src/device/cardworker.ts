/**
 * The program of the card's thread in mode `worker`. It takes turns as long as there is work, polls for more work for a
 * while, and then sleeps until a frame, the application or a deadline wakes it.
 */
import { type MessagePort, parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads';
import { performance } from '../base/timers.js';
import { adoptLink, type LinkTransfer } from '../link/transfer.js';
import { native } from '../native.js';
import type { FaultOrder } from '../probe/faults/rules.js';
import { Card, type CardOptions } from './card.js';
import { Spin } from './spin.js';
import { Trace } from './trace.js';
import { TurnLock } from './turnlock.js';
import { MAX_CLOSING_TURNS, Turns } from './turns.js';

/** Data that the application's thread passes to the card's thread (worker.ts). */
export interface CardWorkerData {
  readonly module: WebAssembly.Module;
  readonly memory: WebAssembly.Memory;
  readonly options: CardOptions;
  /** Memory of the TurnLock. */
  readonly turnLock: SharedArrayBuffer;
  readonly transfer: LinkTransfer;
  /** The eventfd that wakes the card's thread. */
  readonly workerEventfd: number;
  /** The eventfd that wakes the application's thread. */
  readonly appEventfd: number;
  /** Maximum time to poll for work before a sleep (ns). */
  readonly spinNs: number;
  readonly trace?: { readonly capacity: number; readonly shared: SharedArrayBuffer };
  /** Value of process.hrtime when the device's clock is 0 (ns). */
  readonly clockOrigin: bigint;
  /** Whether the thread takes no turn before it has got rules of faults. */
  readonly waitsForFaults: boolean;
}

/** Rules of faults that the application's thread sets. The card's thread reads it when `turnLock.hasFaultRequest`. */
export interface FaultMessage {
  readonly orders: readonly FaultOrder[];
  readonly hits: SharedArrayBuffer;
  /** Receives the error, or undefined. */
  readonly done: MessagePort;
}

/** Maximum duration of a sleep. The end of the process cannot wake a thread that sleeps in the kernel. */
const MAX_SLEEP_NS = 500e6;

class CardWorker {
  readonly #turnLock: TurnLock;
  readonly #card: Card;
  readonly #turns: Turns;
  readonly #spin: Spin;
  /** Added to this thread's clock, gives the device's clock (ns). */
  readonly #clockOffset: number;

  constructor(
    card: Card,
    readonly data: CardWorkerData,
  ) {
    this.#card = card;
    this.#turnLock = new TurnLock(data.turnLock);
    this.#turns = new Turns(
      card,
      adoptLink(data.transfer, card.bytes, () => this.#notifyApplication()),
    );
    if (data.trace) this.#turns.trace = new Trace(card, data.trace.capacity, data.trace.shared);
    this.#spin = new Spin(data.spinNs);
    this.#clockOffset = Number(process.hrtime.bigint() - data.clockOrigin) - performance.now() * 1e6;
  }

  /** Takes turns until the application requests the stop. @param waits for faults, which come before the first turn */
  async run(waits: boolean): Promise<void> {
    while (waits && !this.#turnLock.hasFaultRequest && !this.#turnLock.isStopping) this.#sleep(0);
    for (;;) {
      this.#takeTurns();
      if (this.#turnLock.isStopping) break;
      await this.#setFaults();
    }
    this.#finish();
  }

  /** Takes turns until the application requests the stop, or other faults. */
  #takeTurns(): void {
    const turnLock = this.#turnLock;
    const turns = this.#turns;
    let busyAt = this.#now();
    let sleepStart = 0;
    while (!turnLock.isStopping && !turnLock.hasFaultRequest) {
      turnLock.beginTurn();
      turnLock.clearRequest();
      const now = this.#now();
      const moved = turns.run(now, true);
      const deadline = moved > 0 ? 0 : turns.nextDeadline(now);
      turnLock.endTurn();
      this.#notifyOfEvents();
      if (moved > 0) {
        if (sleepStart !== 0) this.#spin.recordSleep(now - sleepStart);
        sleepStart = 0;
        busyAt = now;
      } else if (now - busyAt >= this.#spin.duration) {
        sleepStart = now;
        this.#sleep(deadline);
      }
    }
  }

  async #setFaults(): Promise<void> {
    const { FaultGate } = await import('../probe/faults/gate.js');
    this.#turnLock.clearFaultRequest();
    for (;;) {
      const { orders, hits, done } = (parentPort && receiveMessageOnPort(parentPort)?.message) ?? {};
      if (done === undefined) return;
      this.#turnLock.beginTurn();
      let failed: unknown;
      try {
        this.#turns.setFaults(FaultGate, orders, hits);
      } catch (error) {
        failed = error;
      }
      this.#turnLock.endTurn();
      done.postMessage(failed);
      done.close();
    }
  }

  /** Sends what is ready. Received frames could keep it busy without end, so the number of turns is limited. */
  #finish(): void {
    this.#turnLock.beginTurn();
    for (let turns = 0; turns < MAX_CLOSING_TURNS && this.#turns.run(this.#now(), true) > 0; turns++);
    this.#turnLock.endTurn();
    this.#notifyOfEvents();
  }

  #sleep(deadline: number): void {
    const turnLock = this.#turnLock;
    turnLock.beginSleep();
    // A doorbell or request from now on wakes this thread; an earlier one is seen here.
    if (!this.#card.exports.isDoorbellRung() && !turnLock.hasRequest) {
      const duration = deadline === 0 ? MAX_SLEEP_NS : Math.min(deadline - this.#now(), MAX_SLEEP_NS);
      if (duration > 0) native().eventfdWait(this.data.workerEventfd, this.data.transfer.fd, duration);
    }
    turnLock.endSleep();
  }

  #notifyOfEvents(): void {
    if (this.#card.exports.eventPeek() !== 0) this.#notifyApplication();
  }

  #notifyApplication(): void {
    if (this.#turnLock.claimNotice()) native().eventfdSignal(this.data.appEventfd);
  }

  #now(): number {
    return performance.now() * 1e6 + this.#clockOffset;
  }
}

const data = workerData as CardWorkerData;
const turnLock = new TurnLock(data.turnLock);
try {
  const worker = new CardWorker(await Card.join(data.module, data.memory, data.options), data);
  parentPort?.postMessage('running');
  await worker.run(data.waitsForFaults);
  turnLock.markStopped();
} catch (error) {
  turnLock.markFailed(error instanceof Error ? (error.stack ?? error.message) : String(error));
  throw error;
}
