/** Who is measured. */
import type { Rig } from '../rig/program.js';
import type { Sample, Work } from '../work.js';

export interface Contender {
  readonly name: string;
  /** `ours`; `beside`: what a user would take instead; `bare`: the same link without a protocol, the limit. */
  readonly kind: 'ours' | 'beside' | 'bare';
  /** Which link carries the frames, for ours and the bare ones. */
  readonly link?: string;
  takes(work: Work): boolean;
  /** Gets ready for works with one MTU. @throws Error whose message says why it cannot be had here */
  begin(rig: Rig): Promise<void>;
  /** @throws Error when nothing, or something wrong, came out */
  measure(work: Work): Promise<Sample>;
  /** The end of what `begin` began; processes may go on for the next round. */
  end(): Promise<void>;
  /** Ends all processes. */
  stop(): void;
}
