/**
 * The audit of a run: every packet of the peer is judged by every rule, in whichever check it comes. A rule that is
 * broken once in thousands of packets is found, and reported once.
 */
import type { Decoded } from '../packet/frame.js';
import type { PacketPort } from '../script/port.js';
import type { Breach, CheckBase, Judge, PacketRule } from './checkbase.js';
import type { CheckResult, Evidence } from './result.js';

/** Packets before the first breach and after it that a result shows. */
const [BEFORE, AFTER] = [12, 4];

/** The place of a packet: its check, and the packets around it. */
export interface AuditPlace {
  /** The check that it came in. */
  readonly check: CheckBase;
  /** The packet. */
  readonly evidence: Evidence;
  /** All packets of the check, which may still grow. */
  readonly all: readonly Evidence[];
}

/** A check that has a rule. */
type Ruled = CheckBase & { readonly rule: PacketRule };

const hasRule = (check: CheckBase): check is Ruled => check.rule !== undefined;

/** The counts of one rule. */
interface Count {
  readonly check: Ruled;
  readonly judge: Judge;
  /** Packets that the rule was about. */
  seen: number;
  broken: number;
  /** Names of the known deviations that breaches have shown; undefined among them: a breach that is none. */
  readonly known: Set<string | undefined>;
  first?: Breach & AuditPlace;
}

/** Judges all packets of the peer in one run. */
export class Audit {
  readonly #counts: readonly Count[];
  readonly #reported: ReadonlySet<CheckBase>;
  /** The number of requests that were answered only when they were repeated, and the check of the first one. */
  readonly repetitions: { count: number; first?: CheckBase } = { count: 0 };

  /**
   * @param checks the checks of the run, which reports their rules
   * @param always checks whose rules hold without a report as well
   */
  constructor(checks: readonly CheckBase[], always: readonly CheckBase[] = []) {
    this.#reported = new Set(checks);
    this.#counts = [...new Set([...checks, ...always])]
      .filter(hasRule)
      .map((check) => ({ check, judge: check.rule.judge(), seen: 0, broken: 0, known: new Set() }));
  }

  /** Judges a packet. @returns the check whose rule makes every receiver drop it; undefined if it is an answer */
  look(packet: Decoded, port: PacketPort, place: AuditPlace): CheckBase | undefined {
    let dropped: CheckBase | undefined;
    for (const count of this.#counts) {
      // a packet that is dropped tells nothing more
      const verdict = dropped === undefined || count.check.rule.isDropped ? count.judge(packet, port) : undefined;
      if (verdict === undefined) continue;
      count.seen++;
      if (verdict === 'fine') continue;
      count.broken++;
      count.known.add(verdict.known);
      count.first ??= { ...verdict, ...place };
      if (count.check.rule.isDropped) dropped ??= count.check;
    }
    return dropped;
  }

  /** Says that the peer has answered requests of a check only when they were repeated. */
  repeated(check: CheckBase): void {
    this.repetitions.count++;
    this.repetitions.first ??= check;
  }

  /** Returns whether the run reports the rule of a check by a result of its own. */
  reports(check: CheckBase): boolean {
    return this.#reported.has(check);
  }

  /**
   * Returns the result of a check with a rule.
   * @param own the result for its own packets. Absent: it sends none
   */
  judged(check: CheckBase, own?: CheckResult): CheckResult {
    const { number, name, known } = check;
    const count = this.#counts.find((one) => one.check === check);
    const result = own ?? {
      ...{ number, name, verdict: 'pass', text: '', measurements: {}, evidence: [] },
    };
    if (count === undefined || (count.seen === 0 && own !== undefined)) return result;
    if (count.seen === 0)
      return { ...result, verdict: 'not applicable', text: 'the checks of this run got no packet that it is about' };
    const { first, seen, broken } = count;
    if (first === undefined) {
      const hasSeen = result.verdict === 'not reachable' ? { verdict: 'pass' as const, text: '' } : {};
      return { ...result, ...hasSeen };
    }
    const { broken: rule } = count.check.rule;
    const where = first.check.name === name ? '' : ` in check ${first.check.number} ${first.check.name}`;
    const text = `${broken} of ${seen} packets ${rule}; the first one${where}: ${first.text}`;
    const [only] = count.known;
    const deviation = count.known.size === 1 && only !== undefined ? known?.[only] : undefined;
    const at = first.all.indexOf(first.evidence);
    const evidence = first.all.slice(Math.max(0, at - BEFORE), at + AFTER + 1);
    return {
      ...result,
      ...{ verdict: deviation ? 'deviates' : 'fails', text, evidence },
      ...(deviation && { deviation }),
    };
  }
}
