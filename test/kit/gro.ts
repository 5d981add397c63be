/**
 * Generic receive offload as a kernel does it: a frame that follows another one of the same flow and length is appended
 * to it, so that the card receives a super-packet (Frames.rx in src/link/link.ts).
 */
import { commonHeaders, headerBytes } from './gsobursts.js';

const SEGMENT_SHIFT = 17;
const IPV4 = 0x0800;

/** The newest descriptor of a receive ring, while frames can still be appended to it. */
export class Gro {
  /** Super-packets made, and frames appended. */
  supers = 0;
  appended = 0;
  #descriptor = -1;
  #headers: Buffer = Buffer.alloc(0);
  #segment = 0;
  #count = 0;
  #firstId = 0;
  /** The difference of consecutive identifications: 0 or 1, -1 = not known yet. */
  #step = -1;

  constructor(
    readonly slotBytes: number,
    readonly most: number,
  ) {}

  /** Notes that this descriptor holds a single frame. */
  begin(descriptor: number, frame: Uint8Array): void {
    this.#descriptor = -1;
    if (frame.length < 60) return;
    this.#descriptor = descriptor;
    this.#headers = commonHeaders(frame);
    this.#segment = frame.length - this.#headers.length;
    this.#count = 1;
    this.#firstId = identification(frame);
    this.#step = -1;
  }

  /** Forgets the descriptor, because the card has consumed it. */
  end(): void {
    this.#descriptor = -1;
  }

  /** Appends a frame to the newest descriptor if the card has not consumed it. @returns whether it was appended */
  append(frame: Uint8Array, memory: Uint8Array, u32: Uint32Array): boolean {
    const at = this.#descriptor;
    if (at < 0 || this.#count >= this.most || frame.length < 60) return false;
    const headers = this.#headers.length;
    const bytes = frame.length - headers;
    const length = u32[at + 2] as number;
    if (bytes > this.#segment || bytes <= 0 || length + bytes > this.slotBytes) return false;
    if (headerBytes(frame) !== headers || !commonHeaders(frame).equals(this.#headers)) return false;
    if (!this.#follows(identification(frame))) return false;
    memory.set(frame.subarray(headers), (u32[at] as number) + length);
    u32[at + 2] = length + bytes;
    u32[at + 3] = (this.#segment << SEGMENT_SHIFT) >>> 0;
    if (this.#count++ === 1) this.supers++;
    this.appended++;
    if (bytes < this.#segment) this.end();
    return true;
  }

  #follows(id: number): boolean {
    if (this.#step < 0) {
      const step = (id - this.#firstId) & 0xffff;
      if (step > 1) return false;
      this.#step = step;
      return true;
    }
    return id === ((this.#firstId + this.#step * this.#count) & 0xffff);
  }
}

/** Returns the IPv4 identification; 0 for IPv6. */
function identification(frame: Uint8Array): number {
  const word = (at: number) => ((frame[at] as number) << 8) | (frame[at + 1] as number);
  const tag = word(12) === 0x8100 ? 4 : 0;
  return word(12 + tag) === IPV4 ? word(18 + tag) : 0;
}
