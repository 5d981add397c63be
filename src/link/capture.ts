/**
 * The mover of the pcap link: records the frames that the inner link sends and receives. Runs in the mover's thread.
 */
import { writeSync } from 'node:fs';
import { constants } from 'node:os';
import { performance } from '../base/timers.js';
import { type FrameMover, type Frames, RX_IP_ID_UNKNOWN } from './frames.js';
import { Direction, PcapngWriter } from './pcapng.js';
import { RingView } from './ring.js';

/** Parameters of a `Capture`, beside its inner mover. Plain data, so that another thread can make one. */
export interface CapturePlan {
  /** File descriptor of the pcapng file, whose header is written already. */
  readonly fd: number;
  /** The card's rings. */
  readonly rings: Pick<Frames, 'tx' | 'rx'>;
  /** Added to the device's clock, gives nanoseconds since 1970. */
  readonly epoch: bigint;
  /** Two f64: the number of frames recorded, and the errno of the write that has failed, or 0. */
  readonly counts: SharedArrayBuffer;
}

/** Bytes of `CapturePlan.counts`. */
export const COUNTS_BYTES = 16;
const ID_UNKNOWN = Buffer.from('the link could not see the IPv4 identification: written as 0');

/** Time that the reader of a pipe has to make room (ms). The card waits for it. */
const PIPE_MS = 1000;
/** Nothing changes it: for `Atomics.wait` as a sleep. */
const SLEEP = new Int32Array(new SharedArrayBuffer(4));

/**
 * Returns a function that writes all bytes to a file that does not block.
 * @throws Error (from it) of node:fs; EAGAIN when the reader of a pipe is too slow
 */
export function writeTo(fd: number): (bytes: Uint8Array) => void {
  return (bytes) => {
    const end = performance.now() + PIPE_MS;
    for (let at = 0; at < bytes.length; ) {
      try {
        at += writeSync(fd, bytes, at);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EAGAIN' || performance.now() > end) throw error;
        Atomics.wait(SLEEP, 0, 0, 1);
      }
    }
  };
}

/** Returns the errno of an error of node:fs, a positive number; that of EIO for other errors. */
export const errnoOf = (error: unknown): number => -((error as NodeJS.ErrnoException).errno ?? -constants.errno.EIO);

/** Moves frames by an inner mover and records those that were moved. */
export class Capture implements FrameMover {
  readonly #writer = new PcapngWriter();
  readonly #memory: Uint8Array;
  readonly #tx: RingView;
  readonly #rx: RingView;
  readonly #counts: Float64Array;
  #rxSeen: number;

  /** @param write writes bytes of the capture; if it throws, the capture ends */
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

  /** Records what the inner link consumes. The slots keep their bytes, though the link may exchange them for others. */
  send(now: number): number {
    const before = this.#tx.consumer;
    const slots = Array.from({ length: this.#tx.filled }, (_, i) => this.#tx.addr(before + i));
    const sent = this.inner.send(now);
    this.#record(this.#tx, before, this.#tx.consumer, Direction.Outbound, now, slots);
    return sent;
  }

  receive(now: number): number {
    const received = this.inner.receive(now);
    // Start at the producer as last seen, not as it was before this call: a memory link's frames arrive between calls.
    const after = this.#rx.producer;
    this.#record(this.#rx, this.#rxSeen, after, Direction.Inbound, now);
    this.#rxSeen = after;
    return received;
  }

  nextDeadline(): number {
    return this.inner.nextDeadline();
  }

  /** Records a frame that was sent apart from the rings. */
  recordSent(frame: Uint8Array): void {
    if (this.#counts[1] !== 0) return;
    this.#add(this.#timeOf(performance.now() * 1e6), Direction.Outbound, frame);
    this.#write();
  }

  #record(ring: RingView, from: number, to: number, direction: Direction, now: number, slots?: number[]): void {
    const count = (to - from) >>> 0;
    if (count === 0 || this.#counts[1] !== 0) return;
    const time = this.#timeOf(now);
    for (let i = 0; i < count; i++) {
      const length = ring.length(from + i);
      if (length === 0) continue;
      const addr = slots?.[i] ?? ring.addr(from + i);
      const isIdUnknown = direction === Direction.Inbound && (ring.options(from + i) & RX_IP_ID_UNKNOWN) !== 0;
      this.#add(time, direction, this.#memory.subarray(addr, addr + length), isIdUnknown ? ID_UNKNOWN : undefined);
    }
    this.#write();
  }

  /** Returns nanoseconds since 1970. @param now nanoseconds on the device's clock */
  #timeOf(now: number): bigint {
    return this.plan.epoch + BigInt(Math.round(now));
  }

  #add(time: bigint, direction: Direction, frame: Uint8Array, comment?: Uint8Array): void {
    this.#writer.packet(time, direction, frame, comment);
    this.#counts[0] = (this.#counts[0] as number) + 1;
  }

  /** A full disk must not stop the card. */
  #write(): void {
    try {
      this.write(this.#writer.take());
    } catch (error) {
      this.#counts[1] = errnoOf(error);
    }
  }
}
