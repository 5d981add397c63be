// Places: addresses of registered memory. A place is | region u32 | offset u32 |, the region in the upper half. Region
// 0 is the card's own memory. The others are memory of the program outside of it, which the card accesses by its
// imports: those check bounds and rights again, so that no fault of the card reaches other memory.
import { PLACE_PAD } from '../memorymap';
import { atomic as atomicAt, fetch, place } from './env';

/** Operations of the import `atomic`. */
enum AtomicOperation {
  /** Compares with the first operand, and stores the second one if it is equal. */
  COMPARE_SWAP,
  /** Adds the first operand. */
  FETCH_ADD,
  /** Stores the first operand. */
  STORE,
}

const REGION_SHIFT: u64 = 32;

/** Returns whether a place is in the card's own memory. It is then a pointer. */
export function isInCard(place: u64): bool {
  return place >> REGION_SHIFT == 0;
}

/** Returns whether a range stays in one region: regions end at 4 GiB. */
export function isInOneRegion(place: u64, bytes: u32): bool {
  return (place & 0xffffffff) + <u64>bytes <= (<u64>1) << REGION_SHIFT;
}

/** Copies `bytes` at a place to the card's memory; false when the region is gone. */
export function fetchFrom(from: u64, to: usize, bytes: u32): bool {
  if (isInCard(from)) {
    memory.copy(to, <usize>from, bytes);
    return true;
  }
  return fetch(<i32>(from >> REGION_SHIFT), <i32>from, <i32>to, <i32>bytes) != 0;
}

/** Copies `bytes` of the card's memory to a place; false when the region is gone. */
export function placeAt(to: u64, from: usize, bytes: u32): bool {
  if (isInCard(to)) {
    memory.copy(<usize>to, from, bytes);
    return true;
  }
  return place(<i32>(to >> REGION_SHIFT), <i32>to, <i32>from, <i32>bytes) != 0;
}

/**
 * Fetches a payload except its last `span` bytes, if any, and writes their place in their stead (TxOption.FETCH_SPAN).
 * Returns false when the region is gone.
 */
export function fetchAllButSpan(from: u64, to: usize, bytes: u32, span: u32): bool {
  let copied = bytes - span;
  if (copied != 0 && !fetchFrom(from, to, copied)) return false;
  if (span != 0) store<u64>(to + copied, from + <u64>copied);
  return true;
}

/** Stores `swap` at a place if the value there is `compare`; false when the region is gone. See `originalValue`. */
export function compareSwapAt(at: u64, compare: u64, swap: u64): bool {
  return operateAt(at, AtomicOperation.COMPARE_SWAP, compare, swap);
}

/** Adds to the value at a place; false when the region is gone. See `originalValue`. */
export function fetchAddAt(at: u64, add: u64): bool {
  return operateAt(at, AtomicOperation.FETCH_ADD, add, 0);
}

/** Stores a value at a place; false when the region is gone. */
export function storeAt(at: u64, value: u64): bool {
  return operateAt(at, AtomicOperation.STORE, value, 0);
}

/** Returns the value that was there before the last operation. */
export function originalValue(): u64 {
  return load<u64>(PLACE_PAD);
}

function operateAt(at: u64, operation: AtomicOperation, first: u64, second: u64): bool {
  store<u64>(PLACE_PAD, first);
  store<u64>(PLACE_PAD + 8, second);
  if (!isInCard(at)) return atomicAt(<i32>(at >> REGION_SHIFT), <i32>at, operation, <i32>PLACE_PAD) != 0;
  store<u64>(PLACE_PAD, operateInCard(<usize>at, operation, first, second));
  return true;
}

/** As the import `atomic`: a region may map an aligned virtual address to any pointer. Returns the original value. */
function operateInCard(ptr: usize, operation: AtomicOperation, first: u64, second: u64): u64 {
  if ((ptr & 7) == 0) {
    if (operation == AtomicOperation.COMPARE_SWAP) return atomic.cmpxchg<u64>(ptr, first, second);
    return operation == AtomicOperation.FETCH_ADD ? atomic.add<u64>(ptr, first) : atomic.xchg<u64>(ptr, first);
  }
  let original = load<u64>(ptr);
  if (operation == AtomicOperation.FETCH_ADD) store<u64>(ptr, original + first);
  else if (operation == AtomicOperation.STORE) store<u64>(ptr, first);
  else if (original == first) store<u64>(ptr, second);
  return original;
}
