/** A link with a gate in each direction: a closed gate keeps frames where they are, in the ring or in the socket. */
import type { Frames } from '../../src/link/frames.js';
import { LinkWrapper } from '../../src/link/wrapper.js';

export class GatedLink extends LinkWrapper {
  canSend = true;
  canReceive = true;

  attach(frames: Frames): void {
    this.attachInner(frames);
  }

  send(now: number): number {
    return this.canSend ? this.inner.send(now) : 0;
  }

  receive(now: number): number {
    return this.canReceive ? this.inner.receive(now) : 0;
  }
}
