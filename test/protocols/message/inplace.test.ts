// Long data of the program, which requests send and receive without a copy.
import { setImmediate } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import type { SendWr, Sge } from '../../../src/index.js';
import { eventually } from '../../kit/eventually.js';
import { pattern } from '../../verbs/pair.js';
import { type ConnectionPair, connectionPair } from './connectionpair.js';

const MIB = 2 ** 20;
/** Data from this length on is used in place. */
const LONG = 262_144;
/** Addresses below are in the card's memory. */
const OUTSIDE = 2 ** 32;
/** Less than the data: a request that copied it could not be posted. */
const open = { memoryBytes: 16 * MIB };
const sizes = { messageBytes: 65_536, sends: 4 };

const pair = () => connectionPair({ open, a: sizes, b: sizes });
const pairOfLong = () => {
  const ofLong = { messageBytes: MIB, receives: 8 };
  return connectionPair({ open: { memoryBytes: 64 * MIB }, a: ofLong, b: ofLong });
};

/** The memory of the requests that `work` posts. */
async function postedBy({ a }: ConnectionPair, work: () => Promise<unknown>): Promise<Sge[]> {
  const posted = vi.spyOn(a.qp, 'postSend');
  await work();
  const wrs = posted.mock.calls.map(([wr]) => wr as SendWr & { sgList: Sge });
  posted.mockRestore();
  return wrs.map(({ sgList }) => ({ ...sgList }));
}

/** Lets calls count as if the device had so many regions. */
function countAsIf({ devices: [{ card }] }: ConnectionPair, maxMr: number): void {
  Reflect.set(card.options, 'maxMr', maxMr);
}

/** Counts the regions outside of the card's memory that requests add from now on. */
function countRegions({ devices: [device] }: ConnectionPair): () => number {
  const { regions } = device.card;
  const [added, removed] = [vi.spyOn(regions, 'add'), vi.spyOn(regions, 'remove')];
  return () => {
    expect(added).toHaveBeenCalled();
    return added.mock.calls.length - removed.mock.calls.length;
  };
}

test('WRITE and READ of long data use the memory of the program, in parts of 1 MiB', async () => {
  await using ends = await pair();
  const shared = Buffer.alloc(20 * MIB);
  const mr = await ends.b.share(shared);
  const regions = countRegions(ends);
  const data = pattern(9 * MIB + 5, 3);
  const written = await postedBy(ends, () => ends.a.write(mr.remote, data, { offset: 7 }));
  expect(written.map(({ length }) => length)).toEqual([...Array(9).fill(MIB), 5]);
  expect(shared.subarray(7, 7 + data.length).equals(data)).toBe(true);
  let read: Buffer | undefined;
  const requests = await postedBy(ends, async () => {
    read = await ends.a.read(mr.remote, { offset: 7, length: data.length });
  });
  expect(requests).toHaveLength(10);
  expect(read?.equals(data)).toBe(true);
  for (const { addr } of [...written, ...requests]) expect(addr).toBeGreaterThanOrEqual(OUTSIDE);
  expect(regions()).toBe(0);
});

test('a long message is sent from the memory of the program', async () => {
  await using ends = await pairOfLong();
  const data = pattern(LONG, 2);
  const [sge] = await postedBy(ends, () => ends.a.send(data));
  expect(sge?.addr).toBeGreaterThanOrEqual(OUTSIDE);
  expect((await ends.b.receive())?.data.equals(data)).toBe(true);
});

test('data that is short, or cannot be registered, is copied', async () => {
  await using ends = await pair();
  const mr = await ends.b.share(MIB);
  const own = await ends.a.share(100_000);
  own.buffer.fill(pattern(100_000));
  const resizable = Reflect.construct(ArrayBuffer, [100_000, { maxByteLength: 200_000 }]) as ArrayBuffer;
  new Uint8Array(resizable).set(pattern(100_000));
  for (const data of [pattern(LONG - 1), new Uint8Array(resizable), own.buffer]) {
    const posted = await postedBy(ends, () => ends.a.write(mr.remote, data));
    expect(mr.buffer.subarray(0, data.length).equals(data)).toBe(true);
    for (const { addr, length } of posted) {
      expect(addr).toBeLessThan(OUTSIDE);
      expect(length).toBeLessThanOrEqual(65_536);
    }
  }
});

test('messages of 64 KiB are copied: a registration of each takes more time', async () => {
  await using ends = await pair();
  const regions = vi.spyOn(ends.devices[0].card.regions, 'add');
  for (let i = 0; i < 3; i++) await ends.a.send(pattern(65_536, i));
  expect(regions).not.toHaveBeenCalled();
});

test('calls in progress have at most a sixteenth of the regions of a device', async () => {
  await using ends = await pair();
  countAsIf(ends, 64);
  const mr = await ends.b.share(LONG);
  const data = pattern(LONG, 4);
  let own: unknown;
  const posted = await postedBy(ends, async () => {
    const written = Array.from({ length: 100 }, () => ends.a.write(mr.remote, data));
    own = await ends.a.pd.regMr(64);
    await Promise.all(written);
  });
  expect(own).toBeDefined();
  expect(posted.filter(({ addr }) => addr >= OUTSIDE)).toHaveLength(4);
  expect(mr.buffer.subarray(0, data.length).equals(data)).toBe(true);
  const [sge] = await postedBy(ends, () => ends.a.write(mr.remote, data));
  expect(sge?.addr).toBeGreaterThanOrEqual(OUTSIDE);
});

test('a call that has ended early gives its region back to the share of all calls', async () => {
  await using ends = await pair();
  // one call at once may use memory in place
  countAsIf(ends, 16);
  const mr = await ends.b.share(LONG);
  const data = pattern(LONG, 4);
  for (let i = 0; i < 5; i++) {
    const stop = new AbortController();
    const written = ends.a.write(mr.remote, data, { signal: stop.signal });
    if (i % 2 === 0) await setImmediate();
    stop.abort(new Error('enough'));
    await written.catch(() => {});
    await ends.a.send('behind it');
    const [sge] = await postedBy(ends, () => ends.a.write(mr.remote, data));
    expect(sge?.addr).toBeGreaterThanOrEqual(OUTSIDE);
  }
});

test('a program may change its data when the wait for a request has ended early', async () => {
  await using ends = await pair();
  const shared = Buffer.alloc(8 * MIB);
  const mr = await ends.b.share(shared);
  const regions = countRegions(ends);
  const stop = new AbortController();
  const data = pattern(8 * MIB, 5);
  const expected = Buffer.from(data);
  const written = ends.a.write(mr.remote, data, { signal: stop.signal });
  // at most as many requests as `sends` are in flight, and the others are dropped
  await setImmediate();
  stop.abort(new Error('enough'));
  await expect(written).rejects.toThrow('enough');
  data.fill(0);
  await ends.a.send(Buffer.from('behind it'));
  const sent = shared.subarray(0, 4 * MIB);
  expect(sent.equals(expected.subarray(0, sent.length))).toBe(true);
  await eventually(() => expect(regions()).toBe(0));
});

test('a program may change a message when the wait for it has ended early', async () => {
  await using ends = await pairOfLong();
  const regions = countRegions(ends);
  const data = pattern(MIB, 5);
  const expected = Buffer.from(data);
  const stop = new AbortController();
  const sent = ends.a.send(data, { signal: stop.signal });
  stop.abort(new Error('enough'));
  await expect(sent).rejects.toThrow('enough');
  data.fill(0);
  expect((await ends.b.receive({ timeout: 20_000 }))?.data.equals(expected)).toBe(true);
  await eventually(() => expect(regions()).toBe(0));
});

test('a READ whose wait has ended early leaves no region', async () => {
  await using ends = await pair();
  const mr = await ends.b.share(Buffer.alloc(8 * MIB, 1));
  const regions = countRegions(ends);
  const stop = new AbortController();
  const read = ends.a.read(mr.remote, { signal: stop.signal });
  await setImmediate();
  stop.abort(new Error('enough'));
  await expect(read).rejects.toThrow('enough');
  await eventually(() => expect(regions()).toBe(0));
});

test('requests that the connection refuses or that fail with it leave no region', async () => {
  const ends = await pair();
  const mr = await ends.b.share(Buffer.alloc(8 * MIB), ['remoteRead']);
  const regions = countRegions(ends);
  await expect(ends.a.write(mr.remote, Buffer.alloc(8 * MIB))).rejects.toMatchObject({ status: 'REM_ACCESS_ERR' });
  await expect(ends.a.write(mr.remote, Buffer.alloc(8 * MIB))).rejects.toMatchObject({ code: 'ECONNRESET' });
  await eventually(() => expect(regions()).toBe(0));
  await ends[Symbol.asyncDispose]();
});
