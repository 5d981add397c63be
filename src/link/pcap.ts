/**
 * The pcap link wraps any link and writes every frame in both directions to a pcapng file for Wireshark. Each batch is
 * written at once, so the file is complete up to the last turn however the process ends.
 */
import { closeSync, constants, openSync } from 'node:fs';
import type { Writable } from 'node:stream';
import { performance } from '../base/timers.js';
import { VerbsError } from '../errors.js';
import { Capture, COUNTS_BYTES, errnoOf, writeTo } from './capture.js';
import { errnoName } from './errno.js';
import type { Frames } from './frames.js';
import type { ErrorSocket, Link, LinkCounters } from './link.js';
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
  #isTransferred = false;
  /** The file's, for messages. */
  readonly #name: string;

  constructor(inner: Link, target: string | Writable) {
    super(inner);
    this.#name = typeof target === 'string' ? ` ${target}` : '';
    if (typeof target === 'string') {
      const fd = openCapture(target);
      this.#fd = fd;
      this.#write = writeTo(fd);
      this.#closeTarget = () => closeSync(fd);
    } else {
      const onError = (error: Error) => this.#failed(error);
      target.on('error', onError);
      this.#write = (bytes) => target.write(Buffer.from(bytes));
      this.#closeTarget = () => target.off('error', onError);
    }
    const { name } = inner.interface;
    const writer = new PcapngWriter();
    writer.header(PROGRAM, `${PROGRAM}, ${inner.kind} link on ${name}`, name);
    try {
      this.#write(writer.take());
    } catch (error) {
      this.#failed(error);
    }
  }

  override get captureError(): VerbsError | undefined {
    const [frames = 0, errno = 0] = new Float64Array(this.#counts);
    if (errno === 0) return undefined;
    const name = errnoName(-errno);
    const why = name === 'EAGAIN' ? 'the reader of the pipe is too slow' : 'writing has failed';
    return new VerbsError('EIO', `the capture${this.#name} is not whole: after ${frames} frames ${why} (${name})`);
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
    this.#isTransferred = true;
    return { kind: 'pcap', inner, fd: inner.fd, plan: { ...this.#plan(this.#frames as Frames), fd: this.#fd } };
  }

  send(now: number): number {
    return this.#isClosed ? this.inner.send(now) : (this.#capture?.send(now) ?? 0);
  }

  receive(now: number): number {
    return this.#isClosed ? this.inner.receive(now) : (this.#capture?.receive(now) ?? 0);
  }

  /** Its frames are captured, unless another thread writes the file. */
  get openErrorSocket(): Link['openErrorSocket'] {
    const { inner } = this;
    return inner.openErrorSocket && ((source, onError) => this.#captured(inner.openErrorSocket?.(source, onError)));
  }

  #captured(socket: ErrorSocket | undefined): ErrorSocket | undefined {
    if (socket === undefined) return undefined;
    const send = (frame: Uint8Array) => {
      const isSent = socket.send(frame);
      if (isSent && !this.#isTransferred && !this.#isClosed) this.#capture?.recordSent(frame);
      return isSent;
    };
    return { ...socket, send };
  }

  /**
   * Adds `pcap_frames`, the number of frames written, and `pcap_errors`: 1 if writing has failed, which ends the
   * capture. `captureError` says why.
   */
  override counters(): LinkCounters {
    const [frames = 0, errors = 0] = new Float64Array(this.#counts);
    return { ...this.inner.counters(), pcap_frames: frames, pcap_errors: errors > 0 ? 1 : 0 };
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

  #failed(error: unknown): void {
    new Float64Array(this.#counts)[1] = errnoOf(error);
  }
}

/** Opens a file, or a pipe that has a reader. A pipe without one would block until there is one. */
function openCapture(path: string): number {
  const { O_WRONLY, O_CREAT, O_TRUNC, O_NONBLOCK } = constants;
  try {
    return openSync(path, O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK, CAPTURE_MODE);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENXIO') throw error;
    throw new VerbsError('EIO', `the capture ${path} is a pipe that nobody reads: start its reader first (ENXIO)`);
  }
}
