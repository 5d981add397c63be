// The application's memory: whole pages, at the end of the card's memory. A program may keep a view of a region that it
// has closed, and write through it at any time. So pages that once belonged to the application are never used for the
// card's objects again, and what is known of them lies in a table elsewhere. The arena grows towards the pool
// (host/pool), by pages that the pool has free at its end, and does not shrink.
import { ARENA, POOL_START } from '../memorymap';
import { Blocks, HEADER_BYTES } from './blocks';
import { initPool, pool, usedEnd } from './pool';

const PAGE: u32 = 4096;
/** This much at the end of the memory stays unused: a vector load past the end of the last block must not trap. */
const MARGIN: u32 = 65536;

function arena(): Blocks {
  return changetype<Blocks>(ARENA);
}

/**
 * Lays out the memory behind the fixed structures: the arena's table, the pool, and the arena, which is empty. The
 * memory must be zero.
 */
export function initMemory(memoryBytes: u64): void {
  let endPage = <u32>((memoryBytes - MARGIN) / PAGE);
  arena().init(endPage, PAGE, POOL_START, HEADER_BYTES, 0);
  initPool(POOL_START + <usize>endPage * HEADER_BYTES, memoryBytes - MARGIN);
}

/** Returns the bytes that are free in the pool and in the arena. */
export function available(): u64 {
  return <u64>pool().freeUnits * pool().unitBytes + <u64>arena().freeUnits * PAGE;
}

/** Returns whether memory lies in the arena. */
export function isInArena(ptr: usize, length: u32): bool {
  return ptr / PAGE >= arena().firstUnit && <u64>ptr + length <= <u64>arena().endUnit * PAGE;
}

/** Returns zeroed pages for the application; 0 when there are none. */
export function allocatePages(bytes: u32): usize {
  let blocks = arena();
  let pages = blocks.unitsFor(bytes == 0 ? 1 : bytes);
  let block = blocks.find(pages, 1);
  if (block == 0 && grow(pages)) block = blocks.find(pages, 1);
  if (block == 0) block = blocks.findAny(pages, 1);
  if (block == 0) return 0;
  let used = <usize>blocks.usedFrom * PAGE;
  let ptr = blocks.take(block, pages, 1);
  // Memory that neither the pool nor the arena has used is zero, and stays untouched.
  let end = ptr + bytes;
  if (ptr < usedEnd()) memory.fill(ptr, 0, min(end, usedEnd()) - ptr);
  if (end > used) memory.fill(max(ptr, used), 0, end - max(ptr, used));
  return ptr;
}

/** Releases memory of allocatePages. */
export function releasePages(ptr: usize): void {
  arena().release(arena().blockAt(ptr));
}

/** Makes room for a block of this many pages at the front of the arena, if the pool has them at its end. */
function grow(pages: u32): bool {
  let atFront = arena().freeAtFront;
  if (atFront >= pages) return false;
  let more = pages - atFront;
  if (!pool().shrinkFromEnd(more * (PAGE / pool().unitBytes))) return false;
  arena().growDown(more);
  return true;
}
