/** One direction of the fault link: takes frames from one ring, applies faults, and puts them into another ring. */

import { outOfRange } from '../../errors.js';
import type { Frames } from '../frames.js';
import { ETHERNET_BYTES, ETHERTYPE, VLAN_TAG_BYTES } from '../headers.js';
import { putFrame, type RingView } from '../ring.js';
import type { FaultRates } from './options.js';
import { Random } from './random.js';

/** A frame that waits until `due` or until the number of frames that have passed reaches `after`. */
interface DelayedFrame {
  readonly frame: Uint8Array;
  readonly options: number;
  /** Time of release (ns of the device's clock). */
  readonly due: number;
  /** Number of passed frames, since the path was made, at which the frame is released before `due`. */
  readonly after: number;
  /** Number of frames that may overtake this frame after its delay. */
  readonly overtakers: number;
}

/** The faults, in the order of `counts`. */
export const FAULTS = ['drop', 'duplicate', 'reorder', 'delay', 'corrupt', 'ecn'] as const;
type Fault = (typeof FAULTS)[number];
const DEFAULT_DELAY_NS = [10_000, 100_000] as const;
/** Time that a reordered frame waits for frames that overtake it (ns). */
const REORDER_NS = 200_000;
/** Number of frames that may overtake a reordered frame. */
const REORDER_FRAMES = 4;
/** Maximum number of delayed frames. Beyond it frames are neither delayed nor reordered. */
const MAX_DELAYED = 4096;

/** Applies faults to the frames of one direction. */
export class FaultPath {
  readonly #rates: Record<Fault, number>;
  readonly #delayNs: readonly [number, number];
  readonly #random: Random;
  /** Ordered by `due`. */
  readonly #delayed: DelayedFrame[] = [];
  #passed = 0;
  #memory: Uint8Array = new Uint8Array(0);
  #scratch = new Uint8Array(0);
  #from: RingView | undefined;
  #to: RingView | undefined;

  /** @param counts numbers of frames with each fault, in the order of FAULTS @throws RangeError for invalid rates */
  constructor(
    rates: FaultRates,
    seed: number,
    readonly counts: Float64Array,
  ) {
    const { drop = 0, duplicate = 0, reorder = 0, delay = 0, corrupt = 0, ecn = 0 } = rates;
    this.#rates = { drop, duplicate, reorder, delay, corrupt, ecn };
    for (const kind of FAULTS)
      if (!(this.#rates[kind] >= 0 && this.#rates[kind] <= 1))
        throw outOfRange(`${kind} ${this.#rates[kind]} is not a probability, must be 0 to 1`);
    this.#delayNs = rates.delayNs ?? DEFAULT_DELAY_NS;
    const [min, max] = this.#delayNs;
    if (!(min >= 0 && max >= min && Number.isFinite(max)))
      throw outOfRange(`delayNs [${min}, ${max}] is not a range, must be [min, max] with 0 <= min <= max`);
    this.#random = new Random(seed);
  }

  /** Sets the rings. Call it once, first. */
  attach({ memory, slotBytes }: Pick<Frames, 'memory' | 'slotBytes'>, from: RingView, to: RingView): void {
    this.#memory = memory;
    this.#scratch = new Uint8Array(slotBytes);
    this.#from = from;
    this.#to = to;
  }

  /** When the next delayed frame is due (ns of the device's clock); 0 = no frame is delayed. */
  get nextDeadline(): number {
    return this.#delayed[0]?.due ?? 0;
  }

  /** Moves frames from one ring to the other while there is room. @returns the number of descriptors consumed */
  forward(now: number): number {
    const from = this.#from;
    const to = this.#to;
    if (!from || !to) return 0;
    this.releaseDue(now);
    let taken = 0;
    // Room for two, as any frame may be duplicated.
    while (from.filled > 0 && to.free >= 2) {
      this.#take(from, now);
      from.consumer = from.consumer + 1;
      taken++;
      this.releaseDue(now);
    }
    return taken;
  }

  /** Releases delayed frames that are due, while there is room. @returns their number */
  releaseDue(now: number): number {
    let released = 0;
    while (this.#delayed.length > 0 && (this.#to?.free ?? 0) > 0) {
      const ready = this.#delayed.findIndex(({ due, after }) => due <= now || after <= this.#passed);
      if (ready < 0) break;
      const [{ frame, options, due, overtakers }] = this.#delayed.splice(ready, 1) as [DelayedFrame];
      if (overtakers > 0) {
        this.#delayUntilOvertaken(frame, options, due, overtakers);
        continue;
      }
      this.#emit(frame, options);
      released++;
    }
    return released;
  }

  #take(from: RingView, now: number): void {
    const cursor = from.consumer;
    const length = from.length(cursor);
    if (length === 0) return;
    // Draw a number for every fault of every frame, so that changing one rate does not change the other faults.
    const random = this.#random;
    const [drop, duplicate, reorder, delay, corrupt, ecn] = FAULTS.map((kind) => random.unit() < this.#rates[kind]);
    const detail = random.unit();
    if (drop) {
      this.#count('drop');
      return;
    }
    const addr = from.addr(cursor);
    const frame = this.#scratch.subarray(0, Math.min(length, this.#scratch.length));
    frame.set(this.#memory.subarray(addr, addr + frame.length));
    if (ecn && markCongestion(frame)) this.#count('ecn');
    if (corrupt && frame.length > ETHERNET_BYTES) {
      const bit = ETHERNET_BYTES * 8 + Math.floor(detail * (frame.length - ETHERNET_BYTES) * 8);
      frame[bit >> 3] = (frame[bit >> 3] as number) ^ (1 << (bit & 7));
      this.#count('corrupt');
    }
    const options = from.options(cursor);
    if (duplicate) {
      this.#count('duplicate');
      this.#emit(frame, options);
    }
    if ((!delay && !reorder) || this.#delayed.length >= MAX_DELAYED) {
      this.#emit(frame, options);
      return;
    }
    if (reorder) this.#count('reorder');
    const overtakers = reorder ? 1 + Math.floor(detail * REORDER_FRAMES) : 0;
    if (delay) {
      const [min, max] = this.#delayNs;
      this.#count('delay');
      const due = now + min + Math.floor(detail * (max - min));
      this.#delay({ frame: frame.slice(), options, due, after: Number.POSITIVE_INFINITY, overtakers });
    } else {
      this.#delayUntilOvertaken(frame.slice(), options, now, overtakers);
    }
  }

  /** Delays a frame until other frames have overtaken it, or until REORDER_NS has passed. */
  #delayUntilOvertaken(frame: Uint8Array, options: number, now: number, overtakers: number): void {
    this.#delay({ frame, options, due: now + REORDER_NS, after: this.#passed + overtakers, overtakers: 0 });
  }

  #delay(delayed: DelayedFrame): void {
    let at = this.#delayed.length;
    while (at > 0 && (this.#delayed[at - 1] as DelayedFrame).due > delayed.due) at--;
    this.#delayed.splice(at, 0, delayed);
  }

  #count(fault: Fault): void {
    const i = FAULTS.indexOf(fault);
    this.counts[i] = (this.counts[i] as number) + 1;
  }

  #emit(frame: Uint8Array, options: number): void {
    putFrame(this.#memory, this.#to as RingView, frame, options);
    this.#passed++;
  }
}

/** Sets both ECN bits (RFC 3168). @returns false if the frame is no IP packet or has both set already */
function markCongestion(frame: Uint8Array): boolean {
  const view = new DataView(frame.buffer, frame.byteOffset, frame.byteLength);
  if (frame.length < ETHERNET_BYTES + 20) return false;
  const isTagged = view.getUint16(ETHERNET_BYTES - 2) === ETHERTYPE.VLAN;
  const ip = isTagged ? ETHERNET_BYTES + VLAN_TAG_BYTES : ETHERNET_BYTES;
  if (frame.length < ip + 20) return false;
  const before = view.getUint16(ip);
  const type = view.getUint16(ip - 2);
  const after = type === ETHERTYPE.IPV4 ? before | 0x0003 : before | 0x0030;
  if ((type !== ETHERTYPE.IPV4 && type !== ETHERTYPE.IPV6) || after === before) return false;
  view.setUint16(ip, after);
  // RFC 1624: update the checksum by the difference of the word that has changed.
  if (type === ETHERTYPE.IPV4) {
    const sum = (~view.getUint16(ip + 10) & 0xffff) + (~before & 0xffff) + after;
    const folded = (sum & 0xffff) + (sum >>> 16);
    view.setUint16(ip + 10, ~((folded & 0xffff) + (folded >>> 16)) & 0xffff);
  }
  return true;
}
