/**
 * The state that the two threads of a device in mode `worker` share beside the card's memory: whether a turn or a call
 * is in progress, whether the card's thread sleeps, and whether it runs. Each thread has a TurnLock on the same memory.
 * The methods are in two sections, one for each thread. native/core/turnlock.h is that of a card's thread without
 * JavaScript. Threads wait by futexes, because Atomics.notify does not wake such a thread.
 */
import { performance } from '../base/timers.js';
import { VerbsError } from '../errors.js';
import { native } from '../native.js';

/** Indexes of the 32-bit words. Each word is on its own cache line. */
export enum WordIndex {
  /** The card's thread is in a turn. */
  IN_TURN = 0,
  /** The application's thread is in a call that needs the lock, or waits for it. */
  IN_CALL = 16,
  /** The card's thread sleeps, or is about to sleep. */
  ASLEEP = 32,
  /** The application's thread has requested a turn. */
  TURN_REQUESTED = 48,
  /** The application's thread has been notified of events and has not looked for them yet. */
  NOTIFIED = 64,
  /** A WorkerState. */
  STATE = 80,
  /** Bytes of the reason for a failure. The text follows the words. */
  FAILURE_BYTES = 96,
  /** The application's thread has sent rules of faults. */
  FAULTS_REQUESTED = 112,
  /** Frames wake the application's thread, too, which then takes the turn. */
  APP_WATCHING = 128,
  /** Number of turns that the application's thread has taken, modulo 2^32. */
  APP_TURNS = 144,
  /** A 64-bit floating-point number: until when the card's thread sleeps at most (ns of the device's clock). */
  SLEEP_END = 160,
}

/** State of the card's thread. */
enum WorkerState {
  RUNNING = 0,
  STOPPING = 1,
  STOPPED = 2,
  FAILED = 3,
}

const WORD_BYTES = 1024;
const MAX_FAILURE_BYTES = 1024;
/** IN_TURN and IN_CALL: the other thread sleeps until the end, and must be woken. */
const AWAITED = 2;
/** Reads of the other thread's word before a thread sleeps. Turns and calls are short. */
const SPIN_LIMIT = 2000;
/** Maximum duration of a turn. A turn never blocks, so a longer one means that the thread is gone. */
const MAX_TURN_MS = 10_000;
/** Time that the card's thread waits for the end of a call before it reads the word again. */
const CALL_POLL_MS = 100;

/** Mutual exclusion of turns and calls, with priority for calls, and the wake-ups between both threads. */
export class TurnLock {
  /** The words, for a thread without JavaScript. */
  readonly words: Int32Array;
  readonly #sleepEnd: Float64Array;
  readonly #failure: Uint8Array;
  #depth = 0;

  /** @param shared memory of the other thread's TurnLock. Default: new */
  constructor(readonly shared = new SharedArrayBuffer(WORD_BYTES + MAX_FAILURE_BYTES)) {
    this.words = new Int32Array(shared, 0, WORD_BYTES / 4);
    this.#sleepEnd = new Float64Array(shared, WordIndex.SLEEP_END * 4, 1);
    this.#failure = new Uint8Array(shared, WORD_BYTES);
  }

  // ---- Called by the application's thread.

  /**
   * Keeps the card's thread from taking turns until `release`. Waits for the current turn to end. Calls may be nested.
   * @throws VerbsError EIO if the turn does not end
   */
  acquire(): void {
    if (this.#depth++ > 0) return;
    const words = this.words;
    Atomics.store(words, WordIndex.IN_CALL, 1);
    for (let i = 0; i < SPIN_LIMIT; i++) if (Atomics.load(words, WordIndex.IN_TURN) === 0) return;
    const end = performance.now() + MAX_TURN_MS;
    while (this.#sleepWhile(WordIndex.IN_TURN, MAX_TURN_MS)) {
      if (performance.now() < end) continue;
      this.release();
      throw new VerbsError(
        'EIO',
        `the card's thread does not respond: a turn has lasted longer than ${MAX_TURN_MS} ms`,
      );
    }
  }

  release(): void {
    if (--this.#depth > 0) return;
    this.#end(WordIndex.IN_CALL);
  }

  /** Requests a turn. @returns whether the caller must wake the card's thread */
  requestTurn(): boolean {
    Atomics.store(this.words, WordIndex.TURN_REQUESTED, 1);
    return this.claimWakeup();
  }

  /** Whether the card's thread sleeps, or is about to sleep. */
  get isAsleep(): boolean {
    return Atomics.load(this.words, WordIndex.ASLEEP) !== 0;
  }

  /** Claims the wake-up of the card's thread. @returns true, once for each sleep: the caller must wake the thread */
  claimWakeup(): boolean {
    return this.isAsleep && Atomics.compareExchange(this.words, WordIndex.ASLEEP, 1, 0) === 1;
  }

  /** Until when the card's thread sleeps at most, if it sleeps (ns of the device's clock). */
  get sleepEnd(): number {
    return this.#sleepEnd[0] as number;
  }

  /** Tells the card's thread whether frames wake this one, too, which then takes the turn. */
  setAppWatching(isWatching: boolean): void {
    Atomics.store(this.words, WordIndex.APP_WATCHING, isWatching ? 1 : 0);
  }

  /** Tells the card's thread that this one has taken a turn. */
  countAppTurn(): void {
    Atomics.add(this.words, WordIndex.APP_TURNS, 1);
  }

  /** Clears the notification. Call it before looking for events, so that later events notify again. */
  clearNotice(): void {
    Atomics.store(this.words, WordIndex.NOTIFIED, 0);
  }

  /** Requests that the card's thread reads the rules of faults. @returns whether the caller must wake that thread */
  requestFaults(): boolean {
    Atomics.store(this.words, WordIndex.FAULTS_REQUESTED, 1);
    return this.claimWakeup();
  }

  /** Requests that the card's thread stops. @returns whether the caller must wake the card's thread */
  requestStop(): boolean {
    Atomics.compareExchange(this.words, WordIndex.STATE, WorkerState.RUNNING, WorkerState.STOPPING);
    return this.claimWakeup();
  }

  /** Blocks until the card's thread has stopped. @returns false if it has not stopped in that time */
  waitStopped(milliseconds: number): boolean {
    const end = performance.now() + milliseconds;
    while (Atomics.load(this.words, WordIndex.STATE) === WorkerState.STOPPING) {
      const left = end - performance.now();
      if (left <= 0) return false;
      native().futexWait(this.words, WordIndex.STATE, WorkerState.STOPPING, left);
    }
    return true;
  }

  /** Lets another thread take the turns after one that has stopped. */
  restart(): void {
    Atomics.store(this.words, WordIndex.STATE, WorkerState.RUNNING);
  }

  /** The reason for the failure of the card's thread; undefined if it has not failed. */
  get failure(): string | undefined {
    if (Atomics.load(this.words, WordIndex.STATE) !== WorkerState.FAILED) return undefined;
    const bytes = this.#failure.slice(0, this.words[WordIndex.FAILURE_BYTES]);
    return Buffer.from(bytes).toString();
  }

  /** Whether the card's thread has failed. */
  get hasFailed(): boolean {
    return Atomics.load(this.words, WordIndex.STATE) === WorkerState.FAILED;
  }

  // ---- Called by the card's thread.

  /** Begins a turn. Waits until the application's thread is in no call. */
  beginTurn(): void {
    const words = this.words;
    for (;;) {
      Atomics.store(words, WordIndex.IN_TURN, 1);
      if (Atomics.load(words, WordIndex.IN_CALL) === 0) return;
      this.endTurn();
      let spins = 0;
      while (Atomics.load(words, WordIndex.IN_CALL) !== 0 && spins < SPIN_LIMIT) spins++;
      if (spins === SPIN_LIMIT) this.#sleepWhile(WordIndex.IN_CALL, CALL_POLL_MS);
    }
  }

  /** Ends a turn. */
  endTurn(): void {
    this.#end(WordIndex.IN_TURN);
  }

  /** Clears the request for a turn. Call it at the start of the turn that serves it. */
  clearRequest(): void {
    Atomics.store(this.words, WordIndex.TURN_REQUESTED, 0);
  }

  /** Announces a sleep: requests from now on wake the thread. Check `hasRequest` for earlier ones before sleeping. */
  beginSleep(): void {
    Atomics.store(this.words, WordIndex.ASLEEP, 1);
  }

  /** Ends the announcement of a sleep. */
  endSleep(): void {
    Atomics.store(this.words, WordIndex.ASLEEP, 0);
  }

  /** Whether a turn, other faults or the stop was requested. */
  get hasRequest(): boolean {
    return Atomics.load(this.words, WordIndex.TURN_REQUESTED) !== 0 || this.hasFaultRequest || this.isStopping;
  }

  /** Whether rules of faults wait to be read. */
  get hasFaultRequest(): boolean {
    return Atomics.load(this.words, WordIndex.FAULTS_REQUESTED) !== 0;
  }

  /** Clears the request before the rules are read. */
  clearFaultRequest(): void {
    Atomics.store(this.words, WordIndex.FAULTS_REQUESTED, 0);
  }

  /** Whether the thread must stop. */
  get isStopping(): boolean {
    return Atomics.load(this.words, WordIndex.STATE) !== WorkerState.RUNNING;
  }

  /** Claims the notification of events. @returns true, until the application looks: the caller must wake that thread */
  claimNotice(): boolean {
    return (
      Atomics.load(this.words, WordIndex.NOTIFIED) === 0 && Atomics.exchange(this.words, WordIndex.NOTIFIED, 1) === 0
    );
  }

  /** Reports that the thread takes no more turns. */
  markStopped(): void {
    this.#stop(WorkerState.STOPPED);
  }

  /**
   * Reports that the thread takes no more turns because of an error. Also called by the application for a dead thread.
   */
  markFailed(reason: string): void {
    const bytes = Buffer.from(reason).subarray(0, MAX_FAILURE_BYTES);
    this.#failure.set(bytes);
    this.words[WordIndex.FAILURE_BYTES] = bytes.length;
    this.#stop(WorkerState.FAILED);
  }

  #stop(state: WorkerState): void {
    Atomics.store(this.words, WordIndex.STATE, state);
    native().futexWake(this.words, WordIndex.STATE);
    this.endTurn();
  }

  /** Ends a turn or a call. */
  #end(word: WordIndex): void {
    if (Atomics.exchange(this.words, word, 0) === AWAITED) native().futexWake(this.words, word);
  }

  /** Sleeps until the end of a turn or a call. @returns whether it may go on; false = it has ended */
  #sleepWhile(word: WordIndex, milliseconds: number): boolean {
    if (Atomics.compareExchange(this.words, word, 1, AWAITED) === 0) return false;
    native().futexWait(this.words, word, AWAITED, milliseconds);
    return true;
  }
}
