/**
 * Congestion control of a device: DCQCN (Zhu et al., SIGCOMM 2015; IBTA annex A17.9). The receiver of a packet that a
 * switch has marked sends a CNP. The sender cuts its rate on a CNP, then raises it again. Linux rxe neither sends nor
 * handles CNPs.
 */

import { type InspectOptionsStylized, inspect } from 'node:util';
import { checkInteger, wrongType } from '../../base/options.js';
import type { Card } from '../../device/card.js';
import { CongestionParameter } from '../../device/codes.js';
import { invalidValue, outOfRange } from '../../errors.js';
import { inspectAs } from '../diagnose/describe.js';

/** Congestion control parameters of a device. A queue pair that has received no CNP has no rate limit. */
export interface CongestionParameters {
  /** Whether CNPs are sent and handled. Default true. */
  readonly enabled: boolean;
  /**
   * Whether packets of connected queue pairs, including ACKs and CNPs, are sent as ECT(0) (RFC 3168), so that switches
   * may mark them. A traffic class with ECN bits takes precedence. Applies to queue pairs connected afterwards.
   * Datagrams are never ECT, because no rate limit applies to them. Default true.
   */
  readonly ect: boolean;
  /** Minimum time between two CNPs of a queue pair, microseconds. Default 50. */
  readonly cnpInterval: number;
  /** DSCP of CNPs, 0..63. Default 48. */
  readonly cnpDscp: number;
  /** Priority of CNPs where the route leaves by a VLAN: PCP of the tag, 0..7. Default 6, as in adapters of NVIDIA. */
  readonly cnpPriority: number;
  /**
   * Minimum time between two cuts of the rate, microseconds; CNPs in between count as one. Default 50. ConnectX sends a
   * CNP every 4 microseconds.
   */
  readonly cutInterval: number;
  /** Interval at which alpha, the congestion estimate, decays without CNPs, microseconds. Default 55. */
  readonly alphaInterval: number;
  /** Interval of rate increases by the timer, microseconds. Default 75. */
  readonly rateInterval: number;
  /** Bytes sent per rate increase by the byte counter. Default 1 000 000. */
  readonly byteStep: number;
  /** Fast recovery steps, each half way back to the rate before the cut, before additive increase. Default 5. */
  readonly fastRecovery: number;
  /** Weight of the newest CNP in alpha (g in DCQCN), 2^-20 to 1. Default 1/256. */
  readonly gain: number;
  /** Rate added per step of additive increase, bit/s. Default 20e6. */
  readonly additiveRate: number;
  /** Rate added per step of hyper increase, bit/s. Default 200e6. */
  readonly hyperRate: number;
  /**
   * Lowest rate limit, bit/s. Default a tenth of `lineRate`: so much stays when CNPs are forged. A CNP at this rate
   * shrinks the window instead, down to 16 packets.
   */
  readonly minRate: number;
  /** Line rate, bit/s: the rate before the first cut. A queue pair that reaches it again has no limit. Default 10e9. */
  readonly lineRate: number;
}

interface Parameter {
  readonly code: number;
  /** Card units per API unit. */
  readonly scale: number;
  /** Returns the value as a number; throws for a wrong one. */
  readonly check: (name: string, value: unknown) => number;
}

const NS_PER_US = 1000;
const MAX_US = 10_000_000;
const MAX_RATE = 1e12;

const { ALPHA_INTERVAL, RATE_INTERVAL, CNP_INTERVAL, CNP_DSCP, CNP_PRIORITY, BYTE_STEP, FAST_RECOVERY } =
  CongestionParameter;
const { ENABLED, CUT_INTERVAL, ECT, GAIN, ADDITIVE_RATE, HYPER_RATE, LEAST_RATE, LINE_RATE } = CongestionParameter;

const PARAMETERS: Readonly<Record<keyof CongestionParameters, Parameter>> = {
  enabled: { code: ENABLED, scale: 1, check: checkFlag },
  ect: { code: ECT, scale: 1, check: checkFlag },
  cnpInterval: { code: CNP_INTERVAL, scale: NS_PER_US, check: inRange(0, MAX_US) },
  cnpDscp: { code: CNP_DSCP, scale: 1, check: (name, value) => checkInteger(name, value, 0, 63) },
  cnpPriority: { code: CNP_PRIORITY, scale: 1, check: (name, value) => checkInteger(name, value, 0, 7) },
  cutInterval: { code: CUT_INTERVAL, scale: NS_PER_US, check: inRange(0, MAX_US) },
  alphaInterval: { code: ALPHA_INTERVAL, scale: NS_PER_US, check: inRange(1, MAX_US) },
  rateInterval: { code: RATE_INTERVAL, scale: NS_PER_US, check: inRange(1, MAX_US) },
  byteStep: { code: BYTE_STEP, scale: 1, check: (name, value) => checkInteger(name, value, 1, 2 ** 31) },
  fastRecovery: { code: FAST_RECOVERY, scale: 1, check: (name, value) => checkInteger(name, value, 0, 1000) },
  gain: { code: GAIN, scale: 1, check: inRange(2 ** -20, 1) },
  additiveRate: { code: ADDITIVE_RATE, scale: 1, check: inRange(1, MAX_RATE) },
  hyperRate: { code: HYPER_RATE, scale: 1, check: inRange(1, MAX_RATE) },
  minRate: { code: LEAST_RATE, scale: 1, check: inRange(1000, MAX_RATE) },
  lineRate: { code: LINE_RATE, scale: 1, check: inRange(1000, MAX_RATE) },
};

/**
 * Congestion control of a device (DCQCN), as `device.congestion`.
 *
 * @example
 * ```ts
 * device.congestion.modify({ lineRate: 25e9, minRate: 10e6 });
 * console.log(device.congestion.query().enabled, qp.query().progress.rate);
 * ```
 */
export class Congestion {
  readonly #card: Card;

  /** @internal Enables ECT, because the card reacts to marks. */
  constructor(card: Card) {
    this.#card = card;
    this.modify({ ect: true });
  }

  /** Returns a short description as plain data, for `JSON.stringify` and `console.log`. */
  toJSON(): Record<string, unknown> {
    return { ...this.query() };
  }

  /** @internal */
  [inspect.custom](depth: number, options: InspectOptionsStylized): string {
    return inspectAs(this, depth, options);
  }

  /** Returns the present parameters. */
  query(): CongestionParameters {
    const { exports } = this.#card;
    const values = Object.entries(PARAMETERS).map(([name, { code, scale, check }]) => {
      const value = exports.congestion(code) / scale;
      return [name, check === checkFlag ? value !== 0 : value];
    });
    return withMinRate(Object.fromEntries(values));
  }

  /**
   * Changes the given parameters. After an error nothing is changed.
   * @throws TypeError for an unknown name or a value of another type; RangeError for a value out of range, or a
   * `minRate` above `lineRate`
   */
  modify(parameters: Partial<CongestionParameters>): void {
    const wanted = Object.entries(parameters).map(([name, value]) => {
      if (!Object.hasOwn(PARAMETERS, name))
        throw invalidValue(`congestion has no parameter ${name}, must be one of ${Object.keys(PARAMETERS).join(', ')}`);
      const { code, scale, check } = PARAMETERS[name as keyof CongestionParameters];
      return [code, check(`congestion.${name}`, value) * scale] as const;
    });
    const chosen = this.#card.exports.congestion(LEAST_RATE);
    const { minRate, lineRate } = withMinRate({ ...this.query(), minRate: chosen, ...parameters });
    if (minRate > lineRate) throw outOfRange(`congestion.minRate is ${minRate}, must be at most lineRate ${lineRate}`);
    for (const [code, value] of wanted) this.#card.exports.setCongestion(code, value);
  }
}

/** Fills in the default of `minRate`, for which the card has 0. */
function withMinRate(parameters: CongestionParameters): CongestionParameters {
  return { ...parameters, minRate: parameters.minRate || parameters.lineRate / 10 };
}

function checkFlag(name: string, value: unknown): number {
  if (typeof value !== 'boolean') throw wrongType(name, value, 'true or false');
  return value ? 1 : 0;
}

function inRange(min: number, max: number): Parameter['check'] {
  return (name, value) => {
    if (typeof value !== 'number') throw wrongType(name, value, 'a number');
    if (!(value >= min && value <= max)) throw outOfRange(`${name} is ${value}, must be ${min}..${max}`);
    return value;
  };
}
