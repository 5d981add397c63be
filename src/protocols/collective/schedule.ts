/**
 * The steps of each rank in their order: sender, receiver and elements. A call is cut into rounds, and a round into
 * steps; every rank computes its own steps, from the arguments that are the same at all ranks. Nothing here moves data.
 *
 * A ring moves each part of an array past every rank, which uses all links at once: best for long arrays. A tree takes
 * fewer steps: best for short ones.
 */

/** Elements of an array. */
export interface Range {
  /** The first element. */
  readonly start: number;
  /** The element after the last one. */
  readonly end: number;
}

/**
 * One step of a rank. Its value is what `from` send: combined with our own elements if `isReduced`, else as it comes.
 * Without `from` it is our own elements.
 */
export interface Step {
  readonly range: Range;
  /** Ranks that send to us, in order. Only a step with `isReduced` has several. */
  readonly from: readonly number[];
  readonly isReduced: boolean;
  /** The value is part of the result. */
  readonly isKept: boolean;
  /** Ranks that get the value. */
  readonly to: readonly number[];
}

/** A rank among `size` ranks. */
export interface Position {
  readonly rank: number;
  readonly size: number;
}

/** Returns the elements of an array of `length` that are the part of a rank. Parts differ by at most one element. */
export function partOf(length: number, rank: number, size: number): Range {
  return { start: Math.floor((rank * length) / size), end: Math.floor(((rank + 1) * length) / size) };
}

/** Returns the elements of `range` that a round is about. @param slice elements of a round */
export function sliceOf({ start, end }: Range, round: number, slice: number): Range {
  return { start: Math.min(start + round * slice, end), end: Math.min(start + (round + 1) * slice, end) };
}

/** Returns the other ranks with which a rank exchanges data, in ascending order. */
export function neighbours({ rank, size }: Position): number[] {
  const tree = treeOf({ rank, size });
  const near = new Set([
    ...ringOf({ rank, size }),
    ...tree.children,
    ...(tree.parent === undefined ? [] : [tree.parent]),
  ]);
  near.delete(rank);
  return [...near].sort((a, b) => a - b);
}

// ---- ring ----

function ringOf({ rank, size }: Position): [left: number, right: number] {
  return [(rank + size - 1) % size, (rank + 1) % size];
}

/**
 * Combines the parts on their way around the ring.
 * @param rangeOf elements of the part of a rank
 * @param owner the rank that ends up with part `rank`: 0 = the rank itself, 1 = the one to its left
 * @param next the rank that gets the complete part
 */
function reduceAround(
  position: Position,
  rangeOf: (rank: number) => Range,
  owner: number,
  next: readonly number[],
): Step[] {
  const { rank, size } = position;
  const [left, right] = ringOf(position);
  return Array.from({ length: size }, (_, step) => {
    const isLast = step === size - 1;
    return {
      range: rangeOf((rank + 2 * size - 1 + owner - step) % size),
      from: step === 0 ? [] : [left],
      isReduced: step > 0,
      isKept: isLast,
      to: isLast ? next : [right],
    };
  });
}

/** Passes on the parts that come around the ring. @param first the part that comes first */
function gatherAround(position: Position, rangeOf: (rank: number) => Range, first: number): Step[] {
  const { size } = position;
  const [left, right] = ringOf(position);
  return Array.from({ length: size - 1 }, (_, step) => ({
    range: rangeOf((first + size - step) % size),
    from: [left],
    isReduced: false,
    isKept: true,
    to: step < size - 2 ? [right] : [],
  }));
}

/** Each rank ends up with all parts, combined. */
export function ringAllReduce(position: Position, rangeOf: (rank: number) => Range): Step[] {
  const { rank } = position;
  const [, right] = ringOf(position);
  return [...reduceAround(position, rangeOf, 1, [right]), ...gatherAround(position, rangeOf, rank)];
}

/** Each rank ends up with its own part, combined. */
export function ringReduceScatter(position: Position, rangeOf: (rank: number) => Range): Step[] {
  return reduceAround(position, rangeOf, 0, []);
}

/** Each rank begins with its own part and ends up with all. */
export function ringAllGather(position: Position, rangeOf: (rank: number) => Range): Step[] {
  const { rank } = position;
  const [left, right] = ringOf(position);
  const own = { range: rangeOf(rank), from: [], isReduced: false, isKept: false, to: [right] };
  return [own, ...gatherAround(position, rangeOf, left)];
}

/** Each rank but the root passes on what its left neighbour sends. */
export function ringBroadcast(position: Position, root: number, range: Range): Step[] {
  const { rank } = position;
  const [left, right] = ringOf(position);
  const isRoot = rank === root;
  const to = right === root ? [] : [right];
  return [{ range, from: isRoot ? [] : [left], isReduced: false, isKept: !isRoot, to }];
}

// ---- tree ----

/** A binary tree with rank 0 as its root. */
function treeOf({ rank, size }: Position): { parent: number | undefined; children: number[] } {
  const children = [2 * rank + 1, 2 * rank + 2].filter((child) => child < size);
  return { parent: rank === 0 ? undefined : (rank - 1) >> 1, children };
}

/** Combines towards rank 0, which sends the result back. */
export function treeAllReduce(position: Position, range: Range): Step[] {
  const { parent, children } = treeOf(position);
  const isReduced = children.length > 0;
  if (parent === undefined) return [{ range, from: children, isReduced, isKept: true, to: children }];
  return [
    { range, from: children, isReduced, isKept: false, to: [parent] },
    { range, from: [parent], isReduced: false, isKept: true, to: children },
  ];
}

/** Each rank passes on what comes from the direction of the root, which may be any rank. */
export function treeBroadcast(position: Position, root: number, range: Range): Step[] {
  const { rank } = position;
  const { parent, children } = treeOf(position);
  const near = parent === undefined ? children : [parent, ...children];
  if (rank === root) return [{ range, from: [], isReduced: false, isKept: false, to: near }];
  const source = children.find((child) => isBelow(root, child)) ?? (parent as number);
  const to = near.filter((each) => each !== source);
  return [{ range, from: [source], isReduced: false, isKept: true, to }];
}

/** Whether a rank is `top` or below it in the tree. */
function isBelow(rank: number, top: number): boolean {
  let at = rank;
  while (at > top) at = (at - 1) >> 1;
  return at === top;
}
