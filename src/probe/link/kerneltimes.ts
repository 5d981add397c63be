/**
 * The kernel's times of packets. A tap, which is a packet socket of its own, sees the frames of an interface as they
 * leave the kernel for the driver and as they come from it, so that the scheduler of the host is not in their times.
 */
import { performance } from '../../base/timers.js';
import { errnoName } from '../../link/errno.js';
import { native } from '../../native.js';
import { bthAt, destQpAt } from './bth.js';

/** The first bytes of a frame, enough for its headers and for what tells it from others. */
const FRAME_BYTES = 256;
/** Bytes from the BTH on by which frames are told apart: all headers of RoCEv2. */
const COMPARED_BYTES = 64;
/** The most frames that one look takes from the tap, and that wait for `received`. */
const MAX_FRAMES = 4096;
/** A time that may be off by more is not used (ns). The wall clock was set meanwhile, or the process did not run. */
const MAX_ERROR_NS = 1_000_000;

/** The source of the times of packets. */
export interface PacketTimes {
  /** Number of packets with the kernel's time. */
  readonly kernel: number;
  /** Number of packets with the time of the process. */
  readonly process: number;
  /**
   * Error of a time, in nanoseconds. Of the kernel's times: that of the conversion to the clock of the process. If
   * there are times of the process too: the most that one was late. Absent: unknown.
   */
  readonly error?: number;
  /** The reason why there are no times of the kernel. */
  readonly reason?: string;
}

/** A frame that a tap has seen. */
export interface SeenFrame {
  /** Its first bytes. */
  readonly frame: Uint8Array;
  /** The kernel's time, converted to nanoseconds of `performance.now()`. */
  readonly at: number;
  /** Error of the conversion, in nanoseconds. */
  readonly error: number;
  /** Whether it was sent, rather than received. */
  readonly isSent: boolean;
}

/** Takes the kernel's times of frames from a tap. Times are nanoseconds of `performance.now()`. */
export class KernelTimes {
  readonly #fd: number;
  readonly #frame = new Uint8Array(FRAME_BYTES);
  readonly #times = new BigInt64Array(3);
  readonly #base = processClock();
  readonly #waiting: SeenFrame[] = [];
  #offset = readOffset();
  #error = 0;
  #late = 0;
  #kernel = 0;
  #process = 0;

  private constructor(fd: number) {
    this.#fd = fd;
  }

  /** Opens a tap. @returns the reason if there is none */
  static open(ifindex: number): KernelTimes | string {
    const fd = native().tapOpen(ifindex);
    return fd < 0 ? `a tap on the interface fails with ${errnoName(fd)}` : new KernelTimes(fd);
  }

  /**
   * Takes what the tap has seen.
   * @param isOurs says for which queue pair numbers received frames are kept for `received`
   * @returns the frames that were sent
   */
  look(isOurs: (qpn: number) => boolean): readonly SeenFrame[] {
    const seen = this.#read();
    for (const record of seen) {
      if (record.isSent || !isOurs(destQpAt(record.frame, bthAt(record.frame)))) continue;
      if (this.#waiting.length === MAX_FRAMES) this.#waiting.shift();
      this.#waiting.push(record);
    }
    return seen.filter(({ isSent }) => isSent);
  }

  /**
   * Returns when a frame left.
   * @param seen result of `look` after it was sent
   * @param before the process's time before it was sent, which is returned if the tap has not seen it since
   */
  sent(frame: Uint8Array, seen: readonly SeenFrame[], before: number): number {
    return this.#count(
      seen.findLast((record) => record.at >= before - record.error && isSame(frame, record.frame)),
      before,
    );
  }

  /** Returns when a frame arrived. @param now the process's time, which is returned if the tap has not seen it */
  received(frame: Uint8Array, now: number): number {
    const at = this.#waiting.findIndex((record) => record.at <= now + record.error && isSame(frame, record.frame));
    return this.#count(at < 0 ? undefined : this.#waiting.splice(at, 1)[0], now);
  }

  /** The source of the times of the packets since `open`. */
  get counts(): PacketTimes {
    const [kernel, process, late] = [this.#kernel, this.#process, this.#late];
    return { kernel, process, ...(kernel > 0 && { error: process > 0 ? Math.max(this.#error, late) : this.#error }) };
  }

  /** Closes the tap. */
  close(): void {
    native().closeFd(this.#fd);
  }

  #count(record: SeenFrame | undefined, processTime: number): number {
    if (record === undefined || record.error > MAX_ERROR_NS) {
      this.#process++;
      return processTime;
    }
    this.#kernel++;
    this.#error = Math.max(this.#error, record.error);
    this.#late = Math.max(this.#late, Math.abs(processTime - record.at));
    return record.at;
  }

  /**
   * Takes the frames that the tap has seen. The kernel made their times after the last reading of the clocks and before
   * the one at the end. What the offset of the clocks changed between the two is part of the error: a step of the wall
   * clock shows as a large one.
   */
  #read(): SeenFrame[] {
    const before = readOffset();
    const seen: { readonly frame: Uint8Array; readonly stamp: bigint; readonly isSent: boolean }[] = [];
    while (seen.length < MAX_FRAMES && native().tapRead(this.#fd, this.#frame, this.#times) === 1) {
      const [stamp, length, isSent] = this.#times as unknown as [bigint, bigint, bigint];
      const frame = this.#frame.slice(0, Number(length));
      // the kernel begins to stamp in a work item, which may run after the first frames (net_enable_timestamp)
      if (stamp !== 0n && bthAt(frame) >= 0) seen.push({ frame, stamp, isSent: isSent === 1n });
    }
    const after = readOffset();
    const offsets = [this.#offset, before, after];
    const values = offsets.map(({ offset }) => Number(offset - after.offset));
    const error =
      Math.max(...values) - Math.min(...values) + Math.max(...offsets.map((o) => o.error)) + this.#base.error;
    // frames that are left were seen after the last reading that these have before them
    if (seen.length < MAX_FRAMES) this.#offset = before;
    return seen.map(({ frame, stamp, isSent }) => ({
      ...{ frame, isSent, error },
      at: Number(stamp - after.offset - this.#base.offset),
    }));
  }
}

/** Returns CLOCK_REALTIME less CLOCK_MONOTONIC, and how far that may be off. */
function readOffset() {
  const result = new BigInt64Array(2);
  native().clockOffset(result);
  return { offset: result[0] as bigint, error: Number(result[1]) };
}

/** Returns CLOCK_MONOTONIC less `performance.now()`, which never changes, and how far that may be off. */
function processClock() {
  let best = { offset: 0n, error: Infinity };
  for (let i = 0; i < 16; i++) {
    const before = process.hrtime.bigint();
    const now = performance.now();
    const between = Number(process.hrtime.bigint() - before);
    const error = Math.ceil(between / 2);
    if (error < best.error) best = { offset: before + BigInt(error) - BigInt(Math.round(now * 1e6)), error };
  }
  return best;
}

/** Returns whether two frames are of the same packet. The layers below UDP may differ, and so may its checksum. */
function isSame(a: Uint8Array, b: Uint8Array): boolean {
  const [atA, atB] = [bthAt(a), bthAt(b)];
  const tail = (frame: Uint8Array, from: number) => Buffer.from(frame.subarray(from, from + COMPARED_BYTES));
  const ports = (frame: Uint8Array, bth: number) => Buffer.from(frame.subarray(bth - 8, bth - 2));
  return ports(a, atA).equals(ports(b, atB)) && tail(a, atA).equals(tail(b, atB));
}
