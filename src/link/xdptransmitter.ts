/**
 * The way out of the xdp link. The card writes its frames straight into buffers that the kernel sends from: `send` takes the
 * buffer of a descriptor with the frame in it and leaves a free one there, so the card never waits for a frame to leave.
 */
import { constants } from 'node:os';
import { RingView, wordsOf } from './ring.js';
import type { XdpPlan } from './xdpmover.js';
import { CHUNK_BYTES, type XdpReceiver } from './xdpreceiver.js';
import { CONTINUES, type InRing, type OutRing } from './xdprings.js';
import { COUNT, type XdpShared } from './xdpshared.js';

/** Bytes of a buffer: two chunks, of which a frame of the largest path MTU needs a little of the second. */
export const BUFFER_BYTES = 2 * CHUNK_BYTES;
const ETHERNET_BYTES = 14;
/** Frames that one call of the kernel sends at the least, where it cannot be told to send more. */
const KERNEL_BATCH = 32;
/** How soon the kernel is asked again to send what it could not (ns). */
const RETRY_WAKE = 50_000;
/** What the kernel answers when the interface has no room just now. */
const BUSY = new Set([-constants.errno.EAGAIN, -constants.errno.EBUSY, -constants.errno.ENOBUFS]);
const GROUP_BIT = 1;

export interface OutQueue {
  readonly tx: OutRing;
  readonly completion: InRing;
  /** Makes the kernel look at the transmit ring. @returns 0 or -errno */
  wake(): number;
}

export class XdpTransmitter {
  /** When the kernel is to be asked again to send what it could not (ns); 0 = there is nothing of that kind. */
  retryAt = 0;
  readonly #ring: RingView;
  readonly #words: Uint32Array;
  readonly #umem: number;
  readonly #buffers: number;
  /** Entries of each buffer that the kernel has not completed. */
  readonly #pieces: Uint8Array;
  /** A stack of buffers that nobody has. */
  readonly #free: Uint32Array;
  #freeCount = 0;
  #isDown = false;
  readonly #mac: number;

  constructor(
    memory: Uint8Array,
    { frames: { tx }, umem, buffers, mac }: XdpPlan,
    readonly queue: OutQueue,
    readonly receiver: XdpReceiver,
    readonly shared: XdpShared,
  ) {
    this.#words = wordsOf(memory);
    this.#ring = new RingView(memory, tx);
    this.#umem = umem;
    this.#buffers = buffers;
    this.#pieces = new Uint8Array(buffers);
    this.#free = new Uint32Array(buffers);
    this.#mac = macNumber(mac);
    // The card has as many as its ring has descriptors.
    for (let n = tx.mask + 1; n < buffers; n++) this.#free[this.#freeCount++] = n;
  }

  /** @param now the device's clock (ns) @returns descriptors taken off the card's ring */
  send(now: number): number {
    const ring = this.#ring;
    const { longest } = this.shared;
    this.#reap();
    if (this.#isDown) this.wake(now);
    const first = ring.consumer;
    const filled = ring.filled;
    let taken = 0;
    do {
      while (taken < filled && this.#take((first + taken) >>> 0, longest)) taken++;
      this.queue.tx.publish();
      this.wake(now);
      // In copy mode frames have mostly left when the call returns.
    } while (taken < filled && this.#reap() > 0);
    if (taken < filled) this.#count(COUNT.tx_busy, 1);
    ring.consumer = first + taken;
    return taken;
  }

  /** Makes the kernel send what it has been given, if it has to be told. */
  wake(now: number): void {
    const { tx } = this.queue;
    this.retryAt = 0;
    let refused = 0;
    for (let tries = Math.ceil(tx.waiting / KERNEL_BATCH) + 1; tries > 0 && tx.waiting > 0 && tx.needsWakeup; tries--) {
      refused = this.queue.wake();
      if (refused !== -constants.errno.EAGAIN) break;
    }
    const isBusy = BUSY.has(refused);
    this.#isDown = refused !== 0 && !isBusy;
    if (isBusy && tx.waiting > 0) {
      this.#count(COUNT.tx_busy, 1);
      this.retryAt = now + RETRY_WAKE;
    } else if (this.#isDown) {
      this.#count(COUNT.tx_errors, 1);
      this.shared.counts[COUNT.tx_last_errno] = -refused;
    }
  }

  /** @returns false when the descriptor must stay, as no buffer is free */
  #take(cursor: number, longest: number): boolean {
    const ring = this.#ring;
    const length = ring.length(cursor);
    if (length === 0) return true;
    const offset = ring.addr(cursor) - this.#umem;
    const buffer = offset / BUFFER_BYTES;
    const isOurs = Number.isInteger(buffer) && buffer >= 0 && buffer < this.#buffers;
    if (!isOurs || length < ETHERNET_BYTES || length > BUFFER_BYTES) {
      this.#count(COUNT.tx_invalid, 1);
    } else if (length > longest) {
      this.#count(COUNT.tx_too_long, 1);
    } else if (this.#isDown) {
      this.#count(COUNT.tx_errors, 1);
    } else {
      return this.#give(cursor, buffer, length);
    }
    return true;
  }

  #give(cursor: number, buffer: number, length: number): boolean {
    const addr = buffer * BUFFER_BYTES;
    const destination = this.#destination(this.#umem + addr);
    if (destination === this.#mac && this.#mac !== 0) {
      this.receiver.copyIn(this.#umem + addr, length);
    } else {
      if (this.#freeCount === 0) return false;
      const { tx } = this.queue;
      if ((destination & GROUP_BIT) !== 0 && this.shared.hasGroup(destination))
        this.receiver.copyIn(this.#umem + addr, length);
      if (length <= CHUNK_BYTES) {
        tx.push(addr, length);
        this.#pieces[buffer] = 1;
      } else {
        tx.push(addr, CHUNK_BYTES, CONTINUES);
        tx.push(addr + CHUNK_BYTES, length - CHUNK_BYTES);
        this.#pieces[buffer] = 2;
      }
      this.#ring.place(cursor, this.#umem + (this.#free[--this.#freeCount] as number) * BUFFER_BYTES);
    }
    this.#count(COUNT.tx_frames, 1);
    this.#count(COUNT.tx_bytes, length);
    return true;
  }

  /** Takes back the buffers that the kernel has done with. @returns how many entries */
  #reap(): number {
    const { completion } = this.queue;
    const done = completion.filled;
    for (let n = 0; n < done; n++) {
      const buffer = Math.floor(completion.addr(n) / BUFFER_BYTES);
      this.#pieces[buffer] = (this.#pieces[buffer] as number) - 1;
      if (this.#pieces[buffer] === 0) this.#free[this.#freeCount++] = buffer;
    }
    completion.release(done);
    return done;
  }

  #count(counter: number, by: number): void {
    const { counts } = this.shared;
    counts[counter] = (counts[counter] as number) + by;
  }

  /** The MAC that a frame goes to. */
  #destination(frame: number): number {
    const at = frame >>> 2;
    return (this.#words[at] as number) + ((this.#words[at + 1] as number) & 0xffff) * 2 ** 32;
  }
}

/** The bytes of a MAC as a number, the first one lowest. */
export function macNumber(mac: Uint8Array): number {
  return mac.reduceRight((number, byte) => number * 256 + byte, 0);
}
