// Schedules without a network: every rank's steps are carried out one by one, with as few slots as lanes have.
import { describe, expect, test } from 'vitest';
import {
  neighbours,
  type Position,
  partOf,
  type Range,
  ringAllGather,
  ringAllReduce,
  ringBroadcast,
  ringReduceScatter,
  type Step,
  sliceOf,
  treeAllReduce,
  treeBroadcast,
} from '../../../src/protocols/collective/schedule.js';

const SIZES = [2, 3, 4, 5, 8, 9, 33];
/** Elements of the arrays: fewer than ranks, and not a multiple of them. */
const LENGTHS = [0, 1, 7, 64, 101];
const SLICE = 5;
const DEPTH = 2;

/** Elements in flight from one rank to another. */
interface Message {
  readonly range: Range;
  readonly values: number[];
}

/** Carries out the steps of all ranks on arrays, in which an element that must not be sent is NaN. */
class Ranks {
  readonly #channels = new Map<string, Message[]>();
  readonly results: number[][];

  constructor(
    readonly arrays: number[][],
    readonly steps: Step[][],
  ) {
    this.results = arrays.map((array) => array.map(() => Number.NaN));
  }

  run(): void {
    const at = this.steps.map(() => 0);
    for (let hasMoved = true; hasMoved; ) {
      hasMoved = false;
      for (const [rank, steps] of this.steps.entries()) {
        const step = steps[at[rank] as number];
        if (step === undefined || !this.#isReady(rank, step)) continue;
        this.#execute(rank, step);
        (at[rank] as number)++;
        hasMoved = true;
      }
    }
    // no rank waits for ever, and nothing is left under way
    expect(at).toEqual(this.steps.map(({ length }) => length));
    for (const messages of this.#channels.values()) expect(messages).toEqual([]);
  }

  #isReady(rank: number, { from, to }: Step): boolean {
    const hasData = from.every((other) => this.#channel(other, rank).length > 0);
    return hasData && to.every((other) => this.#channel(rank, other).length < DEPTH);
  }

  #execute(rank: number, { range, from, isReduced, isKept, to }: Step): void {
    let values = (this.arrays[rank] as number[]).slice(range.start, range.end);
    for (const other of from) {
      const message = this.#channel(other, rank).shift() as Message;
      expect(message.range).toEqual(range);
      values = isReduced ? values.map((value, i) => value + (message.values[i] as number)) : message.values;
    }
    if (isKept) this.results[rank]?.splice(range.start, values.length, ...values);
    for (const other of to) this.#channel(rank, other).push({ range, values });
  }

  #channel(from: number, to: number): Message[] {
    const name = `${from}>${to}`;
    const channel = this.#channels.get(name) ?? [];
    this.#channels.set(name, channel);
    return channel;
  }
}

/** Carries out all rounds of a call. @returns the results of the ranks */
function carryOut(
  size: number,
  arrays: number[][],
  longest: number,
  stepsOf: (position: Position, round: number) => Step[],
): number[][] {
  const rounds = Math.max(1, Math.ceil(longest / SLICE));
  const steps = arrays.map((_, rank) =>
    Array.from({ length: rounds }, (_, round) => stepsOf({ rank, size }, round)).flat(),
  );
  for (const [rank, own] of steps.entries())
    for (const other of own.flatMap(({ from, to }) => [...from, ...to]))
      expect(neighbours({ rank, size })).toContain(other);
  const ranks = new Ranks(arrays, steps);
  ranks.run();
  return ranks.results;
}

const cases = SIZES.flatMap((size) => LENGTHS.map((length) => [size, length] as const));

describe.each(cases)('%i ranks, %i elements', (size, length) => {
  const arrays = Array.from({ length: size }, (_, rank) => Array.from({ length }, (_, i) => (rank + 1) * 1000 + i));
  const sum = Array.from({ length }, (_, i) => arrays.reduce((all, array) => all + (array[i] as number), 0));
  const whole = { start: 0, end: length };
  const longest = Math.ceil(length / size);
  const slices = (round: number) => (rank: number) => sliceOf(partOf(length, rank, size), round, SLICE);

  test('the parts are the whole, in order', () => {
    const parts = arrays.map((_, rank) => partOf(length, rank, size));
    expect(parts.at(0)?.start).toBe(0);
    expect(parts.at(-1)?.end).toBe(length);
    for (const [rank, { start, end }] of parts.entries()) {
      if (rank > 0) expect(start).toBe(parts[rank - 1]?.end);
      expect([longest, Math.max(0, longest - 1)]).toContain(end - start);
    }
  });

  test('all ranks get the sum, by ring and by tree', () => {
    const ring = carryOut(size, arrays, longest, (position, round) => ringAllReduce(position, slices(round)));
    const tree = carryOut(size, arrays, length, (position, round) =>
      treeAllReduce(position, sliceOf(whole, round, SLICE)),
    );
    for (const result of [...ring, ...tree]) expect(result).toEqual(sum);
  });

  test('each rank gets its part of the sum', () => {
    const results = carryOut(size, arrays, longest, (position, round) => ringReduceScatter(position, slices(round)));
    for (const [rank, result] of results.entries()) {
      const { start, end } = partOf(length, rank, size);
      expect(result.slice(start, end)).toEqual(sum.slice(start, end));
      // and nothing else
      expect(result.filter((value) => !Number.isNaN(value)).length).toBe(end - start);
    }
  });

  test('each rank gets the parts of the others', () => {
    const own = arrays.map((array, rank) => {
      const { start, end } = partOf(length, rank, size);
      return array.map((value, i) => (i >= start && i < end ? value : Number.NaN));
    });
    const results = carryOut(size, own, longest, (position, round) => ringAllGather(position, slices(round)));
    for (const [rank, result] of results.entries()) {
      const complete = result.map((value, i) => (Number.isNaN(value) ? (own[rank]?.[i] as number) : value));
      expect(complete).toEqual(Array.from({ length }, (_, i) => own.find((array) => !Number.isNaN(array[i]))?.[i]));
    }
  });

  test.each([0, 1, size - 1, size >> 1])('all ranks get the array of rank %i, by ring and by tree', (root) => {
    const only = arrays.map((array, rank) => (rank === root ? array : array.map(() => Number.NaN)));
    for (const broadcast of [ringBroadcast, treeBroadcast]) {
      const results = carryOut(size, only, length, (position, round) =>
        broadcast(position, root, sliceOf(whole, round, SLICE)),
      );
      for (const [rank, result] of results.entries()) if (rank !== root) expect(result).toEqual(arrays[root]);
    }
  });
});

test('a rank has few neighbours, however many ranks there are', () => {
  for (const size of SIZES)
    for (let rank = 0; rank < size; rank++) expect(neighbours({ rank, size }).length).toBeLessThanOrEqual(5);
});
