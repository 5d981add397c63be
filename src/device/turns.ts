/** The turns of a device. The application's thread (inline.ts) or the card's own thread (cardworker.ts) takes them. */
import type { FrameMover } from '../link/frames.js';
import type { FaultGate } from '../probe/faults/gate.js';
import type { FaultOrder } from '../probe/faults/rules.js';
import type { Card } from './card.js';
import type { Trace } from './trace.js';

/** Maximum number of frames that one turn moves in each direction. */
const BATCH = 128;
/**
 * Maximum number of turns to send what is ready when a device closes. Received frames may keep turns busy without end.
 */
export const MAX_CLOSING_TURNS = 64;
/** Handling this many received packets takes so long that more may have arrived meanwhile. */
const MANY_PACKETS = 8;
/** Delay before frames that the link has not taken are offered again. */
const SEND_RETRY_NS = 100_000;

/** Takes the turns of a card on a link. */
export class Turns {
  /** Records the headers of all frames. */
  trace: Trace | undefined;
  /** Whether the last turn moved so much that the next turn should poll the link again. */
  hasReceivedMany = false;
  #gate: FaultGate | undefined;
  readonly #txProducer: number;
  readonly #txConsumer: number;

  constructor(
    readonly card: Card,
    readonly link: FrameMover,
  ) {
    const { tx } = card.frames;
    this.#txProducer = tx.producer >>> 2;
    this.#txConsumer = tx.consumer >>> 2;
  }

  /**
   * Takes one turn: receive, expire timers, transmit.
   * @param polls whether to call the link's `receive`, which may be a system call. It is called anyway if a deadline
   * has passed, because the awaited packet may have arrived, and if the link pushes frames, which must be noted first.
   * @param batch maximum number of frames that the card takes and makes
   * @returns the number of frames moved. If it is not 0, another turn may find work.
   */
  run(now: number, polls: boolean, batch = BATCH): number {
    const { card, link, trace } = this;
    const { exports } = card;
    const gate = this.#gate?.isIdle === false ? this.#gate : undefined;
    let moved = polls || link.pushesFrames || this.#isDue(now) ? link.receive(now) : 0;
    trace?.recordReceived(now);
    moved += gate?.receive(now, batch) ?? exports.rx(now, batch);
    this.hasReceivedMany = moved >= MANY_PACKETS;
    exports.expire(now);
    moved += gate?.transmit(now, batch) ?? exports.tx(now, batch);
    trace?.recordSent(now);
    if (this.#txPending) moved += link.send(now);
    return moved;
  }

  /** Returns when a turn is due although nothing arrives (ns of the device's clock); 0 = never. */
  nextDeadline(now: number): number {
    const ofCard = earliest(this.card.exports.nextDeadline(), this.#gate?.deadline ?? 0);
    const deadline = earliest(ofCard, this.link.nextDeadline());
    return this.#txPending ? earliest(deadline, now + SEND_RETRY_NS) : deadline;
  }

  /**
   * Sets the rules of faults that are in force.
   * @param gate the class, which is loaded when the first rule is set
   * @param hits receives the numbers of packets that the rules have hit
   * @throws RangeError if the card has not enough memory left
   */
  setFaults(gate: typeof FaultGate, orders: readonly FaultOrder[], hits: SharedArrayBuffer): void {
    const { exports, frames, options } = this.card;
    const { txSlotBytes } = options;
    const gated = { frames, txSlotBytes, receive: exports.rxFrame, transmit: exports.tx };
    this.#gate ??= new gate(gated, new Float64Array(hits));
    this.#gate.setRules(orders);
  }

  #isDue(now: number): boolean {
    const deadline = this.card.exports.nextDeadline();
    return deadline !== 0 && deadline <= now;
  }

  get #txPending(): boolean {
    const { u32 } = this.card;
    return u32[this.#txProducer] !== u32[this.#txConsumer];
  }
}

/** Returns the earlier of two deadlines; 0 = no deadline. */
function earliest(a: number, b: number): number {
  if (a === 0) return b;
  return b === 0 || a < b ? a : b;
}
