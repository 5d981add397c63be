/** The rules of faults that are in force, and the two directions of traffic that pass by them. */
import { FaultMatcher } from './matcher.js';
import { FaultStream, type PutFrame } from './stream.js';

/** A rule that is in force, as plain data. */
export interface FaultOrder {
  /** Another number for each rule of the device. */
  readonly id: number;
  readonly rule: string;
  readonly seed: number;
  /** Index of its number of hits in the shared array. */
  readonly slot: number;
}

/** Takes what is left of one direction. */
interface Outlet {
  /** Bytes of the largest frame that `put` takes. */
  readonly maxFrame: number;
  readonly put: PutFrame;
}

/** See the head of this file. */
export class FaultRules {
  readonly received: FaultStream;
  readonly sent: FaultStream;
  readonly #hits: Float64Array;
  #rules = new Map<number, { readonly matcher: FaultMatcher; readonly slot: number }>();

  /** @param hits receives the numbers of packets that the rules have hit, by slot */
  constructor(hits: Float64Array, received: Outlet, sent: Outlet) {
    this.#hits = hits;
    this.received = new FaultStream(received.maxFrame, received.put);
    this.sent = new FaultStream(sent.maxFrame, sent.put);
  }

  /** Whether they hold nothing back, and change nothing. */
  get isIdle(): boolean {
    return this.received.isIdle && this.sent.isIdle;
  }

  /** When a frame is due that waits (ns of the device's clock); 0 = none. */
  get deadline(): number {
    const deadlines = [this.received.deadline, this.sent.deadline].filter((each) => each > 0);
    return deadlines.length === 0 ? 0 : Math.min(...deadlines);
  }

  /** Sets the rules that are in force. Those that were in force before keep their counts. @throws ScriptError */
  set(orders: readonly FaultOrder[]): void {
    const rules = orders.map(({ id, rule, seed, slot }) => {
      const matcher = this.#rules.get(id)?.matcher ?? new FaultMatcher(rule, seed);
      return [id, { matcher, slot }] as const;
    });
    this.#rules = new Map(rules);
    const matchers = [...this.#rules.values()].map(({ matcher }) => matcher);
    this.received.rules = matchers.filter(({ direction }) => direction === 'received');
    this.sent.rules = matchers.filter(({ direction }) => direction === 'sent');
  }

  /** Writes the numbers of hits, after packets have passed. */
  countHits(): void {
    for (const { matcher, slot } of this.#rules.values()) this.#hits[slot] = matcher.count;
  }
}
