// Not part of the card: a module of its own that combines arrays in the card's memory, element by element. Collectives
// use it (src/protocols/collective). It keeps no state, so that any thread can have an instance.

/** Types of the elements of an array. */
export enum Element {
  F32,
  F64,
  I32,
  I64,
}

/** Operations on two elements. Integers wrap around; the minimum and maximum of a NaN and a number are NaN. */
export enum ReduceOp {
  SUM,
  PROD,
  MIN,
  MAX,
}

const VECTOR_BYTES: usize = 16;

/**
 * Writes a[i] combined with b[i] to into[i]. `into` may be `a` or `b`; otherwise the arrays do not overlap. They need
 * no alignment.
 * @param count number of elements
 */
export function reduce(element: Element, op: ReduceOp, into: usize, a: usize, b: usize, count: usize): void {
  switch (element) {
    case Element.F32:
      return reduceAs<f32>(op, into, a, b, count);
    case Element.F64:
      return reduceAs<f64>(op, into, a, b, count);
    case Element.I32:
      return reduceAs<i32>(op, into, a, b, count);
    default:
      return reduceAs<i64>(op, into, a, b, count);
  }
}

/** Classes that stand for the operations, so that each gets a loop of its own, without a branch in it. */
class Sum {}
class Prod {}
class Min {}
class Max {}

function reduceAs<T>(op: ReduceOp, into: usize, a: usize, b: usize, count: usize): void {
  switch (op) {
    case ReduceOp.SUM:
      return loop<T, Sum>(into, a, b, count);
    case ReduceOp.PROD:
      return loop<T, Prod>(into, a, b, count);
    case ReduceOp.MIN:
      return loop<T, Min>(into, a, b, count);
    default:
      return loop<T, Max>(into, a, b, count);
  }
}

function loop<T, O>(into: usize, a: usize, b: usize, count: usize): void {
  let bytes = count * sizeof<T>();
  let whole = bytes & ~(VECTOR_BYTES - 1);
  let at: usize = 0;
  for (; at < whole; at += VECTOR_BYTES) {
    v128.store(into + at, combine<T, O>(v128.load(a + at), v128.load(b + at)));
  }
  for (; at < bytes; at += sizeof<T>()) {
    v128.store_lane<T>(into + at, combine<T, O>(first<T>(a + at), first<T>(b + at)), 0);
  }
}

/** Loads one element into the first lane. */
function first<T>(at: usize): v128 {
  return sizeof<T>() == 4 ? v128.load32_zero(at) : v128.load64_zero(at);
}

function combine<T, O>(a: v128, b: v128): v128 {
  if (idof<O>() == idof<Sum>()) return v128.add<T>(a, b);
  if (idof<O>() == idof<Prod>()) return v128.mul<T>(a, b);
  if (isInteger<T>() && sizeof<T>() == 8) {
    // there is no minimum or maximum of 64-bit lanes
    let isGreater = i64x2.gt_s(a, b);
    return idof<O>() == idof<Max>() ? v128.bitselect(a, b, isGreater) : v128.bitselect(b, a, isGreater);
  }
  return idof<O>() == idof<Min>() ? min<T>(a, b) : max<T>(a, b);
}

function min<T>(a: v128, b: v128): v128 {
  if (isInteger<T>()) return i32x4.min_s(a, b);
  return sizeof<T>() == 4 ? f32x4.min(a, b) : f64x2.min(a, b);
}

function max<T>(a: v128, b: v128): v128 {
  if (isInteger<T>()) return i32x4.max_s(a, b);
  return sizeof<T>() == 4 ? f32x4.max(a, b) : f64x2.max(a, b);
}
