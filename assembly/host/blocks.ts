// A range of memory that is divided into blocks: the allocator of both pools. A block is a number of contiguous units;
// free neighbours are merged. Free blocks are in lists by size, eight lists for each power of two. A bitmap marks the
// non-empty lists, so that neither allocating nor releasing walks over other blocks.
//
// Each unit has a place for a header, of which that of a block's first unit is used. The places may lie in the units
// themselves (host/pool) or in a table elsewhere (host/arena).

/** Number of free lists: 2^26 units of 64 bytes are the whole of 32-bit memory. */
const LISTS: u32 = 200;
const WORDS: u32 = (LISTS + 63) / 64;
/** The record, the bitmap, and the heads of the lists. */
const BITMAP: usize = 40;
const HEADS: usize = BITMAP + WORDS * 8;
/** Size of a Blocks with its lists. */
export const BLOCKS_BYTES: usize = HEADS + LISTS * 4;

const FREE: u32 = 1 << 31;

/** Blocks are named by their first unit; 0 = none. */
@unmanaged
@final
class Header {
  /** Units of the block, and the bit FREE. */
  size: u32;
  /** The block in front of it. */
  previous: u32;
  /** Neighbours in the free list. */
  listNext: u32;
  listPrevious: u32;

  get units(): u32 {
    return this.size & ~FREE;
  }
  get isFree(): bool {
    return (this.size & FREE) != 0;
  }
}
export const HEADER_BYTES: u32 = offsetof<Header>();

/**
 * Returns the list of a free block of this size: one list for each size below 8 units, then eight for each power of
 * two.
 */
function listOf(units: u32): u32 {
  if (units < 8) return units;
  let power = 31 - clz<u32>(units);
  return ((power - 2) << 3) + ((units >>> (power - 3)) & 7);
}

/** Returns the first list whose blocks all have at least this many units. */
function firstListFor(units: u32): u32 {
  if (units < 8) return units;
  return listOf(units + (1 << (28 - clz<u32>(units))) - 1);
}

@unmanaged
@final
export class Blocks {
  /** Place of unit 0's header, and distance of the places in bytes. */
  private headers: usize;
  private headerStride: u32;
  /** Units at the beginning of a block that are not handed out. */
  private lead: u32;
  unitBytes: u32;
  /** The range, in units because 2^32 does not fit in 32 bits. */
  firstUnit: u32;
  endUnit: u32;
  private lastBlock: u32;
  freeUnits: u32;
  /** All units that were ever handed out, and the leads behind them, lie from `usedFrom` to `usedTo`. */
  usedFrom: u32;
  usedTo: u32;

  /** Sets up an empty range, which ends and begins at a unit. */
  init(endUnit: u32, unitBytes: u32, headers: usize, headerStride: u32, lead: u32): void {
    memory.fill(changetype<usize>(this), 0, BLOCKS_BYTES);
    this.headers = headers;
    this.headerStride = headerStride;
    this.lead = lead;
    this.unitBytes = unitBytes;
    this.firstUnit = endUnit;
    this.endUnit = endUnit;
    this.usedFrom = endUnit;
  }

  /** Returns the units of a block with room for `bytes`. */
  unitsFor(bytes: u64): u32 {
    return <u32>((bytes + this.unitBytes - 1) / this.unitBytes) + this.lead;
  }

  /** Adds free units in front of the first block. */
  growDown(units: u32): void {
    let block = this.firstUnit - units;
    this.firstUnit = block;
    this.at(block).size = units;
    this.at(block).previous = 0;
    this.setPreviousOfNext(block);
    this.release(block);
  }

  /** Takes units away from the end, if the last block is free and larger than that. */
  shrinkFromEnd(units: u32): bool {
    let block = this.at(this.lastBlock);
    if (!block.isFree || block.units <= units) return false;
    this.removeFree(this.lastBlock);
    block.size -= units;
    this.endUnit -= units;
    this.freeUnits -= units;
    this.pushFree(this.lastBlock);
    return true;
  }

  /** Returns the units of the first block if it is free, else 0. */
  get freeAtFront(): u32 {
    if (this.firstUnit == this.endUnit) return 0;
    let block = this.at(this.firstUnit);
    return block.isFree ? block.units : 0;
  }

  /**
   * Returns a free block with room for `units` behind an aligned address: one of exactly this size, as released
   * objects of the same kind leave it behind, or the smallest one that is large enough wherever the alignment begins.
   * 0 = there is none. `align` is in units.
   */
  find(units: u32, align: u32): u32 {
    let first = this.head(listOf(units));
    if (this.fits(first, units, align)) return first;
    let list = this.nextNonEmpty(firstListFor(units + align - 1));
    return list < LISTS ? this.head(list) : 0;
  }

  /** As find, when memory is nearly used up: any block that happens to fit. */
  findAny(units: u32, align: u32): u32 {
    for (let list = this.nextNonEmpty(listOf(units)); list < LISTS; list = this.nextNonEmpty(list + 1))
      for (let block = this.head(list); block != 0; block = this.at(block).listNext)
        if (this.fits(block, units, align)) return block;
    return 0;
  }

  /** Takes `units` of a block that find has returned. @returns the address behind the lead */
  take(block: u32, units: u32, align: u32): usize {
    let skip = this.alignmentUnits(block, align);
    this.removeFree(block);
    if (skip != 0) {
      this.split(block, skip);
      this.pushFree(block);
      block += skip;
    }
    if (this.at(block).units > units) {
      this.split(block, units);
      this.pushFree(block + units);
    }
    this.freeUnits -= units;
    this.usedFrom = min(this.usedFrom, block);
    this.usedTo = max(this.usedTo, block + units + this.lead);
    return <usize>(block + this.lead) * this.unitBytes;
  }

  /** Returns the block whose memory begins at this address. */
  blockAt(data: usize): u32 {
    return <u32>(data / this.unitBytes) - this.lead;
  }

  release(block: u32): void {
    this.freeUnits += this.at(block).units;
    this.joinNext(block);
    let before = this.at(block).previous;
    if (before != 0 && this.at(before).isFree) {
      this.removeFree(before);
      this.at(before).size += this.at(block).units;
      this.setPreviousOfNext(before);
      block = before;
    }
    this.pushFree(block);
  }

  private at(block: u32): Header {
    return changetype<Header>(this.headers + <usize>block * this.headerStride);
  }

  /** Returns the units to skip at the beginning of a block so that the memory behind the lead is aligned. */
  private alignmentUnits(block: u32, align: u32): u32 {
    return ((block + this.lead + align - 1) & ~(align - 1)) - this.lead - block;
  }

  private fits(block: u32, units: u32, align: u32): bool {
    return block != 0 && this.at(block).units >= this.alignmentUnits(block, align) + units;
  }

  private head(list: u32): u32 {
    return load<u32>(changetype<usize>(this) + ((<usize>list) << 2), HEADS);
  }
  private setHead(list: u32, block: u32): void {
    store<u32>(changetype<usize>(this) + ((<usize>list) << 2), block, HEADS);
    let word = changetype<usize>(this) + ((<usize>(list >>> 6)) << 3);
    let bit = (<u64>1) << (list & 63);
    let bits = load<u64>(word, BITMAP);
    store<u64>(word, block == 0 ? bits & ~bit : bits | bit, BITMAP);
  }

  /** Returns the first non-empty list from `list` on; LISTS when there is none. */
  private nextNonEmpty(list: u32): u32 {
    let word = list >>> 6;
    let bitmap = changetype<usize>(this) + BITMAP;
    let found = word < WORDS ? load<u64>(bitmap + ((<usize>word) << 3)) & (~(<u64>0) << (list & 63)) : 0;
    while (found == 0 && ++word < WORDS) found = load<u64>(bitmap + ((<usize>word) << 3));
    return found == 0 ? LISTS : (word << 6) + <u32>ctz<u64>(found);
  }

  private pushFree(block: u32): void {
    let header = this.at(block);
    let list = listOf(header.units);
    let first = this.head(list);
    header.size |= FREE;
    header.listPrevious = 0;
    header.listNext = first;
    if (first != 0) this.at(first).listPrevious = block;
    this.setHead(list, block);
  }

  private removeFree(block: u32): void {
    let header = this.at(block);
    header.size &= ~FREE;
    if (header.listNext != 0) this.at(header.listNext).listPrevious = header.listPrevious;
    if (header.listPrevious != 0) this.at(header.listPrevious).listNext = header.listNext;
    else this.setHead(listOf(header.units), header.listNext);
  }

  /** Splits a block that is in no list after this many units. */
  private split(block: u32, units: u32): void {
    let rest = this.at(block + units);
    rest.size = this.at(block).units - units;
    rest.previous = block;
    this.at(block).size = units;
    this.setPreviousOfNext(block + units);
  }

  /** Merges a block that is in no list with the next one, if that is free. */
  private joinNext(block: u32): void {
    let next = block + this.at(block).units;
    if (next == this.endUnit || !this.at(next).isFree) return;
    this.removeFree(next);
    this.at(block).size += this.at(next).units;
    this.setPreviousOfNext(block);
  }

  /** Tells the next block where this one begins. */
  private setPreviousOfNext(block: u32): void {
    let next = block + this.at(block).units;
    if (next == this.endUnit) this.lastBlock = block;
    else this.at(next).previous = block;
  }
}
