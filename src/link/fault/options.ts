/** Faults that a device adds to its link. */

/** The most rules of faults of a device. */
export const MAX_FAULT_RULES = 16;

/** Probabilities of faults in one direction. Each is 0 to 1, default 0. */
export interface FaultRates {
  /** Probability that a frame is lost. */
  readonly drop?: number;
  /** Probability that a frame is delivered twice. */
  readonly duplicate?: number;
  /** Probability that up to four later frames overtake a frame. */
  readonly reorder?: number;
  /** Probability that a frame is delayed by a random time within `delayNs`. */
  readonly delay?: number;
  /** Minimum and maximum of a delay in nanoseconds. Default: 10,000 to 100,000 (10 to 100 µs). */
  readonly delayNs?: readonly [number, number];
  /** Probability that one bit after the Ethernet header is flipped. */
  readonly corrupt?: number;
  /**
   * Probability that a frame is marked "congestion experienced" (ECN), as a switch does, with a correct IPv4 checksum.
   */
  readonly ecn?: number;
}

/**
 * Faults that a device adds to its link, to test how an application copes with them.
 * @example
 * const device = await openDevice({ interface: 'eth0', fault: { seed: 7, both: { drop: 0.01 } } });
 * @example
 * const device = await openDevice({ fault: { rules: ['drop the 5th WRITE_MIDDLE'] } });
 */
export interface FaultOptions {
  /** Seed of the random numbers, any integer. Default: 1. */
  readonly seed?: number;
  /** Faults in both directions. A rate in `tx` or `rx` replaces the same rate here. */
  readonly both?: FaultRates;
  /** Faults of frames that the card sends. */
  readonly tx?: FaultRates;
  /** Faults of frames that the card receives. */
  readonly rx?: FaultRates;
  /** Rules of faults (docs/scripts.md), as `device.addFault` takes them. At most 16. */
  readonly rules?: readonly string[];
}
