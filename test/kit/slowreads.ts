/**
 * A link that answers READs of the peer slowly: it drops READ responses, but one in each interval. So a peer that reads
 * from us always gets on, and within its retries.
 */

import type { Frames } from '../../src/link/frames.js';
import type { Link } from '../../src/link/link.js';
import { RingView } from '../../src/link/ring.js';
import { LinkWrapper } from '../../src/link/wrapper.js';

/** Bytes of an Ethernet, an IPv4 and a UDP header, behind which the opcode is. */
const OPCODE_AT = 14 + 20 + 8;
/** READ response FIRST to ONLY (IBTA table 38). */
const [FIRST, LAST] = [0x0d, 0x10];

export class SlowReadsLink extends LinkWrapper {
  /** Milliseconds between two READ responses; 0: all leave at once. */
  interval = 0;
  #next = 0;
  #tx: RingView | undefined;
  #memory: Uint8Array = new Uint8Array(0);

  /** For the option `wrapLink`. @param made takes the link */
  static wrap(made: (link: SlowReadsLink) => void): (link: Link) => Link {
    return (inner) => {
      const link = new SlowReadsLink(inner);
      made(link);
      return link;
    };
  }

  attach(frames: Frames): void {
    this.#memory = frames.memory;
    this.#tx = new RingView(frames.memory, frames.tx);
    this.attachInner(frames);
  }

  send(now: number): number {
    const tx = this.#tx as RingView;
    for (let cursor = tx.consumer; cursor !== tx.producer; cursor = (cursor + 1) >>> 0) {
      const opcode = this.#memory[tx.addr(cursor) + OPCODE_AT] as number;
      if (this.interval === 0 || opcode < FIRST || opcode > LAST) continue;
      if (performance.now() < this.#next) tx.describe(cursor, 0, 0);
      else this.#next = performance.now() + this.interval;
    }
    return this.inner.send(now);
  }

  receive(now: number): number {
    return this.inner.receive(now);
  }
}
