/** Polling by those who hear of a failed device in another way. */
import type { Cq } from './cq.js';
import type { Wc } from './wc.js';

/** As `cq.poll`, but nothing comes of a device that has failed. @throws VerbsError EIO when the queue has overrun */
export function pollAlive(cq: Cq, into: readonly Wc[]): number {
  if (!cq.isAlive) return 0;
  try {
    return cq.poll(into);
  } catch (error) {
    // it may be this poll that finds out
    if (cq.isAlive) throw error;
    return 0;
  }
}
