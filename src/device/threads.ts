/**
 * What the two threads of a device in worker mode share beside the card's memory: whose turn it is, who sleeps, and how the
 * card's thread is. The application's thread and the card's each have one of these on the same words.
 */
import { VerbsError } from '../errors.js';

/** The words, each on a cache line of its own. */
enum Word {
  /** The card's thread is in a turn. */
  BUSY = 0,
  /** The application's thread is in a call that changes the card, or wants to be. */
  WANTED = 16,
  /** The card's thread sleeps, or is about to. */
  ASLEEP = 32,
  /** The application's thread wants a turn. */
  ASKED = 48,
  /** The application's thread has been woken, and has not looked yet. */
  TOLD = 64,
  STATE = 80,
  /** Bytes of the text that says why the card's thread has failed; they follow the words. */
  REASON = 96,
}

enum State {
  RUNNING = 0,
  STOPPING = 1,
  STOPPED = 2,
  FAILED = 3,
}

const WORD_BYTES = 448;
const REASON_BYTES = 1024;
/** A turn is short, and so is a call: looks at the other's word before going to sleep over it. */
const LOOKS = 2000;
/** How long a turn may take at the most (ms): it waits for nothing, so this is for a thread that is gone. */
const LONGEST_TURN = 10_000;
/** How long the card's thread waits for the end of the application's call before it looks again (ms). */
const LONGEST_CALL = 100;

export class Threads {
  readonly #words: Int32Array;
  readonly #reason: Uint8Array;
  #depth = 0;

  /** @param shared what the other thread's has; by default new */
  constructor(readonly shared = new SharedArrayBuffer(WORD_BYTES + REASON_BYTES)) {
    this.#words = new Int32Array(shared, 0, WORD_BYTES / 4);
    this.#reason = new Uint8Array(shared, WORD_BYTES);
  }

  // ---- the application's thread

  /**
   * From now until `release` the card's thread takes no turn. It goes first: the other waits after the turn that it is in.
   * Calls may be nested.
   * @throws VerbsError EIO when the turn does not end
   */
  acquire(): void {
    if (this.#depth++ > 0) return;
    const words = this.#words;
    Atomics.store(words, Word.WANTED, 1);
    for (let i = 0; i < LOOKS; i++) if (Atomics.load(words, Word.BUSY) === 0) return;
    while (Atomics.load(words, Word.BUSY) !== 0) {
      if (Atomics.wait(words, Word.BUSY, 1, LONGEST_TURN) !== 'timed-out') continue;
      this.release();
      throw new VerbsError('EIO', `the card's thread does not answer: its turn lasts longer than ${LONGEST_TURN} ms`);
    }
  }

  release(): void {
    if (--this.#depth > 0) return;
    Atomics.store(this.#words, Word.WANTED, 0);
    Atomics.notify(this.#words, Word.WANTED);
  }

  /** Asks for a turn. @returns whether the card's thread must be woken for it */
  ask(): boolean {
    Atomics.store(this.#words, Word.ASKED, 1);
    return this.rouse();
  }

  /** The card's thread sleeps, or is about to. */
  get isAsleep(): boolean {
    return Atomics.load(this.#words, Word.ASLEEP) !== 0;
  }

  /** @returns whether the card's thread sleeps; it is taken to be awake from now on */
  rouse(): boolean {
    return this.isAsleep && Atomics.compareExchange(this.#words, Word.ASLEEP, 1, 0) === 1;
  }

  /** The application's thread looks now: it wants to be told of what comes from now on. */
  looked(): void {
    Atomics.store(this.#words, Word.TOLD, 0);
  }

  /** The card's thread shall end. @returns whether it must be woken for it */
  stop(): boolean {
    Atomics.compareExchange(this.#words, Word.STATE, State.RUNNING, State.STOPPING);
    return this.rouse();
  }

  /** Waits until the card's thread has stopped. @returns false when it has not after so long */
  hasStopped(milliseconds: number): boolean {
    return Atomics.wait(this.#words, Word.STATE, State.STOPPING, milliseconds) !== 'timed-out';
  }

  /** Why the card's thread has ended by itself; undefined as long as it has not. */
  get failure(): string | undefined {
    if (Atomics.load(this.#words, Word.STATE) !== State.FAILED) return undefined;
    const bytes = this.#reason.slice(0, this.#words[Word.REASON]);
    return Buffer.from(bytes).toString();
  }

  get hasFailed(): boolean {
    return Atomics.load(this.#words, Word.STATE) === State.FAILED;
  }

  // ---- the card's thread

  /** Begins a turn, once the application's thread is in no call. */
  enter(): void {
    const words = this.#words;
    for (;;) {
      Atomics.store(words, Word.BUSY, 1);
      if (Atomics.load(words, Word.WANTED) === 0) return;
      Atomics.store(words, Word.BUSY, 0);
      Atomics.notify(words, Word.BUSY);
      let looks = 0;
      while (Atomics.load(words, Word.WANTED) !== 0 && looks < LOOKS) looks++;
      if (looks === LOOKS) Atomics.wait(words, Word.WANTED, 1, LONGEST_CALL);
    }
  }

  leave(): void {
    Atomics.store(this.#words, Word.BUSY, 0);
    if (Atomics.load(this.#words, Word.WANTED) !== 0) Atomics.notify(this.#words, Word.BUSY);
  }

  /** What the application's thread has asked for is done with the turn that begins now. */
  answer(): void {
    Atomics.store(this.#words, Word.ASKED, 0);
  }

  /** From now on the card's thread must be woken. What was asked for before is not: look at `isAsked`. */
  fallAsleep(): void {
    Atomics.store(this.#words, Word.ASLEEP, 1);
  }

  wakeUp(): void {
    Atomics.store(this.#words, Word.ASLEEP, 0);
  }

  /** There is a reason not to fall asleep. */
  get isAsked(): boolean {
    return Atomics.load(this.#words, Word.ASKED) !== 0 || this.isToStop;
  }

  get isToStop(): boolean {
    return Atomics.load(this.#words, Word.STATE) !== State.RUNNING;
  }

  /** There is something to look at. @returns whether the application's thread must be woken for it */
  tell(): boolean {
    return Atomics.load(this.#words, Word.TOLD) === 0 && Atomics.exchange(this.#words, Word.TOLD, 1) === 0;
  }

  /** No more turns are taken. */
  stopped(): void {
    this.#end(State.STOPPED);
  }

  /** No more turns are taken, because of an error. */
  failed(reason: string): void {
    const bytes = Buffer.from(reason).subarray(0, REASON_BYTES);
    this.#reason.set(bytes);
    this.#words[Word.REASON] = bytes.length;
    this.#end(State.FAILED);
  }

  #end(state: State): void {
    Atomics.store(this.#words, Word.STATE, state);
    Atomics.notify(this.#words, Word.STATE);
    this.leave();
  }
}
