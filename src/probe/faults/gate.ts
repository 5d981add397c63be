/**
 * Faults between a card and its link, which come and go while the device is open. The gate takes the frames of the
 * receive ring in the card's place, and those that the card puts at the end of the transmit ring before the link sees
 * them; it passes on what the rules leave of them. The thread that takes the device's turns owns the gate.
 */
import { MAX_FAULT_RULES } from '../../link/fault/options.js';
import type { Frames } from '../../link/frames.js';
import { putFrame, RingView } from '../../link/ring.js';
import { singlePackets } from './frames.js';
import { type FaultOrder, FaultRules } from './rules.js';

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
  readonly #rules: FaultRules;
  #now = 0;

  /**
   * @param hits receives the numbers of packets that the rules have hit, by slot
   * @throws RangeError if the card has not enough memory left
   */
  constructor(card: GatedCard, hits: Float64Array) {
    const { memory, rx, tx, slotBytes, allocate } = card.frames;
    this.#card = card;
    this.#memory = memory;
    this.#rx = new RingView(memory, rx);
    this.#tx = new RingView(memory, tx);
    this.#place = allocate?.(slotBytes) as number;
    this.#rules = new FaultRules(
      hits,
      { maxFrame: slotBytes, put: (frame, options) => this.#deliver(frame, options) },
      { maxFrame: card.txSlotBytes, put: (frame, options) => this.#put(frame, options) },
    );
  }

  /** Whether it holds nothing back, and changes nothing: the card can use its rings itself. */
  get isIdle(): boolean {
    return this.#rules.isIdle;
  }

  /** When a frame is due that waits (ns of the device's clock); 0 = none. */
  get deadline(): number {
    return this.#rules.deadline;
  }

  /** Sets the rules that are in force. Those that were in force before keep their counts. @throws ScriptError */
  setRules(orders: readonly FaultOrder[]): void {
    this.#rules.set(orders);
  }

  /** Lets the card receive `max` packets, or somewhat more. @returns the number that has arrived, before the faults */
  receive(now: number, max: number): number {
    this.#now = now;
    this.#rules.received.release(now);
    let count = 0;
    while (this.#rx.filled > 0 && count < max) {
      const cursor = this.#rx.consumer;
      const at = this.#rx.addr(cursor);
      const received = this.#memory.slice(at, at + this.#rx.length(cursor));
      const packets = received.length === 0 ? [] : singlePackets(received, this.#rx.options(cursor));
      this.#rx.consumer = cursor + 1;
      count += packets.length;
      for (const { frame, options } of packets) this.#rules.received.pass(frame, options, now);
    }
    this.#rules.countHits();
    return count;
  }

  /** Lets the card transmit up to `max` frames. @returns their number */
  transmit(now: number, max: number): number {
    this.#rules.sent.release(now);
    let count = 0;
    // each rule may duplicate a frame
    while (count < max && this.#tx.free > MAX_FAULT_RULES + 1 && this.#card.transmit(now, 1) > 0) {
      count++;
      const cursor = this.#tx.producer - 1;
      const at = this.#tx.addr(cursor);
      const frame = this.#memory.slice(at, at + this.#tx.length(cursor));
      const options = this.#tx.options(cursor);
      this.#tx.producer = cursor;
      this.#rules.sent.pass(frame, options, now);
    }
    this.#rules.countHits();
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
}
