/**
 * Faults between a card and its link, which come and go while the device is open. The gate takes the frames of the
 * receive ring in the card's place, and those that the card puts at the end of the transmit ring before the link sees
 * them; it passes on what the rules leave of them. The thread that takes the device's turns owns the gate.
 */
import { MAX_FAULT_RULES } from '../../link/fault/options.js';
import type { Frames } from '../../link/frames.js';
import { putFrame, RingView } from '../../link/ring.js';
import { singlePackets } from './frames.js';
import { FaultMatcher } from './matcher.js';
import { FaultStream } from './stream.js';

/** A rule that is in force, as plain data. */
export interface FaultOrder {
  /** Another number for each rule of the device. */
  readonly id: number;
  readonly rule: string;
  readonly seed: number;
  /** Index of its number of hits in the shared array. */
  readonly slot: number;
}

/** The card, as the gate uses it. */
export interface GatedCard {
  readonly frames: Frames;
  /** Bytes of a transmit slot. */
  readonly txSlotBytes: number;
  /** Lets the card receive a frame at an offset of its memory, which may be used again then. */
  receive(now: number, at: number, length: number, options: number): void;
  /** Lets the card put frames into its transmit ring, as many as `max`. @returns the number of frames */
  transmit(now: number, max: number): number;
}

/** See the head of this file. */
export class FaultGate {
  readonly #card: GatedCard;
  readonly #memory: Uint8Array;
  readonly #rx: RingView;
  readonly #tx: RingView;
  /** Offset of the slot from which the card receives each frame. */
  readonly #place: number;
  readonly #received: FaultStream;
  readonly #sent: FaultStream;
  readonly #hits: Float64Array;
  #rules = new Map<number, { readonly matcher: FaultMatcher; readonly slot: number }>();
  #now = 0;

  /**
   * @param hits receives the numbers of packets that the rules have hit, by slot
   * @throws RangeError if the card has not enough memory left
   */
  constructor(card: GatedCard, hits: Float64Array) {
    const { memory, rx, tx, slotBytes, allocate } = card.frames;
    this.#card = card;
    this.#hits = hits;
    this.#memory = memory;
    this.#rx = new RingView(memory, rx);
    this.#tx = new RingView(memory, tx);
    this.#place = allocate?.(slotBytes) as number;
    this.#received = new FaultStream(slotBytes, (frame, options) => this.#deliver(frame, options));
    this.#sent = new FaultStream(card.txSlotBytes, (frame, options) => this.#put(frame, options));
  }

  /** Whether it holds nothing back, and changes nothing: the card can use its rings itself. */
  get isIdle(): boolean {
    return this.#received.isIdle && this.#sent.isIdle;
  }

  /** When a frame is due that waits (ns of the device's clock); 0 = none. */
  get deadline(): number {
    const deadlines = [this.#received.deadline, this.#sent.deadline].filter((each) => each > 0);
    return deadlines.length === 0 ? 0 : Math.min(...deadlines);
  }

  /** Sets the rules that are in force. Those that were in force before keep their counts. @throws ScriptError */
  setRules(orders: readonly FaultOrder[]): void {
    const rules = orders.map(({ id, rule, seed, slot }) => {
      const matcher = this.#rules.get(id)?.matcher ?? new FaultMatcher(rule, seed);
      return [id, { matcher, slot }] as const;
    });
    this.#rules = new Map(rules);
    const matchers = [...this.#rules.values()].map(({ matcher }) => matcher);
    this.#received.rules = matchers.filter(({ direction }) => direction === 'received');
    this.#sent.rules = matchers.filter(({ direction }) => direction === 'sent');
  }

  /** Lets the card receive `max` packets, or somewhat more. @returns the number that has arrived, before the faults */
  receive(now: number, max: number): number {
    this.#now = now;
    this.#received.release(now);
    let count = 0;
    while (this.#rx.filled > 0 && count < max) {
      const cursor = this.#rx.consumer;
      const at = this.#rx.addr(cursor);
      const received = this.#memory.slice(at, at + this.#rx.length(cursor));
      const packets = received.length === 0 ? [] : singlePackets(received, this.#rx.options(cursor));
      this.#rx.consumer = cursor + 1;
      count += packets.length;
      for (const { frame, options } of packets) this.#received.pass(frame, options, now);
    }
    this.#countHits();
    return count;
  }

  /** Lets the card transmit up to `max` frames. @returns their number */
  transmit(now: number, max: number): number {
    this.#sent.release(now);
    let count = 0;
    // each rule may duplicate a frame
    while (count < max && this.#tx.free > MAX_FAULT_RULES + 1 && this.#card.transmit(now, 1) > 0) {
      count++;
      const cursor = this.#tx.producer - 1;
      const at = this.#tx.addr(cursor);
      const frame = this.#memory.slice(at, at + this.#tx.length(cursor));
      const options = this.#tx.options(cursor);
      this.#tx.producer = cursor;
      this.#sent.pass(frame, options, now);
    }
    this.#countHits();
    return count;
  }

  #deliver(frame: Uint8Array, options: number): boolean {
    this.#memory.set(frame, this.#place);
    this.#card.receive(this.#now, this.#place, frame.length, options);
    return true;
  }

  #put(frame: Uint8Array, options: number): boolean {
    if (this.#tx.free === 0) return false;
    putFrame(this.#memory, this.#tx, frame, options);
    return true;
  }

  #countHits(): void {
    for (const { matcher, slot } of this.#rules.values()) this.#hits[slot] = matcher.count;
  }
}
