/**
 * The pcap link wraps any link and writes every frame in both directions to a pcapng file for Wireshark. Each batch is
 * written at once, so the file is complete up to the last turn however the process ends.
 */
import { closeSync, openSync } from 'node:fs';
import type { Writable } from 'node:stream';
import { VerbsError } from '../errors.js';
import { Capture, COUNTS_BYTES, writeTo } from './capture.js';
import type { Frames, Link, LinkCounters } from './link.js';
import { PcapngWriter } from './pcapng.js';
import { type LinkTransfer, transferLink } from './transfer.js';
import { LinkWrapper } from './wrapper.js';

const PROGRAM = 'wasm-roce';
/** A capture holds what was transferred, so a new file is for its user only. */
const CAPTURE_MODE = 0o600;

/**
 * Wraps a link in a capture.
 * @param target path of a file, which is overwritten, or a stream, which `close` leaves open
 * @throws Error of node:fs if the file cannot be opened
 */
export function pcapLink(inner: Link, target: string | Writable): PcapLink {
  return new PcapLink(inner, target);
}

/** A link that captures all frames. */
export class PcapLink extends LinkWrapper {
  /** The file; undefined for a stream. */
  readonly #fd: number | undefined;
  readonly #write: (bytes: Uint8Array) => void;
  readonly #closeTarget: () => void;
  readonly #counts = new SharedArrayBuffer(COUNTS_BYTES);
  /** Added to the device's clock, which is that of performance.now, gives nanoseconds since 1970. */
  readonly #epoch = BigInt(Math.round(performance.timeOrigin * 1000)) * 1000n;
  #frames: Frames | undefined;
  #capture: Capture | undefined;
  #isClosed = false;

  constructor(inner: Link, target: string | Writable) {
    super(inner);
    if (typeof target === 'string') {
      const fd = openSync(target, 'w', CAPTURE_MODE);
      this.#fd = fd;
      this.#write = writeTo(fd);
      this.#closeTarget = () => closeSync(fd);
    } else {
      const onError = () => this.#failed();
      target.on('error', onError);
      this.#write = (bytes) => target.write(Buffer.from(bytes));
      this.#closeTarget = () => target.off('error', onError);
    }
    const { name } = inner.interface;
    const writer = new PcapngWriter();
    writer.header(PROGRAM, `${PROGRAM}, ${inner.kind} link on ${name}`, name);
    try {
      this.#write(writer.take());
    } catch {
      this.#failed();
    }
  }

  attach(frames: Frames): void {
    this.#frames = frames;
    this.attachInner(frames);
    this.#capture = new Capture(frames.memory, this.#plan(frames), this.#write, this.inner);
  }

  /** @throws VerbsError EOPNOTSUPP if the target is a stream, which only this thread can write */
  transfer(): LinkTransfer {
    if (this.#fd === undefined)
      throw new VerbsError('EOPNOTSUPP', `a device in mode 'worker' captures to a file only, not to a stream`);
    const inner = transferLink(this.inner);
    return { kind: 'pcap', inner, fd: inner.fd, plan: { ...this.#plan(this.#frames as Frames), fd: this.#fd } };
  }

  send(now: number): number {
    return this.#isClosed ? this.inner.send(now) : (this.#capture?.send(now) ?? 0);
  }

  receive(now: number): number {
    return this.#isClosed ? this.inner.receive(now) : (this.#capture?.receive(now) ?? 0);
  }

  /**
   * Adds `pcap_frames`, the number of frames written, and `pcap_errors`: 1 if writing has failed, which ends the
   * capture.
   */
  override counters(): LinkCounters {
    const [frames = 0, errors = 0] = new Float64Array(this.#counts);
    return { ...this.inner.counters(), pcap_frames: frames, pcap_errors: errors };
  }

  override close(): void {
    this.inner.close();
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#closeTarget();
  }

  #plan({ tx, rx }: Frames) {
    return { rings: { tx, rx }, epoch: this.#epoch, counts: this.#counts };
  }

  #failed(): void {
    new Float64Array(this.#counts)[1] = 1;
  }
}
