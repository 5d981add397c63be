/**
 * The receive buffer of an rsocket: a ring of two halves that the peer fills in order, and that the application empties
 * in order. It counts what the peer may still write, so that a peer which writes more is found.
 */
import type { Mr } from '../../index.js';
import type { PeerMemory } from '../../transport/peermemory.js';

/** A half that the peer was permitted to write and that is not read to its end. */
interface Half {
  readonly mr: Mr;
  /** Its offset in the region. */
  readonly offset: number;
  readonly bytes: number;
}

export class ReceiveRing {
  /** The first half, which the peer is permitted to write from the beginning. */
  readonly first: PeerMemory;
  #mr: Mr;
  /** Offsets of the two halves in the region, that of the next one first. */
  #offsets: readonly [number, number];
  /** In order; there are at most two. */
  readonly #halves: Half[] = [];
  /** Bytes of the first half that were read. */
  #read = 0;
  #filled = 0;
  #open = 0;
  /** Bytes of each message that was not read to its end, in order; the first one without those that were. */
  readonly #messages: number[] = [];
  /** Messages read to their end. */
  #messagesRead = 0;

  /** @param mr region that the peer writes; the ring goes from `start` to its end */
  constructor(mr: Mr, start: number) {
    this.#mr = mr;
    this.#offsets = [start, (start + mr.length) / 2];
    this.first = this.grant();
  }

  /** Bytes that can be read. */
  get filled(): number {
    return this.#filled;
  }

  /** Number of messages that were not read to their end. */
  get messagesUnread(): number {
    return this.#messages.length;
  }

  /** Number of messages that were read to their end. */
  get messagesRead(): number {
    return this.#messagesRead;
  }

  /** Bytes that the peer may still write. */
  get open(): number {
    return this.#open;
  }

  /** Whether a half is read that the peer was not permitted to write again. */
  get hasFreeHalf(): boolean {
    return this.#halves.length < 2;
  }

  /** Permits the peer to write the next half. @returns the half */
  grant(): PeerMemory {
    const [offset, other] = this.#offsets;
    const bytes = Math.abs(other - offset);
    this.#offsets = [other, offset];
    this.#halves.push({ mr: this.#mr, offset, bytes });
    this.#open += bytes;
    return { addr: BigInt(this.#mr.iova) + BigInt(offset), rkey: this.#mr.rkey, length: bytes };
  }

  /** Takes the halves that follow from another region. */
  moveTo(mr: Mr): void {
    this.#mr = mr;
    this.#offsets = [0, mr.length / 2];
  }

  /** The peer has written a message. `bytes` is at most `open`. */
  add(bytes: number): void {
    this.#open -= bytes;
    this.#filled += bytes;
    this.#messages.push(bytes);
  }

  /** Reads at most `max` bytes, which the caller owns. It may return fewer than there are. */
  read(max: number): Buffer {
    const { mr, offset, bytes } = this.#halves[0] as Half;
    const count = Math.min(max, this.#filled, bytes - this.#read);
    const data = mr.copyOut(offset + this.#read, count);
    this.#filled -= count;
    this.#read += count;
    if (this.#read === bytes) {
      this.#halves.shift();
      this.#read = 0;
    }
    this.#retire(count);
    return data;
  }

  /** Counts the messages that end within the bytes which were read. */
  #retire(count: number): void {
    let left = count;
    while (this.#messages.length > 0 && left >= (this.#messages[0] as number)) {
      left -= this.#messages.shift() as number;
      this.#messagesRead++;
    }
    if (left > 0) this.#messages[0] = (this.#messages[0] as number) - left;
  }
}
