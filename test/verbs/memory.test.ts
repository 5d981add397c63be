/** Memory of the program, registered where it is. */
import { describe, expect, test } from 'vitest';
import { createMemoryHub, type Mr, throwIfFailed } from '../../src/index.js';
import { ALL, connectedPair, type End, openOn, pattern } from './pair.js';

const WAIT = { timeout: 20_000 };
const BYTES = 5000;

async function done({ qp, cq }: End, wr: object): Promise<void> {
  qp.postSend({ signaled: true, ...wr } as never);
  throwIfFailed(await cq.next(WAIT));
}

const wasm = (shared: boolean) => new WebAssembly.Memory({ initial: 2, maximum: 4, shared });
const bytesOf = (source: ArrayBufferLike | ArrayBufferView): Uint8Array =>
  ArrayBuffer.isView(source)
    ? new Uint8Array(source.buffer, source.byteOffset, source.byteLength)
    : new Uint8Array(source);

const SOURCES: Record<string, () => ArrayBufferLike | ArrayBufferView> = {
  'a Buffer of its own memory': () => Buffer.alloc(BYTES),
  'a Buffer in the pool': () => Buffer.from('x'.repeat(1001)),
  'a part of a Buffer, at an odd offset': () => Buffer.alloc(2 * BYTES).subarray(3, 3 + BYTES),
  'a Uint8Array of a few bytes, which V8 keeps in its heap': () => new Uint8Array(17),
  'a Float64Array': () => new Float64Array(600),
  'a DataView': () => new DataView(new ArrayBuffer(BYTES), 1, 999),
  'an ArrayBuffer': () => new ArrayBuffer(BYTES),
  'a SharedArrayBuffer': () => new SharedArrayBuffer(BYTES),
  'a growable SharedArrayBuffer': () => Reflect.construct(SharedArrayBuffer, [BYTES, { maxByteLength: 2 * BYTES }]),
  'a WebAssembly memory': () => wasm(false).buffer,
  'a shared WebAssembly memory': () => new Uint8Array(wasm(true).buffer, 100, BYTES),
};

describe.each(Object.entries(SOURCES))('%s', (_, make) => {
  test('is written, read and sent where it is', async () => {
    await using pair = await connectedPair();
    const { a, b } = pair;
    const [mine, theirs] = [bytesOf(make()), make()];
    const { length } = mine;
    const [from, to] = [await a.pd.regMr(mine), await b.pd.regMr(theirs as never, { access: ALL })];
    expect([from.length, to.length, to.remote.length]).toEqual([length, length, length]);
    mine.set(pattern(length, 1));
    await done(a, { opcode: 'RDMA_WRITE', sgList: from.sge(), remoteAddr: to.iova, rkey: to.rkey });
    expect(Buffer.compare(bytesOf(theirs), mine)).toBe(0);
    expect(Buffer.compare(to.buffer, mine)).toBe(0);
    bytesOf(theirs).set(pattern(length, 2));
    await done(a, { opcode: 'RDMA_READ', sgList: from.sge(), remoteAddr: to.iova, rkey: to.rkey });
    expect(Buffer.compare(mine, pattern(length, 2))).toBe(0);
    mine.set(pattern(length, 3));
    b.qp.postRecv({ sgList: to.sge() });
    await done(a, { opcode: 'SEND', sgList: [from.sge(0, 5), from.sge(5)] });
    throwIfFailed(await b.cq.next(WAIT));
    expect(Buffer.compare(bytesOf(theirs), pattern(length, 3))).toBe(0);
  });
});

test('bytes beside registered memory stay as they are', async () => {
  await using pair = await connectedPair();
  const { a, b } = pair;
  const theirs = Buffer.alloc(3000, 0xee);
  const to = await b.pd.regMr(theirs.subarray(1001, 2002), { access: ALL });
  a.mr.buffer.fill(7);
  await done(a, { opcode: 'RDMA_WRITE', sgList: a.mr.sge(0, 1001), remoteAddr: to.iova, rkey: to.rkey });
  expect([...new Set(theirs.subarray(0, 1001))]).toEqual([0xee]);
  expect([...new Set(theirs.subarray(1001, 2002))]).toEqual([7]);
  expect([...new Set(theirs.subarray(2002))]).toEqual([0xee]);
});

describe('rights and ranges', () => {
  const fails = async (end: End, wr: object) => {
    end.qp.postSend({ signaled: true, ...wr } as never);
    return (await end.cq.next(WAIT)).statusName;
  };

  test.each([
    ['one byte past the end', { length: 65 }, ALL, 'REM_ACCESS_ERR'],
    ['without the right to write', { length: 64 }, ['remoteRead'] as const, 'REM_ACCESS_ERR'],
  ] as const)('a WRITE %s is refused', async (_, { length }, access, status) => {
    await using pair = await connectedPair();
    const { a, b } = pair;
    const memory = new Uint8Array(64);
    const to = await b.pd.regMr(memory, { access });
    a.mr.buffer.fill(7);
    expect(
      await fails(a, { opcode: 'RDMA_WRITE', sgList: a.mr.sge(0, length), remoteAddr: to.iova, rkey: to.rkey }),
    ).toBe(status);
    expect(memory.every((byte) => byte === 0)).toBe(true);
  });

  test('a READ into memory without localWrite is refused', async () => {
    await using pair = await connectedPair();
    const { a, b } = pair;
    const into = await a.pd.regMr(new Uint8Array(64), { access: [] });
    expect(await fails(a, { opcode: 'RDMA_READ', sgList: into.sge(), remoteAddr: b.mr.iova, rkey: b.mr.rkey })).toBe(
      'LOC_PROT_ERR',
    );
  });

  test('an SGE with the key of another region is refused', async () => {
    await using pair = await connectedPair();
    const { a, b } = pair;
    const [one, two] = [await a.pd.regMr(new Uint8Array(64)), await a.pd.regMr(new Uint8Array(64))];
    const sgList = { ...one.sge(), lkey: two.lkey };
    expect(await fails(a, { opcode: 'RDMA_WRITE', sgList, remoteAddr: b.mr.iova, rkey: b.mr.rkey })).toBe(
      'LOC_PROT_ERR',
    );
  });

  test('a closed region is reached by no key, and its memory is left alone', async () => {
    await using pair = await connectedPair();
    const { a, b } = pair;
    const memory = new Uint8Array(64);
    const to = await b.pd.regMr(memory, { access: ALL });
    const { iova, rkey } = to;
    await to.close();
    // another region has its number now
    const other = await b.pd.regMr(new Uint8Array(64), { access: ALL });
    expect(other.addr).toBe(iova);
    a.mr.buffer.fill(7);
    expect(await fails(a, { opcode: 'RDMA_WRITE', sgList: a.mr.sge(0, 64), remoteAddr: iova, rkey })).toBe(
      'REM_ACCESS_ERR',
    );
    expect(Buffer.concat([memory, other.buffer]).every((byte) => byte === 0)).toBe(true);
  });

  test('a memory window grants a part', async () => {
    await using pair = await connectedPair();
    const { a, b } = pair;
    const memory = new Uint8Array(64);
    const mr = await b.pd.regMr(memory, { access: ['localWrite', 'mwBind'] });
    const mw = await b.pd.allocMw(1);
    const rkey = b.qp.bindMw(mw, { mr, offset: 16, length: 16, access: ['remoteWrite'], signaled: true });
    throwIfFailed(await b.cq.next(WAIT));
    a.mr.buffer.fill(7);
    const remoteAddr = Number(mr.iova) + 16;
    await done(a, { opcode: 'RDMA_WRITE', sgList: a.mr.sge(0, 16), remoteAddr, rkey });
    expect([...memory]).toEqual([...Array(16).fill(0), ...Array(16).fill(7), ...Array(32).fill(0)]);
    expect(await fails(a, { opcode: 'RDMA_WRITE', sgList: a.mr.sge(0, 17), remoteAddr, rkey })).toBe('REM_ACCESS_ERR');
  });
});

test('atomic operations work at any alignment of the memory', async () => {
  await using pair = await connectedPair();
  const { a, b } = pair;
  for (const offset of [0, 3]) {
    const words = new DataView(new ArrayBuffer(32), offset, 16);
    words.setBigUint64(8, 40n, true);
    const to = await b.pd.regMr(words, { access: ALL, iova: 0x1000 });
    const original = new BigUint64Array(1);
    const result = await a.pd.regMr(original);
    const at = { sgList: result.sge(), remoteAddr: 0x1008, rkey: to.rkey };
    await done(a, { opcode: 'ATOMIC_FETCH_AND_ADD', ...at, compareAdd: 2n });
    expect([original[0], words.getBigUint64(8, true)]).toEqual([40n, 42n]);
    await done(a, { opcode: 'ATOMIC_CMP_AND_SWP', ...at, compareAdd: 41n, swap: 1n });
    await done(a, { opcode: 'ATOMIC_CMP_AND_SWP', ...at, compareAdd: 42n, swap: 9n });
    expect([original[0], words.getBigUint64(8, true)]).toEqual([42n, 9n]);
    original[0] = 77n;
    await done(a, { opcode: 'ATOMIC_WRITE', ...at });
    expect(words.getBigUint64(8, true)).toBe(77n);
  }
});

test('inline data is gathered from memory of the program', async () => {
  await using pair = await connectedPair({ qp: { maxInlineData: 64 } });
  const { a, b } = pair;
  const from = await a.pd.regMr(Buffer.from('0123456789'));
  b.qp.postRecv({ sgList: b.mr.sge(0, 64) });
  a.qp.postSend({ opcode: 'SEND', inline: true, sgList: [from.sge(8, 2), a.mr.sge(0, 1), from.sge(0, 3)] });
  from.buffer.fill('x');
  throwIfFailed(await b.cq.next(WAIT));
  expect([...b.mr.buffer.subarray(0, 6)]).toEqual([...Buffer.from('89'), 0, ...Buffer.from('012')]);
  const outside = { ...from.sge(), addr: from.addr + 5 };
  expect(() => a.qp.postSend({ opcode: 'SEND', inline: true, sgList: outside })).toThrow(
    `sgList[0] has 10 bytes at ${from.addr + 5}, where no region is`,
  );
});

test('a fast region takes memory of the program, and keeps it until the next registration is in force', async () => {
  await using pair = await connectedPair();
  const { a, b } = pair;
  const fast = await b.pd.allocMr();
  for (const seed of [1, 2]) {
    const memory = new Uint8Array(100);
    await done(b, { opcode: 'REG_MR', mr: fast, buffer: memory, access: ALL });
    a.mr.buffer.set(pattern(100, seed));
    const { addr: remoteAddr, rkey } = fast.remote;
    await done(a, { opcode: 'RDMA_WRITE', sgList: a.mr.sge(0, 100), remoteAddr, rkey });
    expect(Buffer.compare(memory, pattern(100, seed))).toBe(0);
    await done(b, { opcode: 'LOCAL_INV', invalidateRkey: fast.rkey });
  }
  expect(fast.addr).toBeGreaterThanOrEqual(2 ** 32);
});

test('a REG_MR that is refused lets go of its memory', async () => {
  await using pair = await connectedPair();
  const { b } = pair;
  const fast = await b.pd.allocMr();
  const ends: Mr[] = [];
  for (let i = 0; i < 3; i++) {
    const ud = await b.pd.createQp({ type: 'UD', sendCq: b.cq });
    await ud.activate({ qkey: 1 });
    expect(() => ud.postSend({ opcode: 'REG_MR', mr: fast, buffer: new Uint8Array(8) } as never)).toThrow('EOPNOTSUPP');
    ends.push(await b.pd.regMr(new Uint8Array(8)));
  }
  // each has the next number
  expect(ends.map(({ addr }) => addr / 2 ** 32)).toEqual([1, 2, 3]);
});

test('re-registration with other rights keeps the address, and with other memory takes another', async () => {
  await using pair = await connectedPair();
  const { a, b } = pair;
  const memory = new Uint8Array(64);
  const mr = await b.pd.regMr(memory, { access: ['remoteRead'] });
  const { addr, iova } = mr;
  await mr.rereg({ access: ALL });
  expect([mr.addr, mr.iova, mr.length]).toEqual([addr, iova, 64]);
  a.mr.buffer.fill(7);
  await done(a, { opcode: 'RDMA_WRITE', sgList: a.mr.sge(0, 64), remoteAddr: iova, rkey: mr.rkey });
  expect(memory[63]).toBe(7);
  const next = new Uint8Array(32);
  await mr.rereg({ buffer: next });
  expect([mr.length, mr.buffer.buffer]).toEqual([32, next.buffer]);
  await done(a, { opcode: 'RDMA_WRITE', sgList: a.mr.sge(0, 32), remoteAddr: mr.iova, rkey: mr.rkey });
  expect([next[31], memory[0]]).toEqual([7, 7]);
});

test('memory that could be taken away, or that is none, is refused', async () => {
  await using pair = await connectedPair();
  const { pd, device } = pair.a;
  const refused = (source: unknown) => expect(pd.regMr(source as never)).rejects;
  await refused(Reflect.construct(ArrayBuffer, [8, { maxByteLength: 16 }])).toThrow(
    /^the ArrayBuffer is resizable: it may/,
  );
  const pretending = Reflect.construct(ArrayBuffer, [8, { maxByteLength: 16 }]);
  Object.defineProperty(pretending, 'resizable', { value: false });
  await refused(pretending).toThrow(/^the ArrayBuffer is resizable/);
  await refused(new Uint8Array(0)).toThrow('the memory has 0 bytes, a region must have 1 to 4294967295');
  const detached = new ArrayBuffer(8);
  structuredClone(detached, { transfer: [detached] });
  await refused(detached).toThrow('the memory has 0 bytes');
  for (const none of [null, undefined, [1, 2], new Date(), new Proxy(new Uint8Array(8), {}), {}])
    await refused(none).toThrow('must be a length, memory');
  await refused(device.sharedMemory.buffer).toThrow('in that of a region');
});

test('regions may have more memory than the card, each less than 4 GiB', async () => {
  await using device = await openOn(createMemoryHub());
  const pd = await device.allocPd();
  // nothing touches the pages
  const mrs = await Promise.all(Array.from({ length: 8 }, () => pd.regMr(new ArrayBuffer(2 ** 29))));
  expect(mrs.reduce((sum, { length }) => sum + length, 0)).toBe(2 ** 32);
  const large = new ArrayBuffer(2 ** 32);
  await expect(pd.regMr(large)).rejects.toThrow(
    'the memory has 4294967296 bytes, a region must have 1 to 4294967295: register several',
  );
  expect((await pd.regMr(new Uint8Array(large, 1))).length).toBe(2 ** 32 - 1);
  await device.close({ force: true });
});
