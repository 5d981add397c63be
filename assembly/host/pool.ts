// The memory from POOL_START to the end, handed out in blocks when objects are created and taken back when they go;
// never on the path of a packet. Blocks lie in a list ordered by address; each has a header of 64 bytes in front:
// | size (whole block) u32 in units of 64 | isFree u32 | previous block u32 | ...
// First fit; neighbours that are free are joined. The search begins behind all that is in use from the start on, so that
// creating many objects does not walk over each of them.
import { POOL, POOL_START } from '../limits';

/** Header of a block, and the granule of its size. */
const UNIT: u32 = 64;
/** A free block with less (what an alignment left over) does not hold up where the search begins. */
const SCRAP_UNITS: u32 = 16;

@unmanaged
@final
class Pool {
  static get(): Pool {
    return changetype<Pool>(POOL);
  }
  /** End of memory: 2^32 does not fit in 32 bits, so in units. */
  endUnits: u32;
  freeUnits: u32;
  /** Every block below it is in use, or a scrap. */
  firstUnits: u32;
}

@unmanaged
@final
class Block {
  units: u32;
  isFree: u32;
  previous: u32;
  static at(ptr: usize): Block {
    return changetype<Block>(ptr);
  }
}

function unitsOf(ptr: usize): u32 {
  return <u32>(ptr / UNIT);
}
function nextOf(ptr: usize): u32 {
  return unitsOf(ptr) + Block.at(ptr).units;
}

export function initPool(memoryBytes: u64): void {
  let pool = Pool.get();
  // the last page stays unused: a vector load past the end of the last block must not trap
  pool.endUnits = <u32>((memoryBytes - 65536) / UNIT);
  let units = pool.endUnits - unitsOf(POOL_START);
  pool.freeUnits = units;
  pool.firstUnits = unitsOf(POOL_START);
  let first = Block.at(POOL_START);
  first.units = units;
  first.isFree = 1;
  first.previous = 0;
}

export function available(): u64 {
  return <u64>Pool.get().freeUnits * UNIT;
}

/** Zeroed memory on a boundary of 64 bytes; 0 when there is none. */
export function allocate(bytes: u64): usize {
  return allocateAligned(bytes, UNIT);
}

/** Zeroed memory on a boundary of `align` bytes (a power of two, 64 or more); 0 when there is none. */
export function allocateAligned(bytes: u64, align: u32): usize {
  let pool = Pool.get();
  if (bytes == 0) bytes = 1;
  if (bytes > 0xffff0000) return 0;
  let wanted = <u32>((bytes + UNIT - 1) / UNIT) + 1;
  skipUsed(pool);
  for (let at = pool.firstUnits; at < pool.endUnits; ) {
    let ptr = <usize>at * UNIT;
    let block = Block.at(ptr);
    if (block.isFree) {
      // the header goes right in front of the aligned address
      let data = (<u64>ptr + UNIT + align - 1) & ~(<u64>align - 1);
      let skip = <u32>(data / UNIT) - 1 - at;
      if (block.units >= skip && block.units - skip >= wanted) {
        if (skip) {
          split(ptr, skip);
          ptr += <usize>skip * UNIT;
          block = Block.at(ptr);
        }
        if (block.units > wanted) split(ptr, wanted);
        block.isFree = 0;
        pool.freeUnits -= block.units;
        memory.fill(ptr + UNIT, 0, <usize>(block.units - 1) * UNIT);
        return ptr + UNIT;
      }
    }
    at += block.units;
  }
  return 0;
}

function skipUsed(pool: Pool): void {
  while (pool.firstUnits < pool.endUnits) {
    let block = Block.at(<usize>pool.firstUnits * UNIT);
    if (block.isFree && block.units >= SCRAP_UNITS) return;
    pool.firstUnits += block.units;
  }
}

/** Takes back what allocate gave. */
export function release(data: usize): void {
  let pool = Pool.get();
  let ptr = data - UNIT;
  let block = Block.at(ptr);
  block.isFree = 1;
  pool.freeUnits += block.units;
  joinNext(ptr);
  if (block.previous != 0) {
    let previous = <usize>block.previous * UNIT;
    if (Block.at(previous).isFree) {
      joinNext(previous);
      ptr = previous;
    }
  }
  pool.firstUnits = min(pool.firstUnits, unitsOf(ptr));
}

function split(ptr: usize, units: u32): void {
  let block = Block.at(ptr);
  let restAt = unitsOf(ptr) + units;
  let rest = Block.at(<usize>restAt * UNIT);
  rest.units = block.units - units;
  rest.isFree = 1;
  rest.previous = unitsOf(ptr);
  block.units = units;
  let next = nextOf(<usize>restAt * UNIT);
  if (Pool.get().endUnits > next) Block.at(<usize>next * UNIT).previous = restAt;
}

function joinNext(ptr: usize): void {
  let end = Pool.get().endUnits;
  let next = nextOf(ptr);
  if (next >= end) return;
  let neighbour = Block.at(<usize>next * UNIT);
  if (!neighbour.isFree) return;
  Block.at(ptr).units += neighbour.units;
  next = nextOf(ptr);
  if (next < end) Block.at(<usize>next * UNIT).previous = unitsOf(ptr);
}
