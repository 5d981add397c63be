/** Records frames: a target for our pcap wrapper that tests can query. */
import { decode, isRoce } from '../../src/probe/packet/decode.js';
import { describe } from '../../src/probe/packet/describe.js';
import type { Decoded } from '../../src/probe/packet/frame.js';
import { Recording } from '../kit/recording.js';

export interface Seen extends Decoded {
  readonly direction: 'in' | 'out';
}

export class WireTap extends Recording {
  /** Returns all RoCE frames, or those for the given queue pair numbers. */
  frames(...qpns: number[]): Seen[] {
    const { packets } = this.capture();
    return packets
      .filter(({ data }) => isRoce(data))
      .map(({ data, direction }) => ({
        ...decode(data),
        direction: direction === 1 ? ('in' as const) : ('out' as const),
      }))
      .filter(({ bth }) => qpns.length === 0 || qpns.includes(bth.destQp));
  }

  /** Returns the syndromes of their NAKs (0x60 to 0x7f) and RNR NAKs (0x20 to 0x3f), in order. */
  naks(...qpns: number[]): number[] {
    return this.frames(...qpns)
      .filter(({ bth, aeth }) => bth.opcode === ACKNOWLEDGE && aeth && aeth.syndrome >= 0x20)
      .map(({ aeth }) => aeth?.syndrome as number);
  }

  /** Returns one line for each frame, for failure messages. */
  override toString(): string {
    const { packets } = this.capture();
    return packets.map(({ data, direction }) => `${direction === 1 ? '<' : '>'} ${describe(data)}`).join('\n');
  }
}

const ACKNOWLEDGE = 0x11;
