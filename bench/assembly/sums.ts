// What every byte costs at the least, with the card's own code: one copy, one CRC. Not part of the card.

import { POOL_START } from '../../assembly/limits';
import { crc, initCrc } from '../../assembly/wire/crc';
import { copyWithSum } from './fused';

/** Where frames would be, and two regions of up to 1 MiB, of which one is sent and one is received into. */
const SLOT: usize = POOL_START;
const SENT: usize = POOL_START + 65536;
const RECEIVED: usize = SENT + 1048576;

export function init(): void {
  initCrc();
}

/** Where the next piece begins in a region of `span` bytes that is gone through again and again. */
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

/** By turns as a sender does it, from the region into a frame, and as a receiver does it, from the frame into its region. */
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

/** The same in one pass each. */
export function fused(times: u32, bytes: u32, span: u32): u32 {
  let register: u32 = 0;
  let at: usize = 0;
  for (let i: u32 = 0; i < times; i += 2) {
    register = copyWithSum(register, SLOT, SENT + at, bytes);
    register = copyWithSum(register, RECEIVED + at, SLOT, bytes);
    at = next(at, bytes, span);
  }
  return register;
}
