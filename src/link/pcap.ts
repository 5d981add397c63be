/**
 * A capture, as a wrapper around any link: every frame in either direction goes to a pcapng file for Wireshark. Each
 * batch is written at once, so the file is whole up to the last turn however the process ends.
 */
import { closeSync, openSync } from 'node:fs';
import type { Writable } from 'node:stream';
import { VerbsError } from '../errors.js';
import { Capture, COUNTS_BYTES, writeTo } from './capture.js';
import type { Frames, Link, LinkCounters } from './link.js';
import { type Loan, lendLink } from './loan.js';
import { PcapngWriter } from './pcapng.js';
import { LinkWrapper } from './wrapper.js';

const PROGRAM = 'wasm-roce';

/**
 * @param target path of a file, which is overwritten, or a stream, which stays open at `close`
 * @throws Error of node:fs when the file cannot be opened
 */
export function pcapLink(inner: Link, target: string | Writable): PcapLink {
  return new PcapLink(inner, target);
}

export class PcapLink extends LinkWrapper {
  /** Of a file. */
  readonly #fd: number | undefined;
  readonly #write: (bytes: Uint8Array) => void;
  readonly #closeTarget: () => void;
  readonly #counts = new SharedArrayBuffer(COUNTS_BYTES);
  /** The device's clock is performance.now. */
  readonly #epoch = BigInt(Math.round(performance.timeOrigin * 1000)) * 1000n;
  #frames: Frames | undefined;
  #capture: Capture | undefined;
  #isClosed = false;

  constructor(inner: Link, target: string | Writable) {
    super(inner);
    if (typeof target === 'string') {
      const fd = openSync(target, 'w');
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

  /** @throws VerbsError EOPNOTSUPP for a stream, which belongs to this thread */
  lend(): Loan {
    if (this.#fd === undefined)
      throw new VerbsError(
        'EOPNOTSUPP',
        `a capture goes to a file when the device's mode is 'worker', not to a stream`,
      );
    const inner = lendLink(this.inner);
    return { kind: 'pcap', inner, fd: inner.fd, plan: { ...this.#plan(this.#frames as Frames), fd: this.#fd } };
  }

  send(now: number): number {
    return this.#isClosed ? this.inner.send(now) : (this.#capture?.send(now) ?? 0);
  }

  receive(now: number): number {
    return this.#isClosed ? this.inner.receive(now) : (this.#capture?.receive(now) ?? 0);
  }

  /** The inner link's, and `pcap_frames` written, `pcap_errors`: 1 when writing has failed and ended. */
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
