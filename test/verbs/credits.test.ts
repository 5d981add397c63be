// End-to-end flow control through the API.
import { setImmediate as turn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { MemoryHub, type Qp } from '../../src/index.js';
import { connectedPair, endOn, openOn } from './pair.js';

const WAIT = { timeout: 20_000 };
// Slow timers, so that a sender that waits for a credit update does not retransmit.
const PATIENT = { timeout: 20, adaptiveRetransmission: false };

test('a requester with credits waits for a slow receiver with at most one RNR NAK', async () => {
  await using pair = await connectedPair({ connect: { ...PATIENT, flowControl: true } });
  const { a, b } = pair;
  const count = 50;
  for (let wrId = 0; wrId < count; wrId++)
    a.qp.postSend({ wrId, opcode: 'SEND', sgList: Buffer.from(`message ${wrId}`) });
  b.qp.postRecv({ wrId: 0, sgList: b.mr.sge(0, 64) });
  for (let wrId = 0; wrId < count; wrId++) {
    expect(await b.cq.next(WAIT)).toMatchObject({ wrId, ok: true });
    for (let turns = 0; turns < 3; turns++) await turn();
    b.qp.postRecv({ wrId: wrId + 1, sgList: b.mr.sge(0, 64) });
  }
  for (let wrId = 0; wrId < count; wrId++) expect(await a.cq.next(WAIT)).toMatchObject({ wrId, ok: true });
  const { rcvd_rnr_err, retransmits, rc_crwaits } = a.qp.counters();
  // The first message is sent without a credit: the peer had no receive yet.
  expect([(rcvd_rnr_err as number) <= 1, (retransmits as number) <= 1]).toEqual([true, true]);
  expect(rc_crwaits).toBeGreaterThan(count / 2);
  expect(b.qp.counters().send_rnr_err).toBe(rcvd_rnr_err);
});

test('query has the credits of the peer, and whether requests wait for them', async () => {
  await using pair = await connectedPair({ connect: { ...PATIENT, flowControl: true } });
  const { a, b } = pair;
  const { qp } = a;
  expect(qp.query().progress).toMatchObject({ waitsForCredits: false });
  expect(qp.query().progress).not.toHaveProperty('credits');
  b.qp.postRecv([{ wrId: 1 }, { wrId: 2 }, { wrId: 3 }]);
  qp.postSend({ opcode: 'SEND' });
  await a.cq.next(WAIT);
  expect(qp.query().progress).toMatchObject({ credits: 2, waitsForCredits: false });
  qp.postSend([{ opcode: 'SEND' }, { opcode: 'SEND' }, { wrId: 4, opcode: 'SEND' }]);
  await a.cq.next(WAIT);
  await a.cq.next(WAIT);
  expect(qp.query().progress).toMatchObject({ credits: 0, waitsForCredits: true, sendPending: 1 });
  expect(qp.counters().rc_crwaits).toBe(1);
  await qp.modify({ state: 'ERR' });
  const wc = await a.cq.next(WAIT);
  expect(wc).toMatchObject({ wrId: 4, statusName: 'WR_FLUSH_ERR' });
  expect(wc.explain().likelyCauses[0]).toMatch(
    /waiting for credits \(flowControl\): the peer has advertised no receive/,
  );
});

test('credits are off by default, work at one end alone, and can be switched at any time', async () => {
  await using pair = await connectedPair({ connect: PATIENT });
  const { a, b } = pair;
  expect(a.qp.flowControl).toBe(false);
  a.qp.flowControl = true;
  // The other end advertises no limit.
  for (let wrId = 0; wrId < 4; wrId++) b.qp.postRecv({ wrId });
  for (let wrId = 0; wrId < 4; wrId++) a.qp.postSend({ wrId, opcode: 'SEND' });
  for (let wrId = 0; wrId < 4; wrId++) await a.cq.next(WAIT);
  expect(a.qp.query().progress).not.toHaveProperty('credits');
  b.qp.flowControl = true;
  b.qp.postRecv({ wrId: 4 });
  a.qp.postSend({ opcode: 'SEND' });
  await a.cq.next(WAIT);
  expect(a.qp.query().progress).toMatchObject({ credits: 0 });
  a.qp.postSend({ wrId: 5, opcode: 'RDMA_WRITE_WITH_IMM', immData: 1, remoteAddr: 0, rkey: 0 });
  await turn();
  expect(a.qp.query().progress.waitsForCredits).toBe(true);
  b.qp.postRecv({ wrId: 5 });
  expect(await a.cq.next(WAIT)).toMatchObject({ wrId: 5, ok: true });
  a.qp.flowControl = false;
  expect(a.qp.query().progress).toMatchObject({ waitsForCredits: false });
  expect(a.qp.flowControl).toBe(false);
});

test('a switch that is no boolean is refused', async () => {
  const device = await openOn(new MemoryHub());
  const { qp, pd, cq } = await endOn(device);
  expect(() => {
    (qp as { flowControl: unknown }).flowControl = 1;
  }).toThrow('flowControl is 1, must be true or false');
  const ud: Qp = await pd.createQp({ sendCq: cq, type: 'UD' });
  expect(() => {
    ud.flowControl = true;
  }).toThrow(/^EINVAL: qp .* has type UD: only RC has credits/);
  expect(ud.flowControl).toBe(false);
  await device.close({ force: true });
});
