/**
 * A few hundred KiB of every operation from one end to the other; both directions may run at once, as no two of their
 * pieces overlap.
 */
import { expect } from 'vitest';
import { WcStatus } from '../../src/index.js';
import type { Completion, End } from './end.js';
import { Expected } from './pair.js';

/** Pieces begin at multiples of this, in both regions. */
const BLOCK = 64 * 1024;
/** Bytes that both ends' regions must have. */
export const TRAFFIC_SIZE = 13 * BLOCK;

/** Blocks: what is read from, at both ends, and what is overwritten, once each. */
const SOURCE = 0;
const WRITTEN = 4;
const SENT = 7;
const READ = 9;
const COUNTER = 11;
const COUNTED = 12;

/** Bytes of the messages; none fills its last packet. */
const WRITES = [65_535, 40_001, 5];
const SENDS = [65_000, 33_333];
const READS = [65_533, 50_001];
const ADDS = 16;
const STEP = 3n;
const FIRST_RECEIVE = 1000;

export interface ExchangeOptions {
  /** Ends that ask for no READs. */
  readonly withoutReads?: readonly End[];
  /** Milliseconds until the last completion. */
  readonly ms?: number;
}

/** Runs the traffic of each direction, all at once, then checks every completion and every byte of both regions. */
export async function exchange(
  directions: readonly (readonly [End, End])[],
  { withoutReads = [], ms = 60_000 }: ExchangeOptions = {},
): Promise<void> {
  const ends = [...new Set(directions.flat())];
  const expected = new Map<End, Expected>();
  for (const [i, end] of ends.entries()) expected.set(end, await Expected.fill(end, 11 + i));
  const of = (end: End) => expected.get(end) as Expected;
  for (const [, to] of directions)
    for (const [i, length] of SENDS.entries()) await to.postRecv([[at(SENT + i), length]], FIRST_RECEIVE + i);
  const asked = new Map<End, number>();
  for (const [from, to] of directions) {
    const reads = withoutReads.includes(from) ? [] : READS;
    asked.set(from, await post(from, of(from), of(to), reads));
  }

  await Promise.all(
    ends.map(async (end) => {
      const asks = asked.get(end) ?? 0;
      const receives = directions.some(([, to]) => to === end) ? SENDS.length : 0;
      const found = await end.completions(asks + receives, ms);
      const inOrder = (first: number, count: number) =>
        Array.from({ length: count }, (_, i) => ({ id: first + i, status: WcStatus.SUCCESS }));
      const ofKind = (isReceive: boolean) => found.filter(({ id }: Completion) => id >= FIRST_RECEIVE === isReceive);
      expect(ofKind(false), `${end.name} asks`).toMatchObject(inOrder(0, asks));
      expect(ofKind(true), `${end.name} receives`).toMatchObject(
        inOrder(FIRST_RECEIVE, receives).map((wc, i) => ({ ...wc, byteLen: SENDS[i] })),
      );
    }),
  );
  for (const end of ends) await of(end).check();
}

/** Posts all requests of one direction and notes what they will have done. @returns how many */
async function post(from: End, here: Expected, there: Expected, reads: readonly number[]): Promise<number> {
  let id = 0;
  const source = (block: number, length: number) => Buffer.from(here.bytes.subarray(block, block + length));
  for (const [i, length] of WRITES.entries()) {
    const start = at(SOURCE) + i;
    await from.postSend({ op: 'write', id: id++, pieces: [[start, length]], offset: at(WRITTEN + i) });
    there.set(at(WRITTEN + i), source(start, length));
  }
  // each of them exactly once, or the numbers go astray
  const count = there.bytes.readBigUInt64LE(at(COUNTER));
  for (let i = 0; i < ADDS; i++) {
    const place = at(COUNTED) + 8 * i;
    await from.postSend({ op: 'faa', id: id++, pieces: [[place, 8]], offset: at(COUNTER), add: STEP });
    here.set(place, littleEndian(count + BigInt(i) * STEP));
  }
  there.set(at(COUNTER), littleEndian(count + BigInt(ADDS) * STEP));
  for (const [i, length] of SENDS.entries()) {
    const start = at(SOURCE + 1) + i;
    await from.postSend({ op: 'send', id: id++, pieces: [[start, length]] });
    there.set(at(SENT + i), source(start, length));
  }
  for (const [i, length] of reads.entries()) {
    const start = at(SOURCE + i) + 1;
    await from.postSend({ op: 'read', id: id++, pieces: [[at(READ + i), length]], offset: start });
    here.set(at(READ + i), there.bytes.subarray(start, start + length));
  }
  return id;
}

function at(block: number): number {
  return block * BLOCK;
}

function littleEndian(value: bigint): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt.asUintN(64, value));
  return bytes;
}
