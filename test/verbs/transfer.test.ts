// Every operation between two devices in one process, byte by byte.
import { expect, test } from 'vitest';
import { type SendWr, throwIfFailed, WcOpcode } from '../../src/index.js';
import { ALL, connectedPair, pattern } from './pair.js';

const WAIT = { timeout: 20_000 };

test('SEND fills the receive, and both ends complete', async () => {
  await using pair = await connectedPair();
  const { a, b } = pair;
  pattern(3000).copy(a.mr.buffer);
  b.qp.postRecv({ wrId: 7, sgList: b.mr.sge(100, 4000) });
  a.qp.postSend({ wrId: 9, opcode: 'SEND', sgList: a.mr.sge(0, 3000) });
  const sent = await a.cq.next(WAIT);
  const received = await b.cq.next(WAIT);
  throwIfFailed(sent);
  expect(sent).toMatchObject({ wrId: 9, ok: true, opcode: WcOpcode.SEND, qpNum: a.qp.qpNum, hasImm: false });
  expect(received).toMatchObject({ wrId: 7, ok: true, opcodeName: 'RECV', byteLen: 3000, qpNum: b.qp.qpNum });
  expect(b.mr.buffer.subarray(100, 3100).equals(pattern(3000))).toBe(true);
  expect(b.mr.buffer[99]).toBe(0);
  expect(b.mr.buffer[3100]).toBe(0);
});

test.each([true, false])(
  'messages keep their order and their sizes, zero included; coalesced: %s',
  async (coalesce) => {
    await using pair = await connectedPair({ coalesce });
    const { a, b } = pair;
    const sizes = [0, 1, 63, 1024, 1025, 4096, 20000];
    pattern(20000).copy(a.mr.buffer);
    for (const [i] of sizes.entries()) b.qp.postRecv({ wrId: i, sgList: b.mr.sge(0, 20000) });
    for (const [i, size] of sizes.entries())
      a.qp.postSend({ wrId: i, opcode: 'SEND', ...(size > 0 && { sgList: a.mr.sge(0, size) }) });
    for (const [i, size] of sizes.entries())
      expect(await b.cq.next(WAIT)).toMatchObject({ wrId: i, ok: true, byteLen: size });
    for (const [i] of sizes.entries()) expect(await a.cq.next(WAIT)).toMatchObject({ wrId: i, ok: true });
    expect(b.mr.buffer.subarray(0, 20000).equals(pattern(20000))).toBe(true);
  },
);

test('SEND_WITH_IMM delivers the immediate data as the same number', async () => {
  await using pair = await connectedPair();
  const { a, b } = pair;
  b.qp.postRecv({ sgList: b.mr.sge(0, 64) });
  a.qp.postSend({ opcode: 'SEND_WITH_IMM', sgList: Buffer.from('imm'), immData: 0xdeadbeef, solicited: true });
  expect(await b.cq.next(WAIT)).toMatchObject({ ok: true, byteLen: 3, hasImm: true, immData: 0xdeadbeef });
});

test('inline data may be changed right after the call', async () => {
  await using pair = await connectedPair({ qp: { maxInlineData: 64 } });
  const { a, b } = pair;
  b.qp.postRecv([{ sgList: b.mr.sge(0, 64) }, { sgList: b.mr.sge(64, 64) }]);
  const text = Buffer.from('inline from anywhere');
  a.qp.postSend({ opcode: 'SEND', sgList: text });
  text.fill(0);
  a.mr.buffer.write('inlined');
  a.qp.postSend({ opcode: 'SEND', inline: true, sgList: [a.mr.sge(2, 5), a.mr.sge(0, 2)] });
  a.mr.buffer.fill(0);
  expect(await b.cq.next(WAIT)).toMatchObject({ ok: true, byteLen: 20 });
  expect(await b.cq.next(WAIT)).toMatchObject({ ok: true, byteLen: 7 });
  expect(b.mr.buffer.toString('latin1', 0, 20)).toBe('inline from anywhere');
  expect(b.mr.buffer.toString('latin1', 64, 71)).toBe('linedin');
});

test('SEND gathers from and scatters to elements of different sizes', async () => {
  await using pair = await connectedPair();
  const { a, b } = pair;
  pattern(5000).copy(a.mr.buffer);
  b.qp.postRecv({ sgList: [b.mr.sge(10000, 1), b.mr.sge(20000, 1500), b.mr.sge(30000, 4000)] });
  a.qp.postSend({ opcode: 'SEND', sgList: [a.mr.sge(0, 3000), a.mr.sge(3000, 17), a.mr.sge(3017, 1983)] });
  expect(await b.cq.next(WAIT)).toMatchObject({ ok: true, byteLen: 5000 });
  const got = b.mr.buffer;
  const joined = Buffer.concat([got.subarray(10000, 10001), got.subarray(20000, 21500), got.subarray(30000, 33499)]);
  expect(joined.equals(pattern(5000))).toBe(true);
});

test('RDMA WRITE changes exactly the named bytes, without a completion at the peer', async () => {
  await using pair = await connectedPair();
  const { a, b } = pair;
  pattern(10001).copy(a.mr.buffer);
  const { addr, rkey } = b.mr.remote;
  a.qp.postSend({ opcode: 'RDMA_WRITE', sgList: a.mr.sge(0, 10001), remoteAddr: Number(addr) + 333, rkey });
  expect(await a.cq.next(WAIT)).toMatchObject({ ok: true, opcodeName: 'RDMA_WRITE' });
  expect(b.mr.buffer.subarray(333, 10334).equals(pattern(10001))).toBe(true);
  expect([b.mr.buffer[332], b.mr.buffer[10334]]).toEqual([0, 0]);
  expect(b.cq.poll(b.cq.createWcs(1))).toBe(0);
});

test('a device answers at once without a waiting program', async () => {
  await using pair = await connectedPair({ connect: { access: ALL, timeout: 20 } });
  const { a, b } = pair;
  const from = await a.pd.regMr(2 ** 20);
  const to = await b.pd.regMr(2 ** 20, { access: ALL });
  // More packets than the in-flight window. If ACKs waited for the ACK timer of 4 s, the test would take as long.
  a.qp.postSend({ opcode: 'RDMA_WRITE', sgList: from.sge(), remoteAddr: to.iova, rkey: to.rkey });
  throwIfFailed(await a.cq.next({ timeout: 20_000 }));
});

test('RDMA WRITE with immediate consumes a receive, whose completion has the length', async () => {
  await using pair = await connectedPair();
  const { a, b } = pair;
  b.qp.postRecv({ wrId: 3 });
  const { addr, rkey } = b.mr.remote;
  const sgList = a.mr.sge(0, 2000);
  a.qp.postSend({ opcode: 'RDMA_WRITE_WITH_IMM', sgList, remoteAddr: BigInt(addr), rkey, immData: 5 });
  expect(await b.cq.next(WAIT)).toMatchObject({
    wrId: 3,
    ok: true,
    opcodeName: 'RECV_RDMA_WITH_IMM',
    byteLen: 2000,
    immData: 5,
  });
});

test('RDMA READ scatters to several elements', async () => {
  await using pair = await connectedPair();
  const { a, b } = pair;
  pattern(9000, 2).copy(b.mr.buffer, 1);
  const { addr, rkey } = b.mr.remote;
  const sgList = [a.mr.sge(0, 4097), a.mr.sge(8192, 4903)];
  a.qp.postSend({ opcode: 'RDMA_READ', sgList, remoteAddr: Number(addr) + 1, rkey });
  expect(await a.cq.next(WAIT)).toMatchObject({ ok: true, opcodeName: 'RDMA_READ', byteLen: 9000 });
  const joined = Buffer.concat([a.mr.buffer.subarray(0, 4097), a.mr.buffer.subarray(8192, 13095)]);
  expect(joined.equals(pattern(9000, 2))).toBe(true);
});

test('atomics return the old value and change the memory', async () => {
  await using pair = await connectedPair();
  const { a, b } = pair;
  b.mr.buffer.writeBigUInt64LE(40n, 8);
  const target = { remoteAddr: Number(b.mr.remote.addr) + 8, rkey: b.mr.rkey };
  const old = async (wr: SendWr) => {
    a.qp.postSend(wr);
    throwIfFailed(await a.cq.next(WAIT));
    return a.mr.buffer.readBigUInt64LE(0);
  };
  const sgList = a.mr.sge(0, 8);
  const value = () => b.mr.buffer.readBigUInt64LE(8);
  expect(await old({ opcode: 'ATOMIC_FETCH_AND_ADD', sgList, ...target, compareAdd: 2n })).toBe(40n);
  expect(value()).toBe(42n);
  expect(await old({ opcode: 'ATOMIC_FETCH_AND_ADD', sgList, ...target, compareAdd: -43n })).toBe(42n);
  expect(value()).toBe(0xffffffffffffffffn);
  expect(await old({ opcode: 'ATOMIC_CMP_AND_SWP', sgList, ...target, compareAdd: 1n, swap: 9n })).toBe(2n ** 64n - 1n);
  expect(value()).toBe(2n ** 64n - 1n);
  const swap = 0x0123456789abcdefn;
  expect(await old({ opcode: 'ATOMIC_CMP_AND_SWP', sgList, ...target, compareAdd: 2n ** 64n - 1n, swap })).toBe(
    2n ** 64n - 1n,
  );
  expect(value()).toBe(swap);
});

test('a region begins at the given iova', async () => {
  await using pair = await connectedPair();
  const { a, b } = pair;
  const iova = 0xfedc_ba98_0000_1000n;
  const mr = await b.pd.regMr(b.mr, { access: ALL, iova });
  expect(mr.remote.addr).toBe(iova);
  a.qp.postSend({ opcode: 'RDMA_WRITE', sgList: Buffer.from('far'), remoteAddr: iova + 5n, rkey: mr.rkey });
  throwIfFailed(await a.cq.next(WAIT));
  expect(b.mr.buffer.toString('latin1', 5, 8)).toBe('far');
});

test('unsignaled sends have no completion, and a signaled one after them completes', async () => {
  await using pair = await connectedPair({ qp: { sqSigAll: false } });
  const { a, b } = pair;
  const write = { opcode: 'RDMA_WRITE', sgList: a.mr.sge(0, 8), remoteAddr: b.mr.iova, rkey: b.mr.rkey } as const;
  a.qp.postSend([
    { ...write, wrId: 1 },
    { ...write, wrId: 2 },
    { ...write, wrId: 3, signaled: true },
  ]);
  expect(await a.cq.next(WAIT)).toMatchObject({ wrId: 3, ok: true });
  expect(a.cq.poll(a.cq.createWcs(1))).toBe(0);
});

test('a fenced send begins after the READ before it', async () => {
  await using pair = await connectedPair();
  const { a, b } = pair;
  b.mr.buffer.fill('old', 0, 3);
  const remote = { remoteAddr: b.mr.iova, rkey: b.mr.rkey };
  a.qp.postSend([
    { opcode: 'RDMA_READ', sgList: a.mr.sge(0, 3), ...remote },
    { opcode: 'RDMA_WRITE', sgList: Buffer.from('new'), fence: true, ...remote },
  ]);
  throwIfFailed(await a.cq.next(WAIT));
  throwIfFailed(await a.cq.next(WAIT));
  expect(a.mr.buffer.toString('latin1', 0, 3)).toBe('old');
  expect(b.mr.buffer.toString('latin1', 0, 3)).toBe('new');
});

test('LOCAL_INV completes, and the peer cannot use the key any more', async () => {
  await using pair = await connectedPair();
  const { a, b } = pair;
  const extra = await b.pd.regMr(4096, { access: [...ALL, 'invalidate'] });
  b.qp.postSend({ opcode: 'LOCAL_INV', invalidateRkey: extra.rkey });
  expect(await b.cq.next(WAIT)).toMatchObject({ ok: true, opcodeName: 'LOCAL_INV' });
  a.qp.postSend({ opcode: 'RDMA_WRITE', sgList: Buffer.from('x'), remoteAddr: extra.iova, rkey: extra.rkey });
  expect(await a.cq.next(WAIT)).toMatchObject({ statusName: 'REM_ACCESS_ERR' });
});

test('SEND_WITH_INV invalidates the named key, which the completion has', async () => {
  await using pair = await connectedPair();
  const { a, b } = pair;
  const extra = await b.pd.regMr(4096, { access: [...ALL, 'invalidate'] });
  b.qp.postRecv({ sgList: b.mr.sge(0, 64) });
  a.qp.postSend({ opcode: 'SEND_WITH_INV', sgList: Buffer.from('done'), invalidateRkey: extra.rkey });
  expect(await b.cq.next(WAIT)).toMatchObject({ ok: true, hasInvalidated: true, invalidatedRkey: extra.rkey });
  throwIfFailed(await a.cq.next(WAIT));
  a.qp.postSend({ opcode: 'RDMA_READ', sgList: a.mr.sge(0, 1), remoteAddr: extra.iova, rkey: extra.rkey });
  expect(await a.cq.next(WAIT)).toMatchObject({ statusName: 'REM_ACCESS_ERR' });
});

test('thousands of messages pass in both directions at once', async () => {
  await using pair = await connectedPair({ qp: { maxSendWr: 64, maxRecvWr: 64 } });
  const { a, b } = pair;
  const count = 2000;
  const side = async (end: typeof a) => {
    for (let i = 0; i < 32; i++) end.qp.postRecv({ sgList: end.mr.sge(i * 64, 64) });
    let sent = 0;
    let received = 0;
    for (let i = 0; i < 16; i++) end.qp.postSend({ wrId: sent++, opcode: 'SEND', sgList: end.mr.sge(4096, 60) });
    let acknowledged = 0;
    for await (const wc of end.cq) {
      throwIfFailed(wc);
      if (wc.opcode === WcOpcode.RECV) {
        received++;
        end.qp.postRecv({ sgList: end.mr.sge(0, 64) });
      } else {
        acknowledged++;
        if (sent < count) end.qp.postSend({ wrId: sent++, opcode: 'SEND', sgList: end.mr.sge(4096, 60) });
      }
      if (received === count && acknowledged === count) return;
    }
  };
  await Promise.all([side(a), side(b)]);
});
