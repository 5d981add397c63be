// Unreliable connections between two devices of one process.
import { expect, test } from 'vitest';
import { MemoryHub, WcStatus } from '../../src/index.js';
import { ALL, connectedPair, endOn, openOn, pattern } from './pair.js';

const WAIT = { timeout: 20_000 };
const UC = { qp: { type: 'UC' } } as const;

test('UC carries SEND and RDMA WRITE with and without immediate data', async () => {
  await using pair = await connectedPair(UC);
  const { a, b } = pair;
  expect(a.qp.type).toBe('UC');
  pattern(20000).copy(a.mr.buffer);
  b.qp.postRecv([{ wrId: 1, sgList: b.mr.sge(0, 20000) }, { wrId: 2 }]);
  a.qp.postSend({ wrId: 9, opcode: 'SEND', sgList: a.mr.sge(0, 20000) });
  expect(await a.cq.next(WAIT)).toMatchObject({ wrId: 9, ok: true });
  expect(await b.cq.next(WAIT)).toMatchObject({ wrId: 1, ok: true, byteLen: 20000, srcQp: a.qp.qpNum });
  expect(b.mr.buffer.subarray(0, 20000).equals(pattern(20000))).toBe(true);
  const { addr, rkey } = b.mr.remote;
  const to = { remoteAddr: Number(addr) + 30000, rkey };
  a.qp.postSend({ opcode: 'RDMA_WRITE_WITH_IMM', sgList: a.mr.sge(0, 5000), ...to, immData: 77 });
  expect(await b.cq.next(WAIT)).toMatchObject({
    wrId: 2,
    opcodeName: 'RECV_RDMA_WITH_IMM',
    byteLen: 5000,
    immData: 77,
  });
  expect(b.mr.buffer.subarray(30000, 35000).equals(pattern(5000))).toBe(true);
});

test('UC refuses READs and atomics', async () => {
  await using pair = await connectedPair(UC);
  const { a, b } = pair;
  const { addr: remoteAddr, rkey } = b.mr.remote;
  expect(() => a.qp.postSend({ opcode: 'RDMA_READ', sgList: a.mr.sge(0, 4), remoteAddr, rkey })).toThrow(
    /^EOPNOTSUPP: qp .* does not support RDMA_READ/,
  );
});

test('UC loses a message without a receive, and delivers the next one', async () => {
  await using pair = await connectedPair(UC);
  const { a, b } = pair;
  a.qp.postSend({ wrId: 1, opcode: 'SEND', sgList: Buffer.from('lost') });
  expect(await a.cq.next(WAIT)).toMatchObject({ wrId: 1, ok: true });
  await expect(b.cq.next({ timeout: 50 })).rejects.toThrow('ETIMEDOUT');
  expect(b.qp.counters().drop_unreliable_refused).toBe(1);
  b.qp.postRecv({ wrId: 2, sgList: b.mr.sge(0, 64) });
  a.qp.postSend({ wrId: 2, opcode: 'SEND', sgList: Buffer.from('found') });
  expect(await b.cq.next(WAIT)).toMatchObject({ wrId: 2, byteLen: 5 });
});

test('UC delivers whole messages only over a network that loses packets', async () => {
  await using pair = await connectedPair({ ...UC, open: { fault: { seed: 3, tx: { drop: 0.1, reorder: 0.05 } } } });
  const { a, b } = pair;
  const size = 9000;
  for (let i = 0; i < 40; i++) b.qp.postRecv({ wrId: i, sgList: b.mr.sge((i % 7) * size, size) });
  let arrived = 0;
  for (let i = 0; i < 40; i++) {
    a.mr.buffer.fill(i + 1, 0, size);
    a.qp.postSend({ opcode: 'SEND_WITH_IMM', immData: i + 1, sgList: a.mr.sge(0, size) });
    await a.cq.next(WAIT);
    for (let wc = await b.cq.next({ timeout: 20 }).catch(() => undefined); wc; wc = undefined) {
      arrived++;
      expect(wc).toMatchObject({ ok: true, byteLen: size });
      const { immData } = wc;
      const got = b.mr.buffer.subarray((wc.wrId % 7) * size, (wc.wrId % 7) * size + size);
      expect(got.every((byte) => byte === immData)).toBe(true);
    }
  }
  expect(arrived).toBeGreaterThan(5);
  expect(arrived).toBeLessThan(40);
});

test('a failed send takes UC to SQE, which receives on, and modify takes it back', async () => {
  await using pair = await connectedPair(UC);
  const { a, b } = pair;
  b.qp.postRecv([{}, { sgList: b.mr.sge(0, 64) }]);
  a.qp.postSend([
    { wrId: 1, opcode: 'SEND', sgList: { addr: a.mr.addr, length: 4, lkey: a.mr.lkey ^ 1 } },
    { wrId: 2, opcode: 'SEND' },
  ]);
  expect(await a.cq.next(WAIT)).toMatchObject({ wrId: 1, status: WcStatus.LOC_PROT_ERR });
  expect(await a.cq.next(WAIT)).toMatchObject({ wrId: 2, status: WcStatus.WR_FLUSH_ERR });
  expect(a.qp.state).toBe('SQE');
  await a.qp.modify({ state: 'RTS', curQpState: 'SQE' });
  a.qp.postSend({ opcode: 'SEND' });
  expect(await b.cq.next(WAIT)).toMatchObject({ ok: true, byteLen: 0 });
});

test('connect of UC ignores the options that RC alone has', async () => {
  const hub = new MemoryHub();
  const [a, b] = [await endOn(await openOn(hub), { type: 'UC' }), await endOn(await openOn(hub), { type: 'UC' })];
  await a.qp.connect(b.qp.endpoint(), { access: ALL, timeout: 14 });
  expect(a.qp.query()).toMatchObject({ type: 'UC', state: 'RTS', timeout: 0, destQpNum: b.qp.qpNum });
  await a.device.close({ force: true });
  await b.device.close({ force: true });
});
