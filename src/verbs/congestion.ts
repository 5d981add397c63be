/**
 * Congestion control of a device by DCQCN (Zhu et al., SIGCOMM 2015; InfiniBand specification, annex 17.9): who receives
 * a packet that a switch has marked asks the sender by a CNP to slow down; the sender cuts its rate and grows it again.
 * Linux rxe neither sends nor heeds CNPs.
 */
import type { Card } from '../device/card.js';
import { CongestionParameter } from '../device/codes.js';
import { checkInteger, show } from './check.js';

/** All of them, for all queue pairs of the device. A queue pair that was never asked to slow down has no rate at all. */
export interface CongestionParameters {
  /** CNPs are sent and heeded. Default true. */
  readonly enabled: boolean;
  /**
   * Packets of connections, ACKs and CNPs among them, say that a switch may mark them (ECT(0), RFC 3168) unless their traffic class says something
   * else. Holds for queue pairs that are connected from now on; datagrams never say so, as nothing slows them down.
   * Default true.
   */
  readonly ect: boolean;
  /** Least time between two CNPs of a queue pair, microseconds. Default 50. */
  readonly cnpInterval: number;
  /** DSCP of CNPs, 0..63. Default 48. */
  readonly cnpDscp: number;
  /** How often alpha, the measure of congestion, decays without CNPs, microseconds. Default 55. */
  readonly alphaInterval: number;
  /** How often the rate grows by the clock, microseconds. Default 55. */
  readonly rateInterval: number;
  /** How often the rate grows by what was sent, bytes. Default 10 000 000. */
  readonly byteStep: number;
  /** Steps half way back to the rate before the cut, before it grows above that. Default 5. */
  readonly fastRecovery: number;
  /** Weight of the newest CNP in alpha, above 0, at most 1. Default 1/256. */
  readonly gain: number;
  /** Growth for each step of additive increase, and of hyper increase, bit/s. Default 40e6 and 400e6. */
  readonly additiveRate: number;
  readonly hyperRate: number;
  /** No rate is lower, bit/s. Default 1e6. */
  readonly leastRate: number;
  /** Where a queue pair starts when it is first asked to slow down, and is free again, bit/s. Default 10e9. */
  readonly lineRate: number;
}

interface Kind {
  readonly code: number;
  /** Of the card's units in one of ours. */
  readonly scale: number;
  /** Throws for a wrong value. */
  readonly check: (name: string, value: unknown) => number;
}

const NS_PER_US = 1000;
const MOST_US = 10_000_000;
const MOST_RATE = 1e12;

const { ALPHA_INTERVAL, RATE_INTERVAL, CNP_INTERVAL, CNP_DSCP, BYTE_STEP, FAST_RECOVERY } = CongestionParameter;
const { ENABLED, ECT, GAIN, ADDITIVE_RATE, HYPER_RATE, LEAST_RATE, LINE_RATE } = CongestionParameter;

const KINDS: Readonly<Record<keyof CongestionParameters, Kind>> = {
  enabled: { code: ENABLED, scale: 1, check: flag },
  ect: { code: ECT, scale: 1, check: flag },
  cnpInterval: { code: CNP_INTERVAL, scale: NS_PER_US, check: between(0, MOST_US) },
  cnpDscp: { code: CNP_DSCP, scale: 1, check: (name, value) => checkInteger(name, value, 0, 63) },
  alphaInterval: { code: ALPHA_INTERVAL, scale: NS_PER_US, check: between(1, MOST_US) },
  rateInterval: { code: RATE_INTERVAL, scale: NS_PER_US, check: between(1, MOST_US) },
  byteStep: { code: BYTE_STEP, scale: 1, check: (name, value) => checkInteger(name, value, 1, 2 ** 31) },
  fastRecovery: { code: FAST_RECOVERY, scale: 1, check: (name, value) => checkInteger(name, value, 0, 1000) },
  gain: { code: GAIN, scale: 1, check: between(2 ** -20, 1) },
  additiveRate: { code: ADDITIVE_RATE, scale: 1, check: between(1, MOST_RATE) },
  hyperRate: { code: HYPER_RATE, scale: 1, check: between(1, MOST_RATE) },
  leastRate: { code: LEAST_RATE, scale: 1, check: between(1000, MOST_RATE) },
  lineRate: { code: LINE_RATE, scale: 1, check: between(1000, MOST_RATE) },
};

/** Congestion control of one device: `device.congestion`. */
export class Congestion {
  readonly #card: Card;

  /** @internal ECT is on from the beginning: the card reacts to marks. */
  constructor(card: Card) {
    this.#card = card;
    this.modify({ ect: true });
  }

  /** All parameters as they are. */
  query(): CongestionParameters {
    const { exports } = this.#card;
    const values = Object.entries(KINDS).map(([name, { code, scale, check }]) => {
      const value = exports.congestion(code) / scale;
      return [name, check === flag ? value !== 0 : value];
    });
    return Object.fromEntries(values) as CongestionParameters;
  }

  /**
   * Changes some of them. Nothing is changed when one is wrong.
   * @throws TypeError for an unknown name or a value of another type; RangeError, also when `leastRate` would be above
   * `lineRate`
   */
  modify(parameters: Partial<CongestionParameters>): void {
    const wanted = Object.entries(parameters).map(([name, value]) => {
      if (!Object.hasOwn(KINDS, name))
        throw new TypeError(`congestion has no ${name}, only ${Object.keys(KINDS).join(', ')}`);
      const { code, scale, check } = KINDS[name as keyof CongestionParameters];
      return [code, check(`congestion.${name}`, value) * scale] as const;
    });
    const { leastRate, lineRate } = { ...this.query(), ...parameters };
    if (leastRate > lineRate)
      throw new RangeError(`congestion.leastRate ${leastRate} is above lineRate ${lineRate}, must not be`);
    for (const [code, value] of wanted) this.#card.exports.setCongestion(code, value);
  }
}

function flag(name: string, value: unknown): number {
  if (typeof value !== 'boolean') throw new TypeError(`${name} is ${show(value)}, must be true or false`);
  return value ? 1 : 0;
}

function between(least: number, most: number): Kind['check'] {
  return (name, value) => {
    if (typeof value !== 'number') throw new TypeError(`${name} is ${show(value)}, must be a number`);
    if (!(value >= least && value <= most)) throw new RangeError(`${name} is ${value}, must be ${least}..${most}`);
    return value;
  };
}
