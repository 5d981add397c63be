/** A contender: one way of moving bytes that the benchmark measures. */
import type { Rig } from '../rig/program.js';
import type { Sample, Work } from '../work.js';

export interface Contender {
  readonly name: string;
  /**
   * `ours`; `before`: another build of this project; `beside`: an alternative that a user could take; `bare`: the same
   * link without a protocol, the upper limit.
   */
  readonly kind: 'ours' | 'before' | 'beside' | 'bare';
  /** The link that carries the frames, for `ours` and `bare`. */
  readonly link?: string;
  takes(work: Work): boolean;
  /** Prepares measurements at one MTU. @throws Error with the reason if the contender is not available here */
  begin(rig: Rig): Promise<void>;
  /** @throws Error when there is no result, or a wrong one */
  measure(work: Work): Promise<Sample>;
  /** Ends what `begin` started; processes may stay alive for the next round. */
  end(): Promise<void>;
  /** Ends all processes. */
  stop(): void;
}
