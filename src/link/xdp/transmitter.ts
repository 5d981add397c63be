/**
 * The transmit direction of the xdp link. The card writes frames into buffers of the UMEM. `send` gives the kernel the
 * buffer of a descriptor and puts a free buffer in its place, so the card does not wait until a frame has left.
 */
import { constants } from 'node:os';
import type { NativeRingIcrc } from '../../native.js';
import { TX_ICRC_SHIFT } from '../frames.js';
import { ETHERNET_BYTES } from '../headers.js';
import { RingView, wordsOf } from '../ring.js';
import type { XdpLocal } from './local.js';
import type { XdpPlan } from './mover.js';
import { CHUNK_BYTES, type XdpReceiver } from './receiver.js';
import { CONTINUES, type ConsumerRing, type ProducerRing } from './rings.js';
import { COUNT, type XdpShared } from './shared.js';

/** Bytes of a buffer: two chunks. A frame of the largest path MTU needs a part of the second chunk. */
export const BUFFER_BYTES = 2 * CHUNK_BYTES;
/** Frames that one system call sends in copy mode by kernels without a configurable limit. */
const KERNEL_BATCH = 32;
/** Delay before the next system call after the kernel had no room (ns). */
const WAKE_RETRY_NS = 50_000;
/** Errnos that mean that the interface has no room now. */
const BUSY_ERRNOS = new Set([-constants.errno.EAGAIN, -constants.errno.EBUSY, -constants.errno.ENOBUFS]);
const GROUP_BIT = 1;

/** The rings of the queue that sends. */
export interface TxQueue {
  readonly tx: ProducerRing;
  readonly completion: ConsumerRing;
  /** Makes the kernel process the transmit ring. @returns 0 or -errno */
  wake(): number;
}

/** Sends the frames of the card's ring by the transmit ring of one queue. */
export class XdpTransmitter {
  /** When to call `wake` again because the kernel had no room (ns of the device's clock); 0 = never. */
  retryAt = 0;
  readonly #ring: RingView;
  readonly #words: Uint32Array;
  readonly #umem: number;
  readonly #buffers: number;
  /** Number of entries of each buffer that the kernel has not completed. */
  readonly #pendingEntries: Uint8Array;
  /** A stack of buffers that neither the card nor the kernel has. */
  readonly #free: Uint32Array;
  #freeCount = 0;
  /** The last system call failed with another errno than BUSY_ERRNOS: the interface is down, for instance. */
  #wakeFails = false;
  readonly #mac: number;

  constructor(
    memory: Uint8Array,
    { frames: { tx }, umem, buffers, mac }: XdpPlan,
    readonly queue: TxQueue,
    readonly receiver: XdpReceiver,
    readonly shared: XdpShared,
    /** Completes the ICRC of frames; undefined: the card does it. */
    readonly icrc?: NativeRingIcrc,
    /** Sends frames to addresses of this host, whose MAC address is zero. */
    readonly local?: XdpLocal,
  ) {
    this.#words = wordsOf(memory);
    this.#ring = new RingView(memory, tx);
    this.#umem = umem;
    this.#buffers = buffers;
    this.#pendingEntries = new Uint8Array(buffers);
    this.#free = new Uint32Array(buffers);
    this.#mac = macNumber(mac);
    // The card has one buffer for each descriptor of its ring.
    for (let n = tx.mask + 1; n < buffers; n++) this.#free[this.#freeCount++] = n;
  }

  /** Sends frames. @param now the device's clock (ns) @returns the number of descriptors consumed */
  send(now: number): number {
    const ring = this.#ring;
    const { maxFrame } = this.shared;
    this.#reap();
    if (this.#wakeFails) this.wake(now);
    const first = ring.consumer;
    const filled = ring.filled;
    let taken = 0;
    this.#completeIcrcs(first, filled);
    do {
      while (taken < filled && this.#take((first + taken) >>> 0, maxFrame)) taken++;
      this.queue.tx.publish();
      this.wake(now);
      // In copy mode most frames have left when the system call returns.
    } while (taken < filled && this.#reap() > 0);
    this.local?.flush();
    if (taken < filled) this.#count(COUNT.tx_busy, 1);
    ring.consumer = first + taken;
    return taken;
  }

  /** Makes the kernel send the pending entries, if it needs a system call for it. */
  wake(now: number): void {
    const { tx } = this.queue;
    this.retryAt = 0;
    let refused = 0;
    for (let tries = Math.ceil(tx.pending / KERNEL_BATCH) + 1; tries > 0 && tx.pending > 0 && tx.needsWakeup; tries--) {
      refused = this.queue.wake();
      if (refused !== -constants.errno.EAGAIN) break;
    }
    const isBusy = BUSY_ERRNOS.has(refused);
    this.#wakeFails = refused !== 0 && !isBusy;
    if (isBusy && tx.pending > 0) {
      this.#count(COUNT.tx_busy, 1);
      this.retryAt = now + WAKE_RETRY_NS;
    } else if (this.#wakeFails) {
      this.#count(COUNT.tx_errors, 1);
      this.shared.counts[COUNT.tx_last_errno] = -refused;
    }
  }

  /** Completes the ICRC of frames, if any of them lacks a part. */
  #completeIcrcs(first: number, filled: number): void {
    if (this.icrc === undefined) return;
    for (let n = 0; n < filled; n++)
      if (this.#ring.options((first + n) >>> 0) >>> TX_ICRC_SHIFT !== 0) {
        this.icrc.complete();
        return;
      }
  }

  /** Consumes one descriptor. @returns false if it must stay because no buffer is free */
  #take(cursor: number, maxFrame: number): boolean {
    const ring = this.#ring;
    const length = ring.length(cursor);
    if (length === 0) return true;
    const offset = ring.addr(cursor) - this.#umem;
    const buffer = offset / BUFFER_BYTES;
    const isOurs = Number.isInteger(buffer) && buffer >= 0 && buffer < this.#buffers;
    if (!isOurs || length < ETHERNET_BYTES || length > BUFFER_BYTES) {
      this.#count(COUNT.tx_invalid, 1);
    } else if (length > maxFrame) {
      this.#count(COUNT.tx_too_long, 1);
    } else if (this.local !== undefined && this.#destination(ring.addr(cursor)) === 0) {
      return this.local.put(ring.addr(cursor), length);
    } else if (this.#wakeFails) {
      this.#count(COUNT.tx_errors, 1);
    } else {
      return this.#enqueue(cursor, buffer, length);
    }
    return true;
  }

  /** Puts a frame into the transmit ring, or into the card's receive ring if it is for the card itself. */
  #enqueue(cursor: number, buffer: number, length: number): boolean {
    const addr = buffer * BUFFER_BYTES;
    const destination = this.#destination(this.#umem + addr);
    if (destination === this.#mac && this.#mac !== 0) {
      this.receiver.deliverCopy(this.#umem + addr, length);
    } else {
      if (this.#freeCount === 0) return false;
      const { tx } = this.queue;
      if ((destination & GROUP_BIT) !== 0 && this.shared.hasGroup(destination))
        this.receiver.deliverCopy(this.#umem + addr, length);
      if (length <= CHUNK_BYTES) {
        tx.push(addr, length);
        this.#pendingEntries[buffer] = 1;
      } else {
        tx.push(addr, CHUNK_BYTES, CONTINUES);
        tx.push(addr + CHUNK_BYTES, length - CHUNK_BYTES);
        this.#pendingEntries[buffer] = 2;
      }
      this.#ring.setAddr(cursor, this.#umem + (this.#free[--this.#freeCount] as number) * BUFFER_BYTES);
    }
    this.#count(COUNT.tx_frames, 1);
    this.#count(COUNT.tx_bytes, length);
    return true;
  }

  /** Frees the buffers that the kernel has completed. @returns the number of completed entries */
  #reap(): number {
    const { completion } = this.queue;
    const done = completion.filled;
    for (let n = 0; n < done; n++) {
      const buffer = Math.floor(completion.addr(n) / BUFFER_BYTES);
      this.#pendingEntries[buffer] = (this.#pendingEntries[buffer] as number) - 1;
      if (this.#pendingEntries[buffer] === 0) this.#free[this.#freeCount++] = buffer;
    }
    completion.release(done);
    return done;
  }

  #count(counter: number, by: number): void {
    const { counts } = this.shared;
    counts[counter] = (counts[counter] as number) + by;
  }

  /** Returns the destination MAC address of a frame as `macNumber` writes it. */
  #destination(frame: number): number {
    const at = frame >>> 2;
    return (this.#words[at] as number) + ((this.#words[at + 1] as number) & 0xffff) * 2 ** 32;
  }
}

/** Returns a MAC address as a number, first byte lowest. */
export function macNumber(mac: Uint8Array): number {
  return mac.reduceRight((number, byte) => number * 256 + byte, 0);
}
