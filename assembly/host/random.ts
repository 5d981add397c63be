// Unpredictable numbers for keys, queue pair numbers and PSNs: ChaCha20 (RFC 8439 2.3) keyed by the caller's seed. An
// off-path attacker who could guess these numbers could write into a region (see README, security).
import { RANDOM } from '../memorymap';

/** The state's 16 words, the block's 16 words, and the number of block words that are used. */
const STATE: usize = RANDOM;
const BLOCK: usize = RANDOM + 64;
const USED: usize = RANDOM + 128;

/** @param seed 32 bytes */
export function initRandom(seed: usize): void {
  store<u32>(STATE, 0x61707865);
  store<u32>(STATE, 0x3320646e, 4);
  store<u32>(STATE, 0x79622d32, 8);
  store<u32>(STATE, 0x6b206574, 12);
  memory.copy(STATE + 16, seed, 32);
  memory.fill(STATE + 48, 0, 16);
  store<u32>(USED, 16);
}

export function random32(): u32 {
  let used = load<u32>(USED);
  if (used == 16) {
    nextBlock();
    used = 0;
  }
  store<u32>(USED, used + 1);
  return load<u32>(BLOCK + ((<usize>used) << 2));
}

function nextBlock(): void {
  memory.copy(BLOCK, STATE, 64);
  for (let round = 0; round < 10; round++) {
    quarter(0, 4, 8, 12);
    quarter(1, 5, 9, 13);
    quarter(2, 6, 10, 14);
    quarter(3, 7, 11, 15);
    quarter(0, 5, 10, 15);
    quarter(1, 6, 11, 12);
    quarter(2, 7, 8, 13);
    quarter(3, 4, 9, 14);
  }
  for (let i: usize = 0; i < 64; i += 4) store<u32>(BLOCK + i, load<u32>(BLOCK + i) + load<u32>(STATE + i));
  store<u32>(STATE, load<u32>(STATE, 48) + 1, 48);
}

function quarter(a: usize, b: usize, c: usize, d: usize): void {
  step(a, b, d, 16);
  step(c, d, b, 12);
  step(a, b, d, 8);
  step(c, d, b, 7);
}

/** a += b; d = (d ^ a) <<< by */
function step(a: usize, b: usize, d: usize, by: u32): void {
  let sum = load<u32>(BLOCK + (a << 2)) + load<u32>(BLOCK + (b << 2));
  store<u32>(BLOCK + (a << 2), sum);
  store<u32>(BLOCK + (d << 2), rotl<u32>(load<u32>(BLOCK + (d << 2)) ^ sum, by));
}
