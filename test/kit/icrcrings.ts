/** The addon's part of the ICRC offload (`native().RingIcrc`) for one frame in plain memory: no link, no card. */
import { type Ring, TX_FETCH_SPAN, TX_ICRC_SHIFT } from '../../src/link/frames.js';
import { frameLayout, RingView } from '../../src/link/ring.js';
import { type NativeRingIcrc, native } from '../../src/native.js';

const RING_BYTES = 32;
/** Offset of the room for another frame. */
const ROOM = 2 * RING_BYTES;
const LEAST_SLOT = 128;
const ICRC_BYTES = 4;
const ADDRESS_BYTES = 8;

export class IcrcRings {
  readonly #frame: Uint8Array;
  readonly #tx: RingView;
  readonly #rx: RingView;
  readonly #icrc: NativeRingIcrc;
  readonly #memory: Uint8Array;

  /** Places the frame `shift` bytes off alignment, at the very end of the memory, behind room for another. */
  constructor(frame: Uint8Array, shift = 0) {
    const at = ROOM + frame.length + shift;
    const memory = new Uint8Array(new ArrayBuffer(at + frame.length));
    this.#memory = memory;
    this.#frame = memory.subarray(at);
    this.#frame.set(frame);
    const ring = (at: number): Ring => ({ producer: at, consumer: at + 4, descriptors: at + 8, mask: 0 });
    const [tx, rx] = [ring(0), ring(RING_BYTES)];
    const slotBytes = Math.max(frame.length, LEAST_SLOT);
    this.#icrc = new (native().RingIcrc)(memory, frameLayout({ memory, tx, rx, slotBytes, icrcOffload: true }));
    [this.#tx, this.#rx] = [new RingView(memory, tx), new RingView(memory, rx)];
    for (const view of [this.#tx, this.#rx]) view.setAddr(0, at);
  }

  /** Folds the frame as received. @returns the options of its descriptor and the frame */
  fold(): { options: number; frame: Uint8Array } {
    this.#rx.describe(0, this.#frame.length, 0);
    this.#rx.producer = 1;
    this.#icrc.fold(0);
    return { options: this.#rx.options(0), frame: this.#frame.slice() };
  }

  /** Completes the ICRC of the frame, which lacks the CRC of the last `span` bytes before it. @returns the frame */
  complete(span: number): Uint8Array {
    return this.#complete(span << TX_ICRC_SHIFT);
  }

  /** The same for a frame whose span is in front of it in the memory. */
  fetch(span: number): Uint8Array {
    const end = this.#frame.length - ICRC_BYTES;
    const bytes = this.#frame.slice(end - span, end);
    this.#memory.set(bytes, ROOM);
    this.#frame.fill(0, end - span, end);
    return this.fetchFrom(span, ROOM);
  }

  /** The same for a frame whose span is at any address. Writes the address if the frame has room for it. */
  fetchFrom(span: number, address: number): Uint8Array {
    const place = this.#frame.length - ICRC_BYTES - span;
    if (place >= 0 && span >= ADDRESS_BYTES)
      new DataView(this.#frame.buffer).setBigUint64(this.#frame.byteOffset + place, BigInt(address), true);
    return this.#complete((span << TX_ICRC_SHIFT) | TX_FETCH_SPAN);
  }

  #complete(options: number): Uint8Array {
    this.#tx.describe(0, this.#frame.length, options >>> 0);
    this.#tx.producer = 1;
    this.#icrc.complete();
    return this.#frame.slice();
  }
}
