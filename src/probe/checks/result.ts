/** The result of a check. */
import type { Deviation } from './checkbase.js';

/** The verdict of a check. */
export type Verdict = 'pass' | 'deviates' | 'fails' | 'not applicable' | 'not reachable';

/** A packet of a check. */
export interface Evidence {
  /** Nanoseconds of the port's clock. */
  readonly at: number;
  /** Out: by the check. In: by the peer. */
  readonly direction: 'out' | 'in';
  /** The Ethernet frame. */
  readonly frame: Uint8Array;
}

/** The result of a check. */
export interface CheckResult {
  /** The check's number. */
  readonly number: number;
  /** The check's name. */
  readonly name: string;
  /** Its verdict. */
  readonly verdict: Verdict;
  /** The reason, if it did not pass; the parts that it has not looked at, if it passed. */
  readonly text: string;
  /** The known deviation, if the verdict is that. */
  readonly deviation?: Deviation;
  /** Its measurements by name: nanoseconds or counts. */
  readonly measurements: Readonly<Record<string, readonly number[]>>;
  /** Its packets in their order. */
  readonly evidence: readonly Evidence[];
}
