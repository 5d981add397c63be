/** Remembers frames: a target for our pcap wrapper that tests can ask. */
import { Writable } from 'node:stream';
import { decode, isRoce } from '../kit/decode.js';
import { describe } from '../kit/describe.js';
import type { Decoded } from '../kit/frame.js';
import { readCapture } from '../kit/pcap.js';

export interface Seen extends Decoded {
  readonly direction: 'in' | 'out';
}

export class WireTap extends Writable {
  #chunks: Buffer[] = [];

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.#chunks.push(chunk);
    done();
  }

  /** All RoCE frames since the start, or those of one queue pair of ours and of its peer's. */
  frames(...qpns: number[]): Seen[] {
    const { packets } = readCapture(Buffer.concat(this.#chunks));
    return packets
      .filter(({ data }) => isRoce(data))
      .map(({ data, direction }) => ({
        ...decode(data),
        direction: direction === 1 ? ('in' as const) : ('out' as const),
      }))
      .filter(({ bth }) => qpns.length === 0 || qpns.includes(bth.destQp));
  }

  /** Syndromes of the NAKs among them (0x60..0x7f) and of the RNR NAKs (0x20..0x3f), in order. */
  naks(...qpns: number[]): number[] {
    return this.frames(...qpns)
      .filter(({ bth, aeth }) => bth.opcode === ACKNOWLEDGE && aeth && aeth.syndrome >= 0x20)
      .map(({ aeth }) => aeth?.syndrome as number);
  }

  /** One line for each frame, for failure messages. */
  override toString(): string {
    const { packets } = readCapture(Buffer.concat(this.#chunks));
    return packets.map(({ data, direction }) => `${direction === 1 ? '<' : '>'} ${describe(data)}`).join('\n');
  }
}

const ACKNOWLEDGE = 0x11;
