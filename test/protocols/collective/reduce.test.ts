// The module that combines arrays, against the same in JavaScript.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import type { NumberArray } from '../../../src/collective.js';
import { type ReduceOpName, Reducer } from '../../../src/protocols/collective/reducer.js';
import { Random } from '../../kit/random.js';
import { parseWasm } from '../../kit/wasm.js';

const memory = new WebAssembly.Memory({ initial: 16, maximum: 16, shared: true });
const reducer = new Reducer(memory, false);
const OPS: ReduceOpName[] = ['sum', 'prod', 'min', 'max'];
/** Lengths that fill vectors of 16 bytes or do not. */
const LENGTHS = [0, 1, 2, 3, 4, 5, 7, 8, 9, 31, 1000];

type Combine<T> = Record<ReduceOpName, (a: T, b: T) => number | bigint>;

const floats: Combine<number> = {
  sum: (a, b) => a + b,
  prod: (a, b) => a * b,
  min: Math.min,
  max: Math.max,
};
const integers: Combine<number> = { ...floats, sum: (a, b) => (a + b) | 0, prod: Math.imul };
const longs: Combine<bigint> = {
  sum: (a, b) => BigInt.asIntN(64, a + b),
  prod: (a, b) => BigInt.asIntN(64, a * b),
  // biome-ignore lint/complexity/useMathMinMax: Math.min takes no bigint
  min: (a, b) => (a < b ? a : b),
  // biome-ignore lint/complexity/useMathMinMax: Math.max takes no bigint
  max: (a, b) => (a > b ? a : b),
};

const random = new Random(7);
const special = [0, -0, 1, -1, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, Number.NaN, 1e-40];
const float = () => (random.chance(0.1) ? random.pick(special) : (random.fraction() - 0.5) * 1e6);
const integer = () => random.u32() | 0;
const long = () => BigInt.asIntN(64, (BigInt(random.u32()) << 32n) | BigInt(random.u32()));

interface Subject {
  readonly element: 'F32' | 'F64' | 'I32' | 'I64';
  readonly array: {
    readonly BYTES_PER_ELEMENT: number;
    new (length: number): NumberArray;
    new (buffer: ArrayBuffer): NumberArray;
  };
  readonly next: () => number | bigint;
  readonly combine: Combine<never>;
}

const SUBJECTS: Subject[] = [
  { element: 'F32', array: Float32Array, next: float, combine: floats },
  { element: 'F64', array: Float64Array, next: float, combine: floats },
  { element: 'I32', array: Int32Array, next: integer, combine: integers },
  { element: 'I64', array: BigInt64Array, next: long, combine: longs },
];

describe.each(SUBJECTS)('$element', ({ element, array: ArrayOf, next, combine }) => {
  const size = ArrayOf.BYTES_PER_ELEMENT;
  /** Returns the elements at an address, which need not be aligned. */
  const read = (at: number, count: number) =>
    new ArrayOf(new Uint8Array(memory.buffer).slice(at, at + count * size).buffer);
  /** Writes elements that are chosen at random. */
  const write = (at: number, count: number): NumberArray => {
    const values = new ArrayOf(count);
    for (let i = 0; i < count; i++) values[i] = next();
    new Uint8Array(memory.buffer).set(new Uint8Array(values.buffer), at);
    return values;
  };

  test.each(OPS)('%s', async (op) => {
    for (const count of LENGTHS)
      for (const where of ['a', 'b', 'elsewhere']) {
        const [a, b, other] = [1000, 20_000, 40_000].map((start) => start + random.below(16)) as [
          number,
          number,
          number,
        ];
        const [left, right] = [write(a, count), write(b, count)];
        const into = where === 'a' ? a : where === 'b' ? b : other;
        const after = read(into + count * size, 2);
        await reducer.reduce({ element, op, into, a, b, count, bytes: count * size });
        const expected = new ArrayOf(count);
        for (let i = 0; i < count; i++) expected[i] = combine[op](left[i] as never, right[i] as never);
        expect(read(into, count)).toEqual(expected);
        // and not a byte more
        expect(read(into + count * size, 2)).toEqual(after);
      }
  });
});

test('the module keeps no state, so that several threads can have an instance on the same memory', () => {
  const { imports, globals, dataSegments } = parseWasm(
    readFileSync(join(import.meta.dirname, '../../../build/reduce.wasm')),
  );
  expect(imports.map(({ name }) => name)).toEqual(['env.memory']);
  expect(globals.filter(({ mutable }) => mutable)).toEqual([]);
  expect(dataSegments).toEqual([]);
});
