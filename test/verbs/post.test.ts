// Wrong work requests are refused before they reach the card, and the message names value and rule.
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { RecvWr, SendWr } from '../../src/index.js';
import { connectedPair, type End, type Pair } from './pair.js';

let pair: Pair;
let a: End;
let remote: { remoteAddr: number; rkey: number };

beforeAll(async () => {
  pair = await connectedPair({ qp: { maxSendWr: 4, maxRecvWr: 4, maxSendSge: 2, maxRecvSge: 2, maxInlineData: 32 } });
  a = pair.a;
  remote = { remoteAddr: Number(pair.b.mr.iova), rkey: pair.b.mr.rkey };
});
afterAll(() => pair[Symbol.asyncDispose]());

const send = (wr: object) => () => a.qp.postSend(wr as SendWr);
const recv = (wr: object) => () => a.qp.postRecv(wr as RecvWr);

test.each([
  [{}, /^opcode is undefined, must be one of SEND, SEND_WITH_IMM, /],
  [{ opcode: 'WRITE' }, /^opcode is 'WRITE', must be one of/],
  [{ opcode: 'toString' }, /^opcode is 'toString'/],
  [{ opcode: 'SEND', wrId: 1.5 }, /^wrId is 1.5, must be an integer of magnitude below 2\^53/],
  [{ opcode: 'SEND', wrId: 7n }, /^wrId is 7n, must be an integer/],
  [{ opcode: 'SEND', sgList: 'text' }, /^sgList is 'text', must be a scatter\/gather element or an array/],
  [{ opcode: 'SEND', sgList: {} }, /^sgList\[0\]\.addr is undefined, must be an integer/],
  [{ opcode: 'SEND', sgList: [{ addr: 0, length: '1', lkey: 1 }] }, /^sgList\[0\]\.length is '1', must be an integer/],
  [{ opcode: 'RDMA_WRITE' }, /^remoteAddr is undefined, must be a bigint or an integer below 2\^53/],
  [{ opcode: 'RDMA_WRITE', remoteAddr: 0 }, /^rkey is undefined, must be an integer/],
  [{ opcode: 'SEND_WITH_IMM' }, /^immData is undefined, must be an integer/],
  [{ opcode: 'SEND_WITH_INV' }, /^invalidateRkey is undefined/],
  [{ opcode: 'LOCAL_INV' }, /^invalidateRkey is undefined/],
] as const)('a TypeError for request %#', (wr, message) => {
  expect(send(wr)).toThrow(TypeError);
  expect(send(wr)).toThrow(message);
});

test.each([
  [
    { opcode: 'SEND', sgList: { addr: -1, length: 1, lkey: 1 } },
    /^sgList\[0\]\.addr is -1, must be from 0 to 9007199254740991/,
  ],
  [
    { opcode: 'SEND', sgList: [1, 2, 3].map(() => ({ addr: 0, length: 0, lkey: 0 })) },
    /has 3 elements, must have at most maxSendSge 2 of qp /,
  ],
  [
    { opcode: 'SEND', sgList: Buffer.alloc(33) },
    /^inline data has 33 bytes, must have at most maxInlineData 32 of qp /,
  ],
  [{ opcode: 'SEND', inline: true, sgList: { addr: 2 ** 31, length: 8, lkey: 0 } }, /^sgList\[0\] ends at 2147483656/],
  [{ opcode: 'RDMA_WRITE', remoteAddr: -1, rkey: 1 }, /^remoteAddr is -1, must not be negative/],
  [{ opcode: 'RDMA_WRITE', remoteAddr: 2n ** 64n, rkey: 1 }, /^remoteAddr is 18446744073709551616n/],
  [{ opcode: 'SEND_WITH_IMM', immData: 2 ** 32 }, /^immData is 4294967296, must be from 0 to 4294967295/],
] as const)('a RangeError for request %#', (wr, message) => {
  expect(send(wr)).toThrow(RangeError);
  expect(send(wr)).toThrow(message);
});

test('postSend refuses atomics without eight bytes and bigints', () => {
  const sgList = a.mr.sge(0, 8);
  const add = { opcode: 'ATOMIC_FETCH_AND_ADD', ...remote };
  expect(send({ ...add, sgList: a.mr.sge(0, 7), compareAdd: 1n })).toThrow(
    'sgList of ATOMIC_FETCH_AND_ADD has 7 bytes, must have 8 for the original value',
  );
  expect(send({ ...add, sgList, compareAdd: 1 })).toThrow('compareAdd is 1, must be a bigint');
  expect(send({ ...add, sgList, compareAdd: 2n ** 64n })).toThrow(RangeError);
  expect(send({ opcode: 'ATOMIC_CMP_AND_SWP', ...remote, sgList, compareAdd: 1n })).toThrow('swap is undefined');
});

test('postSend refuses inline data for responses', () => {
  const inline = send({ opcode: 'RDMA_READ', ...remote, sgList: Buffer.alloc(8) });
  expect(inline).toThrow(TypeError);
  expect(inline).toThrow(/^RDMA_READ writes to sgList, which therefore cannot be inline$/);
});

test('postSend refuses more than 2 GiB', () => {
  const sgList = { addr: 0, length: 2 ** 31 + 1, lkey: 0 };
  expect(send({ opcode: 'SEND', sgList })).toThrow(
    'EMSGSIZE: SEND has 2147483649 bytes, a message must have at most 2147483648',
  );
});

test('postRecv checks its requests as postSend does', () => {
  expect(recv({ wrId: Number.NaN })).toThrow('wrId is NaN, must be an integer');
  expect(recv({ sgList: [{ addr: 0, length: 2 ** 32, lkey: 1 }] })).toThrow('sgList[0].length is 4294967296');
  expect(recv({ sgList: [1, 2, 3].map(() => a.mr.sge(0, 1)) })).toThrow(
    /has 3 elements, must have at most maxRecvSge 2 of qp /,
  );
});

test('the error of a full queue has its depth and the index of the refused request', async () => {
  const wr: SendWr = { opcode: 'RDMA_WRITE', sgList: a.mr.sge(0, 8), ...remote };
  const depth = a.qp.maxSendWr;
  const many = Array.from({ length: depth + 2 }, (_, wrId) => ({ ...wr, wrId }));
  expect(() => a.qp.postSend(many)).toThrow(
    expect.objectContaining({
      code: 'ENOMEM',
      badWr: depth,
      message: `ENOMEM: send queue of qp ${a.qp.label} is full: maxSendWr is ${depth}`,
    }),
  );
  for (let i = 0; i < depth; i++) expect(await a.cq.next({ timeout: 20_000 })).toMatchObject({ wrId: i, ok: true });
  expect(() => a.qp.postRecv(Array.from({ length: a.qp.maxRecvWr + 1 }, () => ({})))).toThrow(
    `receive queue of qp ${a.qp.label} is full: maxRecvWr is ${a.qp.maxRecvWr}`,
  );
});

test('the requests before a wrong one in an array are posted', async () => {
  const wr: SendWr = { opcode: 'RDMA_WRITE', sgList: a.mr.sge(0, 8), ...remote };
  expect(() => a.qp.postSend([{ ...wr, wrId: 11 }, { ...wr, wrId: 0.5 }, wr])).toThrow(
    expect.objectContaining({ name: 'TypeError', badWr: 1 }),
  );
  expect(await a.cq.next({ timeout: 20_000 })).toMatchObject({ wrId: 11, ok: true });
  expect(a.cq.poll(a.cq.createWcs(1))).toBe(0);
});

test('the error of an unconnected queue pair has its state', async () => {
  const qp = await a.pd.createQp({ sendCq: a.cq });
  expect(() => qp.postSend({ opcode: 'SEND' })).toThrow(
    `EINVAL: qp ${qp.label} is in state RESET, sends need RTS, SQD, SQE or ERR`,
  );
  expect(() => qp.postRecv({})).toThrow(/is in state RESET, receives need any state except RESET/);
});
