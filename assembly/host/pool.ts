// The memory of the card's own objects, from the end of the arena's table to the beginning of the arena (host/arena).
// Blocks are allocated when objects are created and released when they are destroyed, never while a packet is
// processed. Each block has its header in front, which takes a unit: objects are aligned to cache lines.
import { POOL } from '../memorymap';
import { Blocks } from './blocks';

/** Unit of the pool, and alignment of all blocks. */
const UNIT_BYTES: u32 = 64;

export function pool(): Blocks {
  return changetype<Blocks>(POOL);
}

/** Sets up the pool from `start` to `end`, both multiples of 64. */
export function initPool(start: usize, end: u64): void {
  let endUnit = <u32>(end / UNIT_BYTES);
  pool().init(endUnit, UNIT_BYTES, 0, UNIT_BYTES, 1);
  pool().growDown(endUnit - <u32>(start / UNIT_BYTES));
}

/** Returns the end of the memory that the pool has used. Behind it, only the arena may have changed anything. */
export function usedEnd(): usize {
  return <usize>pool().usedTo * UNIT_BYTES;
}

/** Returns zeroed memory aligned to 64 bytes; 0 when there is none. */
export function allocate(bytes: u64): usize {
  return allocateAligned(bytes, UNIT_BYTES);
}

/** Returns zeroed memory aligned to `align` bytes (a power of two, 64 or more); 0 when there is none. */
export function allocateAligned(bytes: u64, align: u32): usize {
  if (bytes == 0) bytes = 1;
  if (bytes > 0xffff0000) return 0;
  let blocks = pool();
  let units = blocks.unitsFor(bytes);
  align /= UNIT_BYTES;
  let block = blocks.find(units, align) || blocks.findAny(units, align);
  if (block == 0) return 0;
  let used = usedEnd();
  let data = blocks.take(block, units, align);
  // Unused memory is zero. To fill it would make the system provide all of it at once.
  if (data < used) memory.fill(data, 0, min(<usize>(units - 1) * UNIT_BYTES, used - data));
  return data;
}

/** Releases memory of allocate. */
export function release(data: usize): void {
  pool().release(pool().blockAt(data));
}
