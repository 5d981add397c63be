/**
 * A capture, as a wrapper around any link: every frame in either direction goes to a pcapng file for Wireshark. Each
 * batch is written at once, so the file is whole up to the last turn however the process ends.
 */
import { closeSync, openSync, writeSync } from 'node:fs';
import type { Writable } from 'node:stream';
import { type Frames, type Link, type LinkCounters, RX_IP_ID_UNKNOWN } from './link.js';
import { Direction, PcapngWriter } from './pcapng.js';
import { RingView } from './ring.js';
import { LinkWrapper } from './wrapper.js';

const PROGRAM = 'wasm-roce';
const ID_UNKNOWN = Buffer.from('the link could not see the IPv4 identification: 0 stands for it');

/**
 * @param target path of a file, which is overwritten, or a stream, which stays open at `close`
 * @throws Error of node:fs when the file cannot be opened
 */
export function pcapLink(inner: Link, target: string | Writable): PcapLink {
  return new PcapLink(inner, target);
}

export class PcapLink extends LinkWrapper {
  readonly #writer: PcapngWriter;
  readonly #write: (bytes: Uint8Array) => void;
  readonly #closeTarget: () => void;
  /** What to add to the device's clock (performance.now) for nanoseconds since 1970. */
  readonly #epoch = BigInt(Math.round(performance.timeOrigin * 1000)) * 1000n;
  #memory: Uint8Array = new Uint8Array(0);
  #tx: RingView | undefined;
  #rx: RingView | undefined;
  #rxSeen = 0;
  #frames = 0;
  #errors = 0;
  #isClosed = false;

  constructor(inner: Link, target: string | Writable) {
    super(inner);
    if (typeof target === 'string') {
      const fd = openSync(target, 'w');
      this.#write = (bytes) => {
        for (let at = 0; at < bytes.length; ) at += writeSync(fd, bytes, at);
      };
      this.#closeTarget = () => closeSync(fd);
    } else {
      const onError = () => this.#failed();
      target.on('error', onError);
      this.#write = (bytes) => target.write(Buffer.from(bytes));
      this.#closeTarget = () => target.off('error', onError);
    }
    const { name } = inner.interface;
    this.#writer = new PcapngWriter(PROGRAM, `${PROGRAM}, ${inner.kind} link on ${name}`, name);
    this.#flush();
  }

  attach(frames: Frames): void {
    this.#memory = frames.memory;
    this.#tx = new RingView(frames.memory, frames.tx);
    this.#rx = new RingView(frames.memory, frames.rx);
    this.#rxSeen = this.#rx.producer;
    this.attachInner(frames);
  }

  /** Records what the inner link has taken: its slots stay as they are until the card writes again. */
  send(now: number): number {
    const ring = this.#tx;
    if (!ring) return 0;
    const before = ring.consumer;
    const sent = this.inner.send(now);
    this.#record(ring, before, ring.consumer, Direction.Outbound, now);
    return sent;
  }

  receive(now: number): number {
    const received = this.inner.receive(now);
    const ring = this.#rx;
    if (!ring) return received;
    // The producer as last seen, not as it was before this call: a memory link's frames arrive between calls.
    const after = ring.producer;
    this.#record(ring, this.#rxSeen, after, Direction.Inbound, now);
    this.#rxSeen = after;
    return received;
  }

  /** The inner link's, and `pcap_frames` written, `pcap_errors`: 1 when writing has failed and ended. */
  override counters(): LinkCounters {
    return { ...this.inner.counters(), pcap_frames: this.#frames, pcap_errors: this.#errors };
  }

  override close(): void {
    this.inner.close();
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#closeTarget();
  }

  #record(ring: RingView, from: number, to: number, direction: Direction, now: number): void {
    const count = (to - from) >>> 0;
    if (count === 0 || this.#errors > 0 || this.#isClosed) return;
    const time = this.#epoch + BigInt(Math.round(now));
    for (let i = 0; i < count; i++) {
      const length = ring.length(from + i);
      if (length === 0) continue;
      const addr = ring.addr(from + i);
      const isIdUnknown = direction === Direction.Inbound && (ring.options(from + i) & RX_IP_ID_UNKNOWN) !== 0;
      const frame = this.#memory.subarray(addr, addr + length);
      this.#writer.packet(time, direction, frame, isIdUnknown ? ID_UNKNOWN : undefined);
      this.#frames++;
    }
    this.#flush();
  }

  /** A full disk must not end the card's work. */
  #flush(): void {
    try {
      this.#write(this.#writer.take());
    } catch {
      this.#failed();
    }
  }

  #failed(): void {
    this.#errors = 1;
  }
}
