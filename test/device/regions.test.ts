/** The table of the regions outside of a card's memory: the addon's, and the one in JavaScript. */
import { describe, expect, test } from 'vitest';
import { NativeRegions, OwnRegions, type Regions } from '../../src/device/regions.js';
import { native } from '../../src/native.js';
import { Random } from '../kit/random.js';

const CARD_BYTES = 65536;
const TABLES = {
  'in the addon': (card: Uint8Array) => new NativeRegions(native(), card),
  'in the addon, joined by another thread': (card: Uint8Array) => {
    const first = new NativeRegions(native(), card);
    const joined = new NativeRegions(native(), card);
    // it has no views of the regions: the addon makes all copies
    return { ...delegate(first), imports: joined.imports };
  },
  'in JavaScript': (card: Uint8Array) => new OwnRegions(card),
};

const delegate = (to: Regions): Omit<Regions, 'imports'> => ({
  add: (bytes, isWritable) => to.add(bytes, isWritable),
  setWritable: (region, isWritable) => to.setWritable(region, isWritable),
  move: (region, bytes) => to.move(region, bytes),
  remove: (region) => to.remove(region),
  read: (place, into) => to.read(place, into),
});

const cardMemory = () =>
  new Uint8Array(new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true }).buffer, 0, CARD_BYTES);

describe.each(Object.entries(TABLES))('a table %s', (_, open) => {
  test('does random accesses as a model, and refuses what the model refuses', () => {
    const random = new Random(11);
    const card = cardMemory();
    const table = open(card);
    const regions = [0, 1, 7, 8, 33, 4096, 10_000].map((length) => {
      const memory = new Uint8Array(length + 16).map(() => random.below(256));
      const bytes = memory.subarray(random.below(8) + 1, memory.length - 7);
      const isWritable = random.chance(0.7);
      return { bytes, isWritable, model: bytes.slice(), region: table.add(bytes, isWritable) };
    });
    const model = card.map(() => random.below(256));
    card.set(model);
    const edge = (end: number) =>
      [0, 1, end - 8, end - 1, end, end + 1, random.below(end + 1), -1][random.below(8)] ?? 0;
    for (let i = 0; i < 20_000; i++) {
      const { bytes, isWritable, model: theirs, region } = random.pick(regions);
      const offset = edge(bytes.length);
      const size = random.pick([0, 1, 8, 31, 32, 33, 64, bytes.length, edge(bytes.length)]);
      const at = random.chance(0.9) ? random.below(CARD_BYTES - 4096) : edge(CARD_BYTES);
      const [from, count, to] = [offset >>> 0, size >>> 0, at >>> 0];
      const isInside = (bytesNeeded: number, inCard: number) =>
        from + bytesNeeded <= bytes.length && to + inCard <= CARD_BYTES;
      const what = random.below(3);
      let allowed: boolean;
      let result: number;
      if (what === 0) {
        allowed = isInside(count, count);
        result = table.imports.fetch(region, offset, at, size);
        if (allowed) model.set(theirs.subarray(from, from + count), to);
      } else if (what === 1) {
        allowed = isInside(count, count) && isWritable;
        result = table.imports.place(region, offset, at, size);
        if (allowed) theirs.set(model.subarray(to, to + count), from);
      } else {
        allowed = isInside(8, 16) && isWritable && to % 8 === 0;
        if (to % 8 !== 0) continue;
        const operation = random.below(3);
        if (allowed && random.chance(0.5)) {
          // a comparison that holds
          card.set(theirs.subarray(from, from + 8), to);
          model.set(theirs.subarray(from, from + 8), to);
        }
        result = table.imports.atomic(region, offset, operation, at);
        if (allowed) operate(theirs, from, operation, model, to);
      }
      expect(result, `${what} of ${size} at ${offset} of ${bytes.length}, card ${at}`).toBe(allowed ? 1 : 0);
    }
    for (const { bytes, model: theirs } of regions) expect(Buffer.compare(bytes, theirs)).toBe(0);
    expect(Buffer.compare(card, model)).toBe(0);
  });

  test('refuses accesses to a region that was removed, and to none', () => {
    const table = open(cardMemory());
    const region = table.add(new Uint8Array(64), true);
    const { fetch, place, atomic } = table.imports;
    expect([fetch(region, 0, 0, 8), place(region, 0, 0, 8), atomic(region, 0, 2, 64)]).toEqual([1, 1, 1]);
    table.remove(region);
    for (const none of [region, 0, -1, region + 1])
      expect([fetch(none, 0, 0, 8), place(none, 0, 0, 0), atomic(none, 0, 2, 64)]).toEqual([0, 0, 0]);
    expect(table.read(region * 2 ** 32, new Uint8Array(1))).toBe(false);
  });

  test('writes a region as long as that is allowed', () => {
    const table = open(cardMemory());
    const region = table.add(new Uint8Array(64), true);
    const { fetch, place, atomic } = table.imports;
    table.setWritable(region, false);
    for (const size of [8, 60]) expect([fetch(region, 0, 0, size), place(region, 0, 0, size)]).toEqual([1, 0]);
    expect(atomic(region, 0, 2, 64)).toBe(0);
    table.setWritable(region, true);
    for (const size of [8, 60]) expect(place(region, 0, 0, size)).toBe(1);
  });

  test('gives a region that moves other memory under its number, with the same right', () => {
    const card = cardMemory();
    const table = open(card);
    const [first, second] = [new Uint8Array(64), new Uint8Array(100).fill(7)];
    const region = table.add(first, true);
    const { fetch, place } = table.imports;
    table.move(region, second);
    for (const [at, size] of [
      [90, 8],
      [40, 60],
    ] as const) {
      card.fill(0, 0, size);
      second.fill(7);
      expect(fetch(region, at, 0, size)).toBe(1);
      expect([...card.subarray(0, size)]).toEqual(Array(size).fill(7));
      card.fill(9, 0, size);
      expect(place(region, at, 0, size)).toBe(1);
    }
    expect(first).toEqual(new Uint8Array(64));
    expect(second[99]).toBe(9);
    table.setWritable(region, false);
    table.move(region, first);
    expect([fetch(region, 60, 0, 8), fetch(region, 0, 0, 64), place(region, 0, 0, 8)]).toEqual([0, 1, 0]);
    table.remove(region);
    table.move(region, second);
    expect(fetch(region, 0, 0, 8)).toBe(0);
  });

  test('reads a place for JavaScript', () => {
    const table = open(cardMemory());
    const region = table.add(Uint8Array.of(1, 2, 3, 4), false);
    const into = new Uint8Array(2);
    expect(table.read(region * 2 ** 32 + 1, into)).toBe(true);
    expect([...into]).toEqual([2, 3]);
    expect(table.read(region * 2 ** 32 + 3, into)).toBe(false);
  });
});

test("the addon's table refuses the card's own memory, whichever object shows it", () => {
  const card = cardMemory();
  const table = new NativeRegions(native(), card);
  expect(() => table.add(card.subarray(100, 200), true)).toThrow("the memory is the card's own");
});

/** An AtomicOperation of assembly/host/place.ts. */
function operate(memory: Uint8Array, at: number, operation: number, card: Uint8Array, operands: number): void {
  const word = new DataView(memory.buffer, memory.byteOffset + at, 8);
  const pad = new DataView(card.buffer, card.byteOffset + operands, 16);
  const [before, first] = [word.getBigUint64(0, true), pad.getBigUint64(0, true)];
  if (operation === 1) word.setBigUint64(0, BigInt.asUintN(64, before + first), true);
  else if (operation === 2) word.setBigUint64(0, first, true);
  else if (before === first) word.setBigUint64(0, pad.getBigUint64(8, true), true);
  pad.setBigUint64(0, before, true);
}
