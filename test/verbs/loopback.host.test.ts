// The same verbs over the kernel's own network: two devices on UDP sockets of the loopback interface, no privileges.
import { expect } from 'vitest';
import { openDevice, throwIfFailed } from '../../src/index.js';
import { addonPrivilege, testIf } from '../kit/privileges.js';
import { ALL, endOn, pattern } from './pair.js';

const SIZE = 300_001;
const WAIT = { timeout: 20_000 };

testIf(addonPrivilege(), 'SEND, WRITE, READ and atomics over udp on loopback', async () => {
  const open = (address: string) => openDevice({ link: 'udp', addresses: [address], memoryBytes: 2 ** 25 });
  await using here = await open('127.47.91.1');
  await using there = await open('127.47.91.2');
  expect(here.notes.join('\n')).toMatch(/link udp on lo/);
  expect(here.queryPort()).toMatchObject({ state: 'ACTIVE', activeMtu: 4096 });
  const a = await endOn(here);
  const b = await endOn(there);
  await a.qp.connect(b.qp.endpoint(), { access: ALL });
  await b.qp.connect(a.qp.endpoint(), { access: ALL });
  const from = await a.pd.regMr(2 * SIZE, { access: ALL });
  const to = await b.pd.regMr(SIZE, { access: ALL });
  pattern(SIZE).copy(from.buffer);

  a.qp.postSend({ opcode: 'RDMA_WRITE', sgList: from.sge(0, SIZE), remoteAddr: to.iova, rkey: to.rkey });
  throwIfFailed(await a.cq.next(WAIT));
  expect(to.buffer.equals(pattern(SIZE))).toBe(true);

  a.qp.postSend({ opcode: 'RDMA_READ', sgList: from.sge(SIZE, SIZE), remoteAddr: to.iova, rkey: to.rkey });
  throwIfFailed(await a.cq.next(WAIT));
  expect(from.buffer.subarray(SIZE).equals(pattern(SIZE))).toBe(true);

  to.buffer.writeBigUInt64LE(5n, 8);
  const target = { remoteAddr: Number(to.iova) + 8, rkey: to.rkey };
  a.qp.postSend({ opcode: 'ATOMIC_FETCH_AND_ADD', sgList: a.mr.sge(0, 8), ...target, compareAdd: 6n });
  throwIfFailed(await a.cq.next(WAIT));
  expect([a.mr.buffer.readBigUInt64LE(0), to.buffer.readBigUInt64LE(8)]).toEqual([5n, 11n]);

  b.qp.postRecv({ sgList: b.mr.sge(0, 64) });
  a.qp.postSend({ opcode: 'SEND_WITH_IMM', sgList: Buffer.from('over the kernel'), immData: 1 });
  expect(await b.cq.next(WAIT)).toMatchObject({ ok: true, byteLen: 15, immData: 1 });
  expect(b.device.counters().drop_icrc).toBe(0);
});
