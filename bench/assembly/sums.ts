// What every byte costs at the least, with the card's own code: one copy, one CRC. Not part of the card.

import { POOL_START } from '../../assembly/limits';
import { crc, initCrc } from '../../assembly/wire/crc';
import { copyWithSum } from './fused';

const SOURCE: usize = POOL_START;
const TARGET: usize = POOL_START + 65536;

export function init(): void {
  initCrc();
}

export function copy(times: u32, bytes: u32): u32 {
  for (let i: u32 = 0; i < times; i++) memory.copy(TARGET, SOURCE, bytes);
  return load<u32>(TARGET);
}

export function sum(times: u32, bytes: u32): u32 {
  let register: u32 = 0;
  for (let i: u32 = 0; i < times; i++) register = crc(register, SOURCE, bytes);
  return register;
}

export function copyAndSum(times: u32, bytes: u32): u32 {
  let register: u32 = 0;
  for (let i: u32 = 0; i < times; i++) {
    memory.copy(TARGET, SOURCE, bytes);
    register = crc(register, TARGET, bytes);
  }
  return register;
}

export function fused(times: u32, bytes: u32): u32 {
  let register: u32 = 0;
  for (let i: u32 = 0; i < times; i++) register = copyWithSum(register, TARGET, SOURCE, bytes);
  return register;
}
