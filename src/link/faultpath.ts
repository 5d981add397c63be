/** One direction of a fault link: takes frames from one ring, decides their fate, and puts them into another. */
import type { FaultRates } from './fault.js';
import type { Frames } from './link.js';
import { Random } from './random.js';
import type { RingView } from './ring.js';

interface Held {
  readonly frame: Uint8Array;
  readonly options: number;
  /** Goes on at this time (ns), */
  readonly due: number;
  /** or when so many frames have passed in all. */
  readonly after: number;
  /** Its delay over, so many frames may overtake it. */
  readonly overtakers: number;
}

const ETHERNET_BYTES = 14;
/** What may befall a frame. */
export const FATES = ['drop', 'duplicate', 'reorder', 'delay', 'corrupt', 'ecn'] as const;
type Fate = (typeof FATES)[number];
const DEFAULT_DELAY_NS = [10_000, 100_000] as const;
/** A frame that is to be overtaken waits no longer than this when nothing follows (ns). */
const REORDER_NS = 200_000;
const REORDER_FRAMES = 4;
/** Frames held back at once; beyond that they are not delayed. */
const MAX_HELD = 4096;

export class FaultPath {
  readonly #rates: Record<Fate, number>;
  readonly #delayNs: readonly [number, number];
  readonly #random: Random;
  /** Ordered by `due`. */
  readonly #held: Held[] = [];
  #passed = 0;
  #memory: Uint8Array = new Uint8Array(0);
  #scratch = new Uint8Array(0);
  #from: RingView | undefined;
  #to: RingView | undefined;

  /** @param counts frames that met each fate, in the order of FATES @throws RangeError */
  constructor(
    rates: FaultRates,
    seed: number,
    readonly counts: Float64Array,
  ) {
    const { drop = 0, duplicate = 0, reorder = 0, delay = 0, corrupt = 0, ecn = 0 } = rates;
    this.#rates = { drop, duplicate, reorder, delay, corrupt, ecn };
    for (const kind of FATES)
      if (!(this.#rates[kind] >= 0 && this.#rates[kind] <= 1))
        throw new RangeError(`${kind} ${this.#rates[kind]} is not a probability from 0 to 1`);
    this.#delayNs = rates.delayNs ?? DEFAULT_DELAY_NS;
    const [least, most] = this.#delayNs;
    if (!(least >= 0 && most >= least && Number.isFinite(most)))
      throw new RangeError(`delayNs [${least}, ${most}] is not a range of nanoseconds`);
    this.#random = new Random(seed);
  }

  join({ memory, slotBytes }: Pick<Frames, 'memory' | 'slotBytes'>, from: RingView, to: RingView): void {
    this.#memory = memory;
    this.#scratch = new Uint8Array(slotBytes);
    this.#from = from;
    this.#to = to;
  }

  /** When the next frame that is held back wants to go; 0 = none is. */
  get nextDeadline(): number {
    return this.#held[0]?.due ?? 0;
  }

  /** Moves what there is, while there is room. @returns descriptors taken */
  pump(now: number): number {
    const from = this.#from;
    const to = this.#to;
    if (!from || !to) return 0;
    this.release(now);
    let taken = 0;
    // Room for two, as any frame may come twice.
    while (from.filled > 0 && to.free >= 2) {
      this.#take(from, now);
      from.consumer = from.consumer + 1;
      taken++;
      this.release(now);
    }
    return taken;
  }

  /** Lets go what was held back long enough. @returns how many */
  release(now: number): number {
    let released = 0;
    while (this.#held.length > 0 && (this.#to?.free ?? 0) > 0) {
      const ready = this.#held.findIndex(({ due, after }) => due <= now || after <= this.#passed);
      if (ready < 0) break;
      const [{ frame, options, due, overtakers }] = this.#held.splice(ready, 1) as [Held];
      if (overtakers > 0) {
        this.#holdBack(frame, options, due, overtakers);
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
    // Every frame draws for every fate, so that a changed rate of one kind leaves the others' choices as they were.
    const random = this.#random;
    const [drop, duplicate, reorder, delay, corrupt, ecn] = FATES.map((kind) => random.unit() < this.#rates[kind]);
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
    if ((!delay && !reorder) || this.#held.length >= MAX_HELD) {
      this.#emit(frame, options);
      return;
    }
    if (reorder) this.#count('reorder');
    const overtakers = reorder ? 1 + Math.floor(detail * REORDER_FRAMES) : 0;
    if (delay) {
      const [least, most] = this.#delayNs;
      this.#count('delay');
      const due = now + least + Math.floor(detail * (most - least));
      this.#hold({ frame: frame.slice(), options, due, after: Number.POSITIVE_INFINITY, overtakers });
    } else {
      this.#holdBack(frame.slice(), options, now, overtakers);
    }
  }

  /** Until it has been overtaken. */
  #holdBack(frame: Uint8Array, options: number, now: number, overtakers: number): void {
    this.#hold({ frame, options, due: now + REORDER_NS, after: this.#passed + overtakers, overtakers: 0 });
  }

  #hold(held: Held): void {
    let at = this.#held.length;
    while (at > 0 && (this.#held[at - 1] as Held).due > held.due) at--;
    this.#held.splice(at, 0, held);
  }

  #count(fate: Fate): void {
    const i = FATES.indexOf(fate);
    this.counts[i] = (this.counts[i] as number) + 1;
  }

  #emit(frame: Uint8Array, options: number): void {
    const to = this.#to as RingView;
    const cursor = to.producer;
    this.#memory.set(frame, to.addr(cursor));
    to.describe(cursor, frame.length, options);
    to.producer = cursor + 1;
    this.#passed++;
  }
}

/** Sets both ECN bits (RFC 3168). @returns whether it is an IP packet that had them not set yet */
function markCongestion(frame: Uint8Array): boolean {
  const view = new DataView(frame.buffer, frame.byteOffset, frame.byteLength);
  if (frame.length < ETHERNET_BYTES + 20) return false;
  const isTagged = view.getUint16(12) === 0x8100;
  const ip = isTagged ? 18 : 14;
  if (frame.length < ip + 20) return false;
  const before = view.getUint16(ip);
  const type = view.getUint16(ip - 2);
  const after = type === 0x0800 ? before | 0x0003 : before | 0x0030;
  if ((type !== 0x0800 && type !== 0x86dd) || after === before) return false;
  view.setUint16(ip, after);
  // RFC 1624: the checksum changes by the difference of the one word that has changed.
  if (type === 0x0800) {
    const sum = (~view.getUint16(ip + 10) & 0xffff) + (~before & 0xffff) + after;
    const folded = (sum & 0xffff) + (sum >>> 16);
    view.setUint16(ip + 10, ~((folded & 0xffff) + (folded >>> 16)) & 0xffff);
  }
  return true;
}
