/**
 * The waits between the transmissions of a message whose reply has not arrived. The first is short, so that one lost
 * packet delays a connection by a quarter of a second and not by the time that the peer has to reply, 4.6 s by default.
 * Each wait is twice as long as the one before, up to the period that Linux has: a busy peer or a long way sees few
 * duplicates, and answers them by an MRA, by its reply once more, or not at all.
 */
import { FIRST_WAIT } from './times.js';

/** Time for which a message is sent again. */
export interface RetryPolicy {
  /** Longest wait, ms. */
  readonly period: number;
  /** All waits together, ms. A turn that is late does not shorten them. */
  readonly time: number;
}

/** Returns the policy for the time that some retransmissions take, one every `period` ms. */
export function retryPolicy(period: number, retries: number): RetryPolicy {
  return { period, time: period * (retries + 1) };
}

/** The waits of one message. */
export class Backoff {
  readonly #period: number;
  #wait: number;
  #left: number;
  #transmissions = 0;

  constructor({ period, time }: RetryPolicy) {
    this.#period = period;
    this.#wait = Math.min(FIRST_WAIT, period);
    this.#left = time;
  }

  /** Returns the ms until the next transmission, or until the end after the last one; 0 at the end. */
  next(): number {
    const wait = Math.min(this.#wait, this.#left);
    this.#left -= wait;
    this.#wait = Math.min(2 * this.#wait, this.#period);
    this.#transmissions++;
    return wait;
  }

  /**
   * Whether the last transmission was one that shall learn of ICMP errors: every second one, from the first repetition
   * on. The others leave as all messages do, should a firewall let these pass alone.
   */
  get asksForErrors(): boolean {
    return this.#transmissions % 2 === 0;
  }
}
