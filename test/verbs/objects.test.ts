// Objects are created, used and closed, children first; every error names the objects concerned.
import { expect, test } from 'vitest';
import { createMemoryHub, Mr, throwIfFailed, VerbsError } from '../../src/index.js';
import { ALL, connectedPair, endOn, openOn } from './pair.js';

const hub = createMemoryHub;

test('a parent with children refuses to close and names them', async () => {
  await using device = await openOn(hub());
  const { pd, cq, mr, qp } = await endOn(device);
  const second = await pd.createQp({ sendCq: cq });
  await expect(pd.close()).rejects.toThrow(
    `EBUSY: pd ${pd.label} has 2 qps (${qp.label}, ${second.label}) and 1 mr (${mr.label}): close them first`,
  );
  await expect(cq.close()).rejects.toMatchObject({ code: 'EBUSY', message: expect.stringContaining(qp.label) });
  await expect(device.close()).rejects.toThrow(`has 1 cq (${cq.label}) and 1 pd (${pd.label})`);
  expect(qp.label).toMatch(/^0x[0-9a-f]{6}$/);
  for (const object of [second, qp, mr, cq, pd]) await object.close();
  await device.close();
  expect([device, pd, cq, mr, qp].every((object) => object.isClosed)).toBe(true);
  await qp.close();
});

test('a forced close closes all objects in order', async () => {
  const device = await openOn(hub());
  const { pd, cq, mr, qp } = await endOn(device);
  await pd.regMr(mr);
  await device.close({ force: true });
  expect([device, pd, cq, mr, qp].every((object) => object.isClosed)).toBe(true);
});

test('await using closes the device with all its objects, and using closes objects without a wait', async () => {
  const seen = await (async () => {
    await using device = await openOn(hub());
    using pd = await device.allocPd();
    using mr = await pd.regMr(64);
    expect(mr.isClosed).toBe(false);
    return { device, pd, mr };
  })();
  expect([seen.device, seen.pd, seen.mr].every((object) => object.isClosed)).toBe(true);
});

test('calls of a closed object throw that it is closed', async () => {
  await using device = await openOn(hub());
  const { pd, cq, mr, qp } = await endOn(device);
  await qp.close();
  expect(() => qp.postSend({ opcode: 'SEND' })).toThrow(`EINVAL: qp ${qp.label} is closed`);
  expect(() => qp.postRecv({})).toThrow('is closed');
  expect(() => qp.state).toThrow('is closed');
  await expect(qp.modify({ state: 'ERR' })).rejects.toThrow('is closed');
  await cq.close();
  expect(() => cq.poll([])).toThrow(`cq ${cq.label} is closed`);
  await expect(cq.next()).rejects.toThrow('is closed');
  await mr.close();
  expect(() => mr.buffer).toThrow('is closed');
  await pd.close();
  await expect(pd.regMr(64)).rejects.toThrow('is closed');
  await device.close();
  await expect(device.allocPd()).rejects.toThrow('is closed');
  expect(() => device.query()).toThrow('is closed');
});

test('a region is zeroed memory of the card, and its elements stay inside', async () => {
  await using device = await openOn(hub());
  const pd = await device.allocPd();
  const mr = await pd.regMr(5000, { access: ['localWrite', 'remoteRead'] });
  expect(mr.buffer).toBeInstanceOf(Buffer);
  expect(mr.buffer.length).toBe(5000);
  expect(mr.buffer.every((byte) => byte === 0)).toBe(true);
  expect(mr.buffer.buffer).toBeInstanceOf(SharedArrayBuffer);
  expect(mr.sge(10, 20)).toEqual({ addr: mr.addr + 10, length: 20, lkey: mr.lkey });
  expect(mr.sge(4999).length).toBe(1);
  expect(mr.sge()).toEqual({ addr: mr.addr, length: 5000, lkey: mr.lkey });
  expect(() => mr.sge(5001)).toThrow('offset is 5001, must be from 0 to 5000');
  expect(() => mr.sge(4000, 1001)).toThrow('length is 1001, must be from 0 to 1000');
  const fast = await pd.allocMr();
  for (const region of [mr, fast])
    expect(() => region.slice(0, 8)).toThrow('a region has no slice(start, end): use sge(offset, length)');
  expect(() => mr.sge(-1)).toThrow(RangeError);
  expect(JSON.parse(JSON.stringify(mr.remote))).toEqual({ addr: mr.addr, rkey: mr.rkey, length: 5000 });
  expect(mr.access).toEqual(['localWrite', 'remoteRead']);
});

test('a WebAssembly module of the program can use a region through the shared memory', async () => {
  await using device = await openOn(hub());
  const mr = await (await device.allocPd()).regMr(8);
  new Uint32Array(device.sharedMemory.buffer, mr.addr, 2).set([7, 8]);
  expect([mr.buffer.readUInt32LE(0), mr.buffer.readUInt32LE(4)]).toEqual([7, 8]);
  expect(device.sharedMemory).toBeInstanceOf(WebAssembly.Memory);
});

test.each([0, 1, 4095, 4096, 100_000])('%i bytes are copied in and out of a region', async (length) => {
  await using device = await openOn(hub());
  const pd = await device.allocPd();
  const mr = await pd.regMr(100_010);
  const bytes = Uint8Array.from({ length }, (_, i) => i * 7 + 1);
  mr.copyIn(bytes, 5);
  expect(mr.buffer.subarray(0, 5).every((byte) => byte === 0)).toBe(true);
  expect(mr.buffer.subarray(5 + length).every((byte) => byte === 0)).toBe(true);
  const copy = mr.copyOut(5, length);
  expect(copy.equals(bytes)).toBe(true);
  const into = new Uint8Array(length + 2).subarray(1, length + 1);
  mr.copyTo(into, 5);
  expect(copy.equals(into)).toBe(true);
  mr.buffer.fill(0);
  expect(copy.equals(bytes)).toBe(true);
  expect(mr.copyOut(100_000).length).toBe(10);
});

test('a part of a region is copied over another part that overlaps it', async () => {
  await using device = await openOn(hub());
  const mr = await (await device.allocPd()).regMr(10_000);
  for (let i = 0; i < mr.length; i++) mr.buffer[i] = i * 7;
  const before = mr.copyOut();
  mr.copyIn(mr.buffer.subarray(0, 9000), 100);
  expect(mr.copyOut(100, 9000).equals(before.subarray(0, 9000))).toBe(true);
  mr.copyIn(mr.buffer.subarray(100, 9100));
  expect(mr.copyOut(0, 9000).equals(before.subarray(0, 9000))).toBe(true);
});

test('copyIn, copyOut and copyTo stay inside the region', async () => {
  await using device = await openOn(hub());
  const mr = await (await device.allocPd()).regMr(5000);
  expect(() => mr.copyIn(Buffer.alloc(4097), 904)).toThrow('bytes.length is 4097, must be from 0 to 4096');
  expect(() => mr.copyIn('text' as never)).toThrow("bytes is 'text', must be a Uint8Array");
  expect(() => mr.copyIn(Buffer.alloc(1), -1)).toThrow('offset is -1, must be from 0 to 5000');
  expect(() => mr.copyOut(5001)).toThrow('offset is 5001, must be from 0 to 5000');
  expect(() => mr.copyOut(4000, 1001)).toThrow('length is 1001, must be from 0 to 1000');
  expect(() => mr.copyTo(Buffer.alloc(1001), 4000)).toThrow('into.length is 1001, must be from 0 to 1000');
  expect(() => mr.copyTo('text' as never)).toThrow("into is 'text', must be a Uint8Array");
  await mr.close();
  expect(() => mr.copyIn(Buffer.alloc(1))).toThrow('is closed');
  expect(() => mr.copyOut(0, 1)).toThrow('is closed');
});

test('regions over the same memory share it, and the last one frees it', async () => {
  await using device = await openOn(hub());
  const pd = await device.allocPd();
  const before = device.query().memoryAvailable;
  const first = await pd.regMr(2 ** 20);
  const whole = await pd.regMr(first, { access: ALL });
  const part = await pd.regMr(first.buffer.subarray(100, 200), { access: ALL, iova: 0 });
  expect([whole.addr, part.addr, part.length, part.iova]).toEqual([first.addr, first.addr + 100, 100, 0]);
  part.buffer.write('seen');
  expect(first.buffer.toString('latin1', 100, 104)).toBe('seen');
  expect(new Set([first.rkey, whole.rkey, part.rkey]).size).toBe(3);
  await first.close();
  await whole.close();
  expect(device.query().memoryAvailable).toBeLessThan(before - 2 ** 20 + 65536);
  expect(part.buffer.toString('latin1', 0, 4)).toBe('seen');
  await part.close();
  expect(device.query().memoryAvailable).toBeGreaterThan(before - 65536);
});

test('a Buffer that outlives its region shows data of other regions at most, never objects', async () => {
  await using pair = await connectedPair();
  const { a, b } = pair;
  const stale: Buffer[] = [];
  for (const length of [64, 5000, 2 ** 20]) {
    const mr = await a.pd.regMr(length);
    stale.push(mr.buffer);
    await mr.close();
  }
  const scribble = (byte: number) => {
    for (const buffer of stale) buffer.fill(byte);
  };
  const free = a.device.query().memoryAvailable;
  for (let round = 0; round < 20; round++) {
    scribble(0xff);
    const cqs = await Promise.all([16, 300, 2000].map((cqe) => a.device.createCq({ cqe })));
    const qps = await Promise.all(cqs.map((sendCq) => a.pd.createQp({ sendCq, maxSendWr: 1 + round })));
    const regions = await Promise.all([100, 5000, 70_000].map((length) => a.pd.regMr(length)));
    scribble(round);
    const to = b.mr.sge(round * 100, 100);
    a.mr.buffer.fill(round + 1, 0, 100);
    b.qp.postRecv({ sgList: to });
    a.qp.postSend({ opcode: 'SEND', sgList: a.mr.sge(0, 100) });
    for (const { cq } of [a, b]) throwIfFailed(await cq.next());
    expect(b.mr.buffer.subarray(round * 100, (round + 1) * 100).equals(Buffer.alloc(100, round + 1))).toBe(true);
    for (const object of [...regions, ...qps, ...cqs]) await object.close();
  }
  expect(a.device.query().memoryAvailable).toBe(free);
});

test('regMr refuses memory that it cannot register', async () => {
  await using device = await openOn(hub());
  const pd = await device.allocPd();
  const refused = (source: unknown, options?: object) => expect(pd.regMr(source as number, options)).rejects;
  await refused(0).toThrow('length is 0, must be from 1 to 4294967295');
  await refused(1.5).toThrow('length is 1.5, must be an integer');
  await refused('4096').toThrow(/source is '4096', must be a length, memory \(.*\), or a region/);
  await refused(64, { access: ['remoteWrit'] }).toThrow(
    "access has 'remoteWrit', must be one of localWrite, remoteWrite, remoteRead, remoteAtomic, mwBind, zeroBased, flushGlobal, invalidate",
  );
  await refused(64, { access: 1024 }).toThrow(RangeError);
  await refused(64, { access: ['remoteWrite'] }).toThrow(/EINVAL: .* remoteWrite .* need localWrite/);
  await refused(64, { iova: -1 }).toThrow(RangeError);
  await refused(64, { iova: 2n ** 64n }).toThrow(RangeError);
  await refused(2 ** 30).toThrow(/ENOMEM: 1073741824 bytes do not fit: \d+ bytes are left/);
  expect(device.query().memoryAvailable).toBeGreaterThan(0);
});

test("another device's objects are refused", async () => {
  await using one = await openOn(hub());
  await using other = await openOn(hub());
  const pd = await one.allocPd();
  const cq = await other.createCq();
  await expect(pd.createQp({ sendCq: cq })).rejects.toThrow('sendCq belongs to another device');
  await expect(pd.createQp({ sendCq: {} as never })).rejects.toThrow('sendCq is an object, must be a completion queue');
  const foreign = await (await other.allocPd()).regMr(64);
  await expect(pd.regMr(foreign)).rejects.toThrow('belongs to another device: register its buffer');
});

test('createCq and createQp refuse sizes that are out of range', async () => {
  await using device = await openOn(hub());
  const { pd, cq } = await endOn(device);
  await expect(device.createCq({ cqe: 0 })).rejects.toThrow('cqe is 0, must be from 1 to 4194304');
  await expect(device.createCq({ cqe: 4_000_000 })).rejects.toThrow(/ENOMEM/);
  await expect(pd.createQp({ sendCq: cq, maxSendSge: 33 })).rejects.toThrow('maxSendSge is 33, must be from 1 to 32');
  await expect(pd.createQp({ sendCq: cq, maxInlineData: 1025 })).rejects.toThrow('maxInlineData is 1025');
  await expect(pd.createQp({ sendCq: cq, type: 'XRC' as 'RC' })).rejects.toThrow(
    "type is 'XRC', must be 'RC', 'UC' or 'UD'",
  );
});

test('a WRITE to a region that is being closed is refused without further effects', async () => {
  await using pair = await connectedPair();
  const { a, b } = pair;
  const extra = await b.pd.regMr(65536, { access: ALL });
  for (let i = 0; i < 20; i++)
    a.qp.postSend({ opcode: 'RDMA_WRITE', sgList: a.mr.sge(0, 65536), remoteAddr: extra.iova, rkey: extra.rkey });
  await a.cq.next({ timeout: 20_000 });
  await extra.close();
  const statuses = new Set<string>();
  for (let i = 0; i < 19; i++) statuses.add((await a.cq.next({ timeout: 20_000 })).statusName);
  expect([...statuses].every((name) => ['SUCCESS', 'REM_ACCESS_ERR', 'WR_FLUSH_ERR'].includes(name))).toBe(true);
  expect(extra).toBeInstanceOf(Mr);
  expect(new VerbsError('EIO', 'x').message).toBe('EIO: x');
});
