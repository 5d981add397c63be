import { crc32 } from 'node:zlib';
import { beforeAll, expect, test } from 'vitest';
import { Random } from '../kit/random.js';
import { Wire } from './wire.js';

let wire: Wire;
beforeAll(async () => {
  wire = await Wire.create();
}, 60_000);

/** The card's register is zlib's value without the complements. */
const complement = (value: number): number => ~value >>> 0;

test('agrees with zlib for every length up to 1200 and across the limits of a fold, at any alignment', () => {
  const random = new Random(7);
  const lengths = [...Array(1200).keys(), 4096, 4201, 8191, 8192, 8193, 8575, 8576, 8577, 16384, 20000];
  for (const length of lengths) {
    const at = (1 << 17) + random.below(64);
    wire.bytes.set(random.bytes(length + 32), at - 16);
    const seed = random.u32();
    const expected = crc32(Buffer.from(wire.bytes.slice(at, at + length)), complement(seed));
    expect(complement(wire.exports.crc(seed, at, length)), `${length} bytes at ${at}`).toBe(expected);
  }
});
