/** A run of checks against one peer, of which reports are made. */

import type { CheckBase } from '../checks/checkbase.js';
import type { CheckResult } from '../checks/result.js';

/** A link of ours that packets of the run took. */
export interface ProbeLink {
  /** Kind of the link: packet, udp, xdp or memory. */
  readonly kind: string;
  /** Name of the interface. */
  readonly interface: string;
  /** Our IP address on it. */
  readonly address: string;
  /** Path MTU, in bytes of payload. */
  readonly mtu: number;
  /** Error of the times of packets, in nanoseconds. Absent: unknown. */
  readonly timeError?: number;
}

/** A run of checks against one peer. */
export interface ProbeRun {
  /** The peer as the user named it, usually its IP address. */
  readonly peer: string;
  /** Version of the program that ran the checks. */
  readonly version: string;
  /** When the first packet of the evidence left, or when the run began if there is none. */
  readonly date: Date;
  /** The links that the packets took. */
  readonly links: readonly ProbeLink[];
  /** The checks, of which `results` are: `CHECKS` or a choice of them. */
  readonly checks: readonly CheckBase[];
  /** Results of the checks; those that did not run have their reason as text. */
  readonly results: readonly CheckResult[];
  /** The reason why the run ended before its last check. Absent: it did not. */
  readonly ended?: string;
}

/** A check and what came of it. */
export interface Outcome {
  /** The check. */
  readonly check: CheckBase;
  /** Its result. */
  readonly result: CheckResult;
}

/**
 * Returns each result with its check, in the order of the checks.
 * @throws RangeError when a result is of none of the checks
 */
export function outcomes({ checks, results }: ProbeRun): Outcome[] {
  const places = new Map(checks.map((check, place) => [check.name, { check, place }]));
  const found = results.map((result) => {
    const one = places.get(result.name);
    if (one === undefined) throw new RangeError(`there is a result of ${result.name}, which is none of the checks`);
    return { ...one, result };
  });
  return found.sort((a, b) => a.place - b.place).map(({ check, result }) => ({ check, result }));
}
