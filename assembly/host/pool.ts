// The memory from POOL_START to the end, handed out in blocks when objects are created and taken back when they go;
// never on the path of a packet. Blocks lie one behind the other; each has a header of 64 bytes in front, and neighbours that
// are free are joined. Free blocks are in lists by their size, eight for each power of two, and a bit for each list says
// whether there is one: so neither taking nor giving back walks over what else there is.
import { POOL, POOL_LISTS, POOL_START } from '../limits';

/** Header of a block, and the granule of its size. */
const UNIT: u32 = 64;
/** Lists of free blocks: 2^26 units are the whole of 32-bit memory. */
const CLASSES: u32 = 200;
const WORDS: u32 = (CLASSES + 63) / 64;

@unmanaged
@final
class Pool {
  static get(): Pool {
    return changetype<Pool>(POOL);
  }
  /** End of memory: 2^32 does not fit in 32 bits, so in units. */
  endUnits: u32;
  freeUnits: u32;
}

@unmanaged
@final
class Block {
  /** Size of the whole block, and where the block in front of it is (0 = there is none), in units. */
  units: u32;
  previous: u32;
  isFree: bool;
  /** Neighbours in its list; 0 = there is none. */
  next: usize;
  last: usize;

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

/** The list that a free block of this size is in: below 8 units one for each size, then eight for each power of two. */
function classOf(units: u32): u32 {
  if (units < 8) return units;
  let power = 31 - clz<u32>(units);
  return ((power - 2) << 3) + ((units >>> (power - 3)) & 7);
}

/** The first list all of whose blocks have so many units. */
function classFrom(units: u32): u32 {
  if (units < 8) return units;
  return classOf(units + (1 << (28 - clz<u32>(units))) - 1);
}

function head(list: u32): usize {
  return POOL_LISTS + WORDS * 8 + ((<usize>list) << 2);
}
function bits(word: u32): usize {
  return POOL_LISTS + ((<usize>word) << 3);
}

/** The first list from `list` on that has a block; CLASSES when there is none. */
function filledFrom(list: u32): u32 {
  let word = list >>> 6;
  let found = word < WORDS ? load<u64>(bits(word)) & (~(<u64>0) << (list & 63)) : 0;
  while (found == 0 && ++word < WORDS) found = load<u64>(bits(word));
  return found == 0 ? CLASSES : (word << 6) + <u32>ctz<u64>(found);
}

function enlist(ptr: usize): void {
  let block = Block.at(ptr);
  let list = classOf(block.units);
  let first = <usize>load<u32>(head(list));
  block.isFree = true;
  block.last = 0;
  block.next = first;
  if (first != 0) Block.at(first).last = ptr;
  store<u32>(head(list), <u32>ptr);
  store<u64>(bits(list >>> 6), load<u64>(bits(list >>> 6)) | ((<u64>1) << (list & 63)));
}

function unlist(ptr: usize): void {
  let block = Block.at(ptr);
  let list = classOf(block.units);
  block.isFree = false;
  if (block.next != 0) Block.at(block.next).last = block.last;
  if (block.last != 0) {
    Block.at(block.last).next = block.next;
    return;
  }
  store<u32>(head(list), <u32>block.next);
  if (block.next == 0) store<u64>(bits(list >>> 6), load<u64>(bits(list >>> 6)) & ~((<u64>1) << (list & 63)));
}

export function initPool(memoryBytes: u64): void {
  let pool = Pool.get();
  memory.fill(POOL_LISTS, 0, WORDS * 8 + CLASSES * 4);
  // the last page stays unused: a vector load past the end of the last block must not trap
  pool.endUnits = <u32>((memoryBytes - 65536) / UNIT);
  pool.freeUnits = pool.endUnits - unitsOf(POOL_START);
  let first = Block.at(POOL_START);
  first.units = pool.freeUnits;
  first.previous = 0;
  enlist(POOL_START);
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
  if (bytes == 0) bytes = 1;
  if (bytes > 0xffff0000) return 0;
  let wanted = <u32>((bytes + UNIT - 1) / UNIT) + 1;
  let ptr = find(wanted, align);
  if (ptr == 0) return 0;
  let skip = skipped(ptr, align);
  unlist(ptr);
  if (skip != 0) {
    split(ptr, skip);
    enlist(ptr);
    ptr += <usize>skip * UNIT;
  }
  let block = Block.at(ptr);
  if (block.units > wanted) {
    split(ptr, wanted);
    enlist(<usize>nextOf(ptr) * UNIT);
  }
  Pool.get().freeUnits -= wanted;
  memory.fill(ptr + UNIT, 0, <usize>(wanted - 1) * UNIT);
  return ptr + UNIT;
}

/** Units in front of a block's header when it begins so that what is behind the header is aligned. */
function skipped(ptr: usize, align: u32): u32 {
  let data = (<u64>ptr + UNIT + align - 1) & ~(<u64>align - 1);
  return <u32>(data / UNIT) - 1 - unitsOf(ptr);
}

function fits(ptr: usize, wanted: u32, align: u32): bool {
  return ptr != 0 && Block.at(ptr).units >= skipped(ptr, align) + wanted;
}

/** A free block for so many units; 0 when there is none. */
function find(wanted: u32, align: u32): usize {
  let own = classOf(wanted);
  // one of just this size, as objects of one kind leave it behind
  let first = <usize>load<u32>(head(own));
  if (fits(first, wanted, align)) return first;
  // the smallest that is large enough wherever it begins
  let list = filledFrom(classFrom(wanted + align / UNIT - 1));
  if (list < CLASSES) return load<u32>(head(list));
  // memory is all but used up: any that happens to fit
  for (list = filledFrom(own); list < CLASSES; list = filledFrom(list + 1))
    for (let ptr = <usize>load<u32>(head(list)); ptr != 0; ptr = Block.at(ptr).next)
      if (fits(ptr, wanted, align)) return ptr;
  return 0;
}

/** Takes back what allocate gave. */
export function release(data: usize): void {
  let ptr = data - UNIT;
  Pool.get().freeUnits += Block.at(ptr).units;
  joinNext(ptr);
  let before = <usize>Block.at(ptr).previous * UNIT;
  if (before != 0 && Block.at(before).isFree) {
    unlist(before);
    Block.at(before).units += Block.at(ptr).units;
    tellNext(before);
    ptr = before;
  }
  enlist(ptr);
}

/** Cuts a block that is in no list after so many units. */
function split(ptr: usize, units: u32): void {
  let block = Block.at(ptr);
  let rest = ptr + <usize>units * UNIT;
  Block.at(rest).units = block.units - units;
  Block.at(rest).previous = unitsOf(ptr);
  Block.at(rest).isFree = false;
  block.units = units;
  tellNext(rest);
}

/** A block that is in no list swallows the next one, if that is free. */
function joinNext(ptr: usize): void {
  let next = <usize>nextOf(ptr) * UNIT;
  if (nextOf(ptr) >= Pool.get().endUnits || !Block.at(next).isFree) return;
  unlist(next);
  Block.at(ptr).units += Block.at(next).units;
  tellNext(ptr);
}

/** Tells the block behind where this one begins. */
function tellNext(ptr: usize): void {
  let next = nextOf(ptr);
  if (Pool.get().endUnits > next) Block.at(<usize>next * UNIT).previous = unitsOf(ptr);
}
