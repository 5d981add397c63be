// Access to the peer's memory: READ, WRITE, atomics, and their limits.
import { expect, test } from 'vitest';
import { pattern } from '../../verbs/pair.js';
import { connectionPair } from './connectionpair.js';

test('WRITE and READ of any size work, in parts where necessary', async () => {
  await using ends = await connectionPair({ a: { messageBytes: 4096, sends: 3 } });
  const mr = await ends.b.share(100_000);
  for (const size of [0, 1, 4096, 4097, 50_000]) {
    await ends.a.write(mr.remote, pattern(size, size), { offset: 11 });
    expect(mr.buffer.subarray(11, 11 + size).equals(pattern(size, size))).toBe(true);
    expect((await ends.a.read(mr.remote, { offset: 11, length: size })).equals(pattern(size, size))).toBe(true);
  }
  expect((await ends.a.read(mr.remote)).equals(mr.buffer)).toBe(true);
});

test('atomics return the original value', async () => {
  await using ends = await connectionPair();
  const mr = await ends.b.share(64);
  expect(await ends.a.fetchAdd(mr.remote, 5n, { offset: 8 })).toBe(0n);
  expect(await ends.a.fetchAdd(mr.remote, -2n, { offset: 8 })).toBe(5n);
  expect(await ends.a.compareSwap(mr.remote, 3n, 77n, { offset: 8 })).toBe(3n);
  expect(await ends.a.compareSwap(mr.remote, 3n, 78n, { offset: 8 })).toBe(77n);
  expect(mr.buffer.readBigUInt64LE(8)).toBe(77n);
});

test('the message of a WRITE with an immediate comes when all of its data is there', async () => {
  await using ends = await connectionPair({ a: { messageBytes: 1000 } });
  const mr = await ends.b.share(8000);
  const data = Buffer.alloc(5500, 'x');
  const written = ends.a.write(mr.remote, data, { offset: 7, imm: 0x8000_0001 });
  expect(await ends.b.receive()).toEqual({ data: Buffer.alloc(0), imm: 0x8000_0001 });
  expect(mr.buffer.subarray(7, 5507).equals(data)).toBe(true);
  await written;
  const own = await ends.a.share(100);
  await ends.a.write(mr.remote, own.sge(), { imm: 2 });
  expect((await ends.b.receive())?.imm).toBe(2);
});

test('a request beyond the region is refused before it is sent', async () => {
  await using ends = await connectionPair();
  const mr = await ends.b.share(64);
  await expect(ends.a.write(mr.remote, Buffer.alloc(10), { offset: 55 })).rejects.toThrow(RangeError);
  await expect(ends.a.read(mr.remote, { offset: 65 })).rejects.toThrow(RangeError);
  await expect(ends.a.fetchAdd(mr.remote, 1n, { offset: 57 })).rejects.toThrow(RangeError);
  expect(ends.a.isOpen).toBe(true);
});

test('a request that the peer forbids ends the connection, with the explanation', async () => {
  await using ends = await connectionPair();
  const mr = await ends.b.share(64, ['remoteRead']);
  const closed = new Promise<Error | undefined>((done) => ends.a.once('close', done));
  await expect(ends.a.write(mr.remote, Buffer.alloc(1))).rejects.toMatchObject({ status: 'REM_ACCESS_ERR' });
  expect((await closed)?.message).toContain('REM_ACCESS_ERR');
  await mr.close();
});

test('a close that failed because a memory window is bound succeeds when the window is closed', async () => {
  await using ends = await connectionPair();
  const { a } = ends;
  const shared = await a.share(4096, ['localWrite', 'mwBind']);
  const mw = await a.pd.allocMw(1);
  const cq = await ends.devices[0].createCq();
  const qp = await a.pd.createQp({ sendCq: cq });
  await qp.connect(qp.endpoint(), {});
  qp.bindMw(mw, { mr: shared, offset: 0, length: 4096, access: ['remoteRead'] });
  expect((await cq.next()).ok).toBe(true);
  const closed = new Promise((resolve) => a.once('close', resolve));
  await expect(a.close()).rejects.toMatchObject({ code: 'EBUSY' });
  await closed;
  await expect(a.close()).rejects.toMatchObject({ code: 'EBUSY' });
  await mw.close();
  await a.close();
  await a.close();
  expect([a.toJSON().state, shared.isClosed]).toEqual(['closed', true]);
});
