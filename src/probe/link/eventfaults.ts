/**
 * A link wrapper that applies faults to chosen packets, by rules such as `drop the 5th WRITE_MIDDLE of qp 1, 2nd time
 * too`. The same traffic gives the same faults. It meets the packets of other wrappers too, those of a scripted link
 * for instance; a device that has no others uses the gate of src/probe/faults.
 */

import { MAX_FAULT_RULES } from '../../link/fault/options.js';
import type { Frames } from '../../link/frames.js';
import type { LinkCounters } from '../../link/link.js';
import { allocateRing, putFrame, RingView } from '../../link/ring.js';
import { LinkWrapper } from '../../link/wrapper.js';
import { FaultMatcher } from '../faults/matcher.js';
import { FaultStream } from '../faults/stream.js';

/** Time before frames that the inner link has not taken are offered again (ns). */
const SEND_RETRY_NS = 100_000;

/** A rule and how many packets it has hit. */
export interface FaultHits {
  /** The text of the rule. */
  readonly rule: string;
  /** Number of packets that it has hit. */
  readonly hits: number;
}

/** One direction: takes frames from one ring, applies the rules, and puts them into another ring. */
class Direction {
  readonly #faults: FaultStream;

  constructor(
    readonly memory: Uint8Array,
    slotBytes: number,
    readonly from: RingView,
    readonly to: RingView,
    rules: readonly FaultMatcher[],
  ) {
    this.#faults = new FaultStream(slotBytes, (frame, options) => this.#put(frame, options));
    this.#faults.rules = rules;
  }

  /** When the next frame is due; 0 = none waits. */
  get deadline(): number {
    return this.#faults.deadline;
  }

  /** Moves frames while there is room. @returns the number taken */
  move(now: number): number {
    this.#faults.release(now);
    let taken = 0;
    for (; this.from.filled > 0 && this.to.free > MAX_FAULT_RULES; taken++) {
      const cursor = this.from.consumer;
      const at = this.from.addr(cursor);
      const length = Math.min(this.from.length(cursor), this.#faults.maxFrame);
      if (length > 0) this.#faults.pass(this.memory.slice(at, at + length), this.from.options(cursor), now);
      this.from.consumer = cursor + 1;
    }
    return taken;
  }

  #put(frame: Uint8Array, options: number): boolean {
    if (this.to.free === 0) return false;
    putFrame(this.memory, this.to, frame, options);
    return true;
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
   * @param seed of rules by chance; that of the second rule is one more, and so on
   * @throws ScriptError for a mistake in a rule, with its column; RangeError for more than 16 rules
   */
  constructor(inner: ConstructorParameters<typeof LinkWrapper>[0], rules: readonly string[], seed = 1) {
    super(inner);
    if (rules.length > MAX_FAULT_RULES)
      throw new RangeError(`${rules.length} rules of faults, must be at most ${MAX_FAULT_RULES}`);
    this.#rules = rules.map((text, i) => new FaultMatcher(text, seed + i));
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
