// A copy and its CRC in one pass, for comparison with the card, which copies first and computes the CRC afterwards. Not
// part of the card. assembly/wire/crc.ts explains the folding.

import { CRC_SCRATCH } from '../../assembly/memorymap';
import { crc } from '../../assembly/wire/crc';

/** Bytes that the folding reaches back; this many zero bytes precede the folded data. */
const REACH: usize = 300;
const FOLDED: usize = CRC_SCRATCH + 320;
const LEFT: usize = FOLDED + 8192 + 320;

function carried(at: usize): v128 {
  return v128.xor(
    v128.xor(v128.load(at - 145), v128.load(at - 183)),
    v128.xor(v128.load(at - 211), v128.load(at - REACH)),
  );
}

/** Copies 384 to 8192 bytes. @returns the CRC register after them */
export function copyWithCrc(register: u32, target: usize, source: usize, bytes: usize): u32 {
  const folded = (bytes - REACH) & ~15;
  let word = v128.load(source);
  v128.store(target, word);
  v128.store(FOLDED, v128.xor(word, i32x4.replace_lane(i32x4.splat(0), 0, register)));
  for (let i: usize = 16; i < folded; i += 16) {
    word = v128.load(source + i);
    v128.store(target + i, word);
    v128.store(FOLDED + i, v128.xor(word, carried(FOLDED + i)));
  }
  const end = FOLDED + folded;
  const left = bytes - folded;
  memory.fill(end, 0, 320);
  memory.copy(target + folded, source + folded, left);
  for (let i: usize = 0; i < left; i += 16)
    v128.store(LEFT + i, v128.xor(v128.load(source + folded + i), carried(end + i)));
  return crc(0, LEFT, <u32>left);
}
