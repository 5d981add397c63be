/**
 * A link wrapper that applies faults to chosen packets of the card's own traffic, by rules such as
 * `drop the 5th WRITE_MIDDLE of qp 1, 2nd time too`. The same traffic gives the same faults. The fault link in
 * src/link/fault applies them by chance.
 */

import type { Frames } from '../../link/frames.js';
import type { LinkCounters } from '../../link/link.js';
import { allocateRing, RingView } from '../../link/ring.js';
import { LinkWrapper } from '../../link/wrapper.js';
import { decodeRoce } from '../packet/decode.js';
import { FaultMatcher } from './faultmatcher.js';
import { type Change, Streams } from './faultpackets.js';

/** Time that a reordered frame waits for the frames that overtake it (ns). */
const REORDER_NS = 1_000_000;
/** The most frames that wait in one direction. Further ones are neither delayed nor reordered. */
const MAX_HELD = 4096;
/** The most rules of a link. Each may duplicate a frame, and all copies need room in the ring. */
export const MAX_FAULT_RULES = 16;
/** Time before frames that the inner link has not taken are offered again (ns). */
const SEND_RETRY_NS = 100_000;

interface HeldFrame {
  readonly frame: Uint8Array;
  readonly options: number;
  /** Time of release (ns of the device's clock). */
  readonly due: number;
  /** Number of passed frames at which the frame is released before `due`. */
  readonly after: number;
}

/** A rule and how many packets it has hit. */
export interface FaultHits {
  /** The text of the rule. */
  readonly rule: string;
  /** Number of packets that it has hit. */
  readonly hits: number;
}

/** One direction: takes frames from one ring, applies the rules, and puts them into another ring. */
class Direction {
  readonly #streams = new Streams();
  readonly #held: HeldFrame[] = [];
  #passed = 0;

  constructor(
    readonly memory: Uint8Array,
    readonly slotBytes: number,
    readonly from: RingView,
    readonly to: RingView,
    readonly rules: readonly FaultMatcher[],
  ) {}

  /** When the next frame is due; 0 = none waits. */
  get deadline(): number {
    return this.#held.length === 0 ? 0 : Math.min(...this.#held.map(({ due }) => due));
  }

  /** Moves frames while there is room. @returns the number taken */
  move(now: number): number {
    this.#release(now);
    let taken = 0;
    for (; this.from.filled > 0 && this.to.free > this.rules.length; taken++) {
      const cursor = this.from.consumer;
      const at = this.from.addr(cursor);
      const length = Math.min(this.from.length(cursor), this.slotBytes);
      if (length > 0) this.#pass(this.memory.slice(at, at + length), this.from.options(cursor), now);
      this.from.consumer = cursor + 1;
      this.#release(now);
    }
    return taken;
  }

  #pass(original: Uint8Array, options: number, now: number): void {
    const decoded = this.rules.length === 0 ? undefined : decodeRoce(original);
    let change: Change = { frame: original, copies: 1, delayNs: 0, overtakers: 0 };
    if (decoded !== undefined) {
      const stream = this.#streams.numberOf(decoded);
      for (const rule of this.rules) if (rule.hits(decoded, stream)) change = rule.apply(change, this.slotBytes);
    }
    const { frame, copies, delayNs, overtakers } = change;
    const isHeld = delayNs > 0 || overtakers > 0;
    for (let i = 0; i < copies; i++)
      if (!isHeld || this.#held.length >= MAX_HELD) this.#put(frame, options);
      else {
        const after = overtakers > 0 ? this.#passed + overtakers : Number.POSITIVE_INFINITY;
        this.#held.push({ frame, options, due: now + (delayNs || REORDER_NS), after });
      }
  }

  #release(now: number): void {
    while (this.#held.length > 0 && this.to.free > 0) {
      const ready = this.#held.findIndex(({ due, after }) => due <= now || after <= this.#passed);
      if (ready < 0) return;
      const [{ frame, options }] = this.#held.splice(ready, 1) as [HeldFrame];
      this.#put(frame, options);
    }
  }

  #put(frame: Uint8Array, options: number): void {
    const cursor = this.to.producer;
    this.memory.set(frame, this.to.addr(cursor));
    this.to.describe(cursor, frame.length, options);
    this.to.producer = cursor + 1;
    this.#passed++;
  }
}

/** A link with faults by rules. Works in inline mode only. */
export class EventFaultLink extends LinkWrapper {
  readonly #rules: readonly FaultMatcher[];
  #sent: Direction | undefined;
  #received: Direction | undefined;
  #now = 0;

  /**
   * @param rules the rules; each counts all packets of its direction, and all that hit a packet apply in their order
   * @throws ScriptError for a mistake in a rule, with its column; RangeError for more than 16 rules
   */
  constructor(inner: ConstructorParameters<typeof LinkWrapper>[0], rules: readonly string[]) {
    super(inner);
    if (rules.length > MAX_FAULT_RULES)
      throw new RangeError(`${rules.length} rules of faults, must be at most ${MAX_FAULT_RULES}`);
    this.#rules = rules.map((text) => new FaultMatcher(text));
  }

  /** The rules and how many packets each has hit so far. */
  get hits(): readonly FaultHits[] {
    return this.#rules.map(({ text, count }) => ({ rule: text, hits: count }));
  }

  /** @throws TypeError without `Frames.allocate`; RangeError if the card has not enough memory left */
  attach(frames: Frames): void {
    const { memory, slotBytes } = frames;
    const tx = allocateRing(frames, frames.tx.mask + 1);
    const rx = allocateRing(frames, frames.rx.mask + 1);
    const direction = (name: 'sent' | 'received', from: typeof tx, to: typeof tx) => {
      const rules = this.#rules.filter((rule) => rule.direction === name);
      return new Direction(memory, slotBytes, new RingView(memory, from), new RingView(memory, to), rules);
    };
    this.#sent = direction('sent', frames.tx, tx);
    this.#received = direction('received', rx, frames.rx);
    this.attachInner({ ...frames, tx, rx });
  }

  send(now: number): number {
    this.#now = now;
    const taken = this.#sent?.move(now) ?? 0;
    this.inner.send(now);
    return taken;
  }

  receive(now: number): number {
    this.#now = now;
    if (this.#sent && this.#sent.deadline > 0) this.send(now);
    this.inner.receive(now);
    return this.#received?.move(now) ?? 0;
  }

  override nextDeadline(): number {
    const retry = (this.#sent?.to.filled ?? 0) > 0 ? this.#now + SEND_RETRY_NS : 0;
    const all = [super.nextDeadline(), this.#sent?.deadline ?? 0, this.#received?.deadline ?? 0, retry];
    const set = all.filter((each) => each > 0);
    return set.length === 0 ? 0 : Math.min(...set);
  }

  /** Adds `fault_rule_1_hits` and so on: the number of packets that each rule has hit. */
  override counters(): LinkCounters {
    const hits = this.#rules.map(({ count }, i) => [`fault_rule_${i + 1}_hits`, count]);
    return { ...super.counters(), ...Object.fromEntries(hits) };
  }
}
