/**
 * Traffic of a few hundred KiB with every operation from one end to the other. Both directions can run at once, because
 * their pieces do not overlap.
 */
import { expect } from 'vitest';
import { WcStatus } from '../../src/index.js';
import type { Completion, End } from './end.js';
import { Expected } from './pair.js';

/** Pieces begin at multiples of this, in both regions. */
const BLOCK = 64 * 1024;
/** Bytes that both ends' regions must have. */
export const TRAFFIC_SIZE = 13 * BLOCK;

/** Blocks of a region: the sources at both ends, and the targets, each of which is overwritten once. */
const SOURCE = 0;
const WRITTEN = 4;
const SENT = 7;
const READ = 9;
const COUNTER = 11;
const COUNTED = 12;

/** Message sizes in bytes; no message fills its last packet. */
const WRITES = [65_535, 40_001, 5];
const SENDS = [65_000, 33_333];
const READS = [65_533, 50_001];
const ADDS = 16;
const STEP = 3n;
const FIRST_RECEIVE = 1000;

export interface ExchangeOptions {
  /** Ends that post no READs. */
  readonly withoutReads?: readonly End[];
  /** Timeout of the last completion in ms. */
  readonly ms?: number;
}

/** Runs the traffic of all directions at once, then checks every completion and every byte of both regions. */
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

/** Posts all requests of one direction, and updates the expected contents. @returns the number of requests */
async function post(from: End, here: Expected, there: Expected, reads: readonly number[]): Promise<number> {
  let id = 0;
  const source = (block: number, length: number) => Buffer.from(here.bytes.subarray(block, block + length));
  for (const [i, length] of WRITES.entries()) {
    const start = at(SOURCE) + i;
    await from.postSend({ op: 'write', id: id++, pieces: [[start, length]], offset: at(WRITTEN + i) });
    there.set(at(WRITTEN + i), source(start, length));
  }
  // an atomic that is not executed exactly once changes the values
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
