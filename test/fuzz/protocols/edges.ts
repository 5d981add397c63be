/** Integers at their edges, and messages that are made of them. */
import type { Random } from '../../kit/random.js';

const EDGES = [0, 1, 2, 2 ** 7, 2 ** 8 - 1, 2 ** 15, 2 ** 16 - 1, 2 ** 31 - 1, 2 ** 31, 2 ** 32 - 2, 2 ** 32 - 1];
const EDGES_64 = [0n, 1n, 2n ** 31n, 2n ** 32n - 1n, 2n ** 63n - 1n, 2n ** 63n, 2n ** 64n - 16n, 2n ** 64n - 1n];

/** Returns an integer of up to 32 bits: `right`, one beside it, or an edge. */
export function edge(random: Random, right = 1): number {
  const kind = random.below(4);
  if (kind === 0) return right >>> 0;
  if (kind === 1) return (right + random.pick([-1, 1])) >>> 0;
  return kind === 2 ? random.pick(EDGES) : random.u32();
}

/** The same with 64 bits. */
export function edge64(random: Random, right = 0n): bigint {
  const kind = random.below(3);
  if (kind === 0) return BigInt.asUintN(64, right);
  if (kind === 1) return BigInt.asUintN(64, right + random.pick([-1n, 1n, 4096n]));
  return random.pick(EDGES_64);
}

/** Writes numbers, one after the other, with as many bytes as each says. */
export class Fields {
  readonly bytes: Buffer;
  #at = 0;

  constructor(
    length: number,
    readonly order: 'BE' | 'LE',
  ) {
    this.bytes = Buffer.alloc(length);
  }

  put(bytes: 1 | 2 | 3 | 4, value: number): this {
    const cut = value % 2 ** (8 * bytes);
    if (this.order === 'BE') this.bytes.writeUIntBE(cut, this.#at, bytes);
    else this.bytes.writeUIntLE(cut, this.#at, bytes);
    this.#at += bytes;
    return this;
  }

  put64(value: bigint): this {
    if (this.order === 'BE') this.bytes.writeBigUInt64BE(value, this.#at);
    else this.bytes.writeBigUInt64LE(value, this.#at);
    this.#at += 8;
    return this;
  }

  /** Goes on at an offset. */
  at(offset: number): this {
    this.#at = offset;
    return this;
  }
}
