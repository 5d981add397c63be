/**
 * The frames of an xdp link to and from addresses of this host. They are few, or at least not those that the link is
 * chosen for, so they are copied: between the card's rings and two small ones that the UDP sockets use.
 */
import { type NativeAdoptedSocket, native } from '../../native.js';
import type { Frames, Ring } from '../frames.js';
import { allocateRing, frameLayout, RingView } from '../ring.js';
import { BUFFER_BYTES } from './transmitter.js';

/** Parameters of an `XdpLocal`. Plain data. */
export interface LocalPlan {
  /** The addon's number of the sockets (`NativeFrameSocket.transfer`). */
  readonly id: number;
  readonly tx: Ring;
  readonly rx: Ring;
}

/** Descriptors of each ring. */
const RING = 32;

/** The sockets, as the plan needs them. */
export interface PlannedSockets {
  attach(memory: Uint8Array, layout: Uint32Array): void;
  transfer(): number;
}

/**
 * Gives the sockets rings of their own.
 * @throws RangeError if the card has not enough memory left
 */
export function planLocal(sockets: PlannedSockets, frames: Frames): LocalPlan {
  const { memory } = frames;
  const sized = { ...frames, slotBytes: BUFFER_BYTES, icrcOffload: false };
  const [tx, rx] = [allocateRing(sized, RING), allocateRing(sized, RING)];
  sockets.attach(memory, frameLayout({ ...sized, tx, rx }));
  return { id: sockets.transfer(), tx, rx };
}

/** See the head of this file. */
export class XdpLocal {
  readonly #memory: Uint8Array;
  readonly #socket: NativeAdoptedSocket;
  readonly #tx: RingView;
  readonly #rx: RingView;

  constructor(memory: Uint8Array, { id, tx, rx }: LocalPlan) {
    this.#memory = memory;
    this.#socket = new (native().AdoptedSocket)(id);
    this.#tx = new RingView(memory, tx);
    this.#rx = new RingView(memory, rx);
  }

  /** Takes a frame of the card's memory. @returns false if the kernel has no room for it now */
  put(from: number, length: number): boolean {
    const ring = this.#tx;
    if (ring.free === 0) this.flush();
    if (ring.free === 0) return false;
    const at = ring.producer;
    this.#memory.copyWithin(ring.addr(at), from, from + length);
    ring.describe(at, length, 0);
    ring.producer = at + 1;
    return true;
  }

  /** Sends what was taken. @returns whether all of it has left */
  flush(): boolean {
    if (this.#tx.filled > 0) this.#socket.send();
    return this.#tx.filled === 0;
  }

  /**
   * Receives frames.
   * @param hasReceived whether the interface has brought frames in this turn
   * @param deliver gets the place and the length of each in the card's memory, and its receive options
   * @returns their number
   */
  receive(hasReceived: boolean, deliver: (from: number, length: number, options: number) => void): number {
    const ring = this.#rx;
    const received = this.#socket.receiveLocal(hasReceived);
    for (let n = 0; n < received; n++) {
      const at = ring.consumer;
      deliver(ring.addr(at), ring.length(at), ring.options(at));
      ring.consumer = at + 1;
    }
    return received;
  }
}
