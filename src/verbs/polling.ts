/** Polling for callers that learn of a failed device in another way. */
import type { Cq } from './cq.js';
import type { Wc } from './wc.js';

/** Same as `cq.poll`, but returns 0 when the device has failed. @throws VerbsError EIO when the queue has overrun */
export function pollUnlessFailed(cq: Cq, into: readonly Wc[]): number {
  if (!cq.isAlive) return 0;
  try {
    return cq.poll(into);
  } catch (error) {
    // This poll may be the one that detects the failure.
    if (cq.isAlive) throw error;
    return 0;
  }
}
