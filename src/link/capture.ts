/** What a capture does with frames, in whatever thread moves them: it records what the inner link has taken or brought. */
import { writeSync } from 'node:fs';
import { type FrameMover, type Frames, RX_IP_ID_UNKNOWN } from './link.js';
import { Direction, PcapngWriter } from './pcapng.js';
import { RingView } from './ring.js';

/** What a capture is made from, beside its inner link; plain data. */
export interface CapturePlan {
  /** The file, which has a header already. */
  readonly fd: number;
  readonly rings: Pick<Frames, 'tx' | 'rx'>;
  /** What to add to the device's clock for nanoseconds since 1970. */
  readonly epoch: bigint;
  /** Frames recorded, and whether writing has failed: f64 each. */
  readonly counts: SharedArrayBuffer;
}

export const COUNTS_BYTES = 16;
const ID_UNKNOWN = Buffer.from('the link could not see the IPv4 identification: 0 stands for it');

/** Writes all of it. @throws Error of node:fs */
export function writeTo(fd: number): (bytes: Uint8Array) => void {
  return (bytes) => {
    for (let at = 0; at < bytes.length; ) at += writeSync(fd, bytes, at);
  };
}

export class Capture implements FrameMover {
  readonly #writer = new PcapngWriter();
  readonly #memory: Uint8Array;
  readonly #tx: RingView;
  readonly #rx: RingView;
  readonly #counts: Float64Array;
  #rxSeen: number;

  /** @param write what is done with bytes; when it throws, the capture ends */
  constructor(
    memory: Uint8Array,
    readonly plan: Omit<CapturePlan, 'fd'>,
    readonly write: (bytes: Uint8Array) => void,
    readonly inner: FrameMover,
  ) {
    this.#memory = memory;
    this.#tx = new RingView(memory, plan.rings.tx);
    this.#rx = new RingView(memory, plan.rings.rx);
    this.#rxSeen = this.#rx.producer;
    this.#counts = new Float64Array(plan.counts);
  }

  /** Records what the inner link has taken: its slots stay as they are, though the link may put others in their places. */
  send(now: number): number {
    const before = this.#tx.consumer;
    const slots = Array.from({ length: this.#tx.filled }, (_, i) => this.#tx.addr(before + i));
    const sent = this.inner.send(now);
    this.#record(this.#tx, before, this.#tx.consumer, Direction.Outbound, now, slots);
    return sent;
  }

  receive(now: number): number {
    const received = this.inner.receive(now);
    // The producer as last seen, not as it was before this call: a memory link's frames arrive between calls.
    const after = this.#rx.producer;
    this.#record(this.#rx, this.#rxSeen, after, Direction.Inbound, now);
    this.#rxSeen = after;
    return received;
  }

  nextDeadline(): number {
    return this.inner.nextDeadline();
  }

  #record(ring: RingView, from: number, to: number, direction: Direction, now: number, slots?: number[]): void {
    const count = (to - from) >>> 0;
    if (count === 0 || this.#counts[1] !== 0) return;
    const time = this.plan.epoch + BigInt(Math.round(now));
    for (let i = 0; i < count; i++) {
      const length = ring.length(from + i);
      if (length === 0) continue;
      const addr = slots?.[i] ?? ring.addr(from + i);
      const isIdUnknown = direction === Direction.Inbound && (ring.options(from + i) & RX_IP_ID_UNKNOWN) !== 0;
      const frame = this.#memory.subarray(addr, addr + length);
      this.#writer.packet(time, direction, frame, isIdUnknown ? ID_UNKNOWN : undefined);
      this.#counts[0] = (this.#counts[0] as number) + 1;
    }
    // A full disk must not end the card's work.
    try {
      this.write(this.#writer.take());
    } catch {
      this.#counts[1] = 1;
    }
  }
}
