/** Packets as rules of faults see them: decoded, with the number of their destination, and with changes. */
import type { Decoded } from '../packet/frame.js';
import { CNP, Op } from '../packet/opcodes.js';

/** The most destinations that have numbers. Packets to further ones have number 0. */
const MAX_STREAMS = 65_536;
/** Queue pair number of the connection manager, which does not count. */
const GSI = 1;

/** A frame and what happens to it. */
export interface Change {
  readonly frame: Uint8Array;
  /** 0 drops the frame. */
  readonly copies: number;
  readonly delayNs: number;
  /** Number of later frames that go first. */
  readonly overtakers: number;
}

/** Numbers the destinations of one direction (address and queue pair number) in the order of their first packets. */
export class Streams {
  readonly #numbers = new Map<string, number>();

  /** Returns the number, from 1; 0 for the connection manager. */
  numberOf({ ip, bth }: Decoded): number {
    if (bth.destQp === GSI) return 0;
    const key = `${ip.dst} ${bth.destQp}`;
    const known = this.#numbers.get(key);
    if (known !== undefined || this.#numbers.size >= MAX_STREAMS) return known ?? 0;
    this.#numbers.set(key, this.#numbers.size + 1);
    return this.#numbers.size;
  }
}

/** Returns whether a packet may come again with its PSN: not so ACK, NAK and CNP, which are made anew each time. */
export const isRepeatable = ({ bth }: Decoded): boolean => bth.opcode !== Op.ACKNOWLEDGE && bth.opcode !== CNP;

/** Returns whether a packet's PSN is of the other end's sequence: it answers a READ or an atomic. */
export const isResponse = ({ bth }: Decoded): boolean =>
  bth.opcode >= Op.RDMA_READ_RESPONSE_FIRST && bth.opcode <= Op.ATOMIC_ACKNOWLEDGE;
