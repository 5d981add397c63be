// The least cost of every byte with the card's own code: one copy and one CRC. Not part of the card.

import { POOL_START } from '../../assembly/memorymap';
import { crc, initCrc } from '../../assembly/wire/crc';
import { copyWithCrc } from './fused';

/** The place of a frame, and two regions of up to 1 MiB: the source of sent data and the target of received data. */
const SLOT: usize = POOL_START;
const SENT: usize = POOL_START + 65536;
const RECEIVED: usize = SENT + 1048576;

export function init(): void {
  initCrc();
}

/** Returns the offset of the next piece in a region of `span` bytes, and starts over at its end. */
function next(offset: usize, bytes: usize, span: usize): usize {
  return offset + 2 * bytes <= span ? offset + bytes : 0;
}

export function copy(times: u32, bytes: u32, span: u32): u32 {
  for (let i: u32 = 0, at: usize = 0; i < times; i++, at = next(at, bytes, span)) memory.copy(SLOT, SENT + at, bytes);
  return load<u32>(SLOT);
}

export function sum(times: u32, bytes: u32, span: u32): u32 {
  let register: u32 = 0;
  for (let i: u32 = 0, at: usize = 0; i < times; i++, at = next(at, bytes, span))
    register = crc(register, SENT + at, bytes);
  return register;
}

/**
 * Alternates between a sender's copy, from the region into a frame, and a receiver's, from the frame into its region.
 */
export function copyAndSum(times: u32, bytes: u32, span: u32): u32 {
  let register: u32 = 0;
  let at: usize = 0;
  for (let i: u32 = 0; i < times; i += 2) {
    memory.copy(SLOT, SENT + at, bytes);
    register = crc(register, SLOT, bytes);
    register = crc(register, SLOT, bytes);
    memory.copy(RECEIVED + at, SLOT, bytes);
    at = next(at, bytes, span);
  }
  return register;
}

/** The same with copy and CRC in one pass. */
export function fused(times: u32, bytes: u32, span: u32): u32 {
  let register: u32 = 0;
  let at: usize = 0;
  for (let i: u32 = 0; i < times; i += 2) {
    register = copyWithCrc(register, SLOT, SENT + at, bytes);
    register = copyWithCrc(register, RECEIVED + at, SLOT, bytes);
    at = next(at, bytes, span);
  }
  return register;
}
