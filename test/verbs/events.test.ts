// Asynchronous events of queue pairs, emitted by the queue pair and by its device.
import { expect, test } from 'vitest';
import { EventType } from '../../src/device/codes.js';
import { type AsyncEvent, MemoryHub, type Qp, throwIfFailed } from '../../src/index.js';
import { eventually } from '../kit/eventually.js';
import { connectedPair, type End, endOn, openOn } from './pair.js';

const WAIT = { timeout: 20_000 };

/** Events of a queue pair, as emitted by both. */
function heard({ device, qp }: End): string[] {
  const types: string[] = [];
  qp.on('event', ({ type }: AsyncEvent) => types.push(type));
  device.on('event', (event: AsyncEvent) => 'qp' in event && event.qp === qp && types.push(`device: ${event.type}`));
  return types;
}
const both = (type: string) => [type, `device: ${type}`];

/** Moves a queue pair to RTR only. */
async function toRtr(qp: Qp, { qp: peer }: End): Promise<void> {
  const { qpNum: qpn, psn, gid } = peer.endpoint();
  await qp.modify({ state: 'INIT', pkeyIndex: 0, portNum: 1, qpAccessFlags: 0 });
  await qp.modify({
    ...{ state: 'RTR', ahAttr: { grh: { dgid: gid } }, pathMtu: 1024, destQpNum: qpn, rqPsn: psn },
    ...{ maxDestRdAtomic: 1, minRnrTimer: 12 },
  });
}

test('a wait for an event ends by its signal, by its timeout, or with the device', async () => {
  const hub = new MemoryHub();
  await using one = await openOn(hub);
  const other = await openOn(hub, { seed: 2 });
  const [a, b] = [await endOn(one), await endOn(other)];
  await toRtr(b.qp, a);
  b.qp.postRecv({ sgList: b.mr.sge(0, 100) });
  await a.qp.connect(b.qp.endpoint(), { pathMtu: 1024 });
  const next = other.nextEvent(WAIT);
  a.qp.postSend({ opcode: 'SEND' });
  const event = await next;
  expect([event.type, 'qp' in event && event.qp === b.qp]).toEqual(['COMM_EST', true]);
  await expect(other.nextEvent({ timeout: 1 })).rejects.toMatchObject({ code: 'ETIMEDOUT' });
  const reason = new Error('enough');
  const abort = new AbortController();
  const waiting = other.nextEvent({ signal: abort.signal });
  abort.abort(reason);
  await expect(waiting).rejects.toBe(reason);
  expect(other.listenerCount('event')).toBe(0);
  const last = other.nextEvent().catch((error) => error);
  await other.close({ force: true });
  expect(await last).toMatchObject({ code: 'ECANCELED' });
  await expect(other.nextEvent()).rejects.toMatchObject({ code: 'EINVAL' });
});

test('a message that arrives in RTR raises COMM_EST', async () => {
  const hub = new MemoryHub();
  await using one = await openOn(hub);
  await using other = await openOn(hub, { seed: 2 });
  const [a, b] = [await endOn(one), await endOn(other)];
  const events = heard(b);
  await toRtr(b.qp, a);
  for (let i = 0; i < 2; i++) b.qp.postRecv({ sgList: b.mr.sge(0, 100) });
  await a.qp.connect(b.qp.endpoint(), { pathMtu: 1024 });
  for (const byte of ['1', '2']) a.qp.postSend({ opcode: 'SEND', sgList: Buffer.from(byte) });
  throwIfFailed(await a.cq.next(WAIT));
  expect(await b.cq.next(WAIT)).toMatchObject({ ok: true, byteLen: 1 });
  await eventually(() => expect(events).toEqual(both('COMM_EST')));
  await one.close({ force: true });
  await other.close({ force: true });
});

// MISSED is tested in test/host/cq.
test('a CQ is polled although its event found no room in the ring', async () => {
  const hub = new MemoryHub();
  await using one = await openOn(hub);
  const { qp, cq } = await endOn(one);
  await qp.modify({ state: 'INIT', pkeyIndex: 0, portNum: 1, qpAccessFlags: 0 });
  qp.postRecv({ wrId: 7 });
  const told = cq.next(WAIT);
  const { onEvent } = one.engine;
  const missed = new Promise((resolve) => {
    one.engine.onEvent = resolve;
  });
  await qp.modify({ state: 'ERR' });
  expect(await missed).toBe(EventType.COMPLETION);
  onEvent(EventType.MISSED, 0);
  expect(await told).toMatchObject({ wrId: 7, statusName: 'WR_FLUSH_ERR' });
  await one.close({ force: true });
});

test('a queue pair in SQD finishes begun requests, raises SQ_DRAINED, and keeps later ones until RTS', async () => {
  await using pair = await connectedPair();
  const { a, b } = pair;
  const events = heard(a);
  const write = (wrId: number, length: number) =>
    a.qp.postSend({
      ...{ opcode: 'RDMA_WRITE', wrId, sgList: a.mr.sge(0, length) },
      ...{ remoteAddr: b.mr.remote.addr, rkey: b.mr.remote.rkey },
    });
  a.mr.buffer.fill(7);
  write(1, 60_000);
  await a.qp.modify({ state: 'SQD', enSqdAsyncNotify: true });
  write(2, 10);
  await eventually(() => expect(events).toEqual(both('SQ_DRAINED')));
  expect(a.qp.query()).toMatchObject({ state: 'SQD' });
  await a.qp.modify({ state: 'SQD', timeout: 15 });
  await a.qp.modify({ state: 'RTS' });
  expect([(await a.cq.next(WAIT)).wrId, (await a.cq.next(WAIT)).wrId]).toEqual([1, 2]);
  expect(b.mr.buffer.subarray(0, 60_000).every((byte) => byte === 7)).toBe(true);
  expect(events).toHaveLength(2);
});

test('a CQ that overruns raises CQ_ERR, and QP_FATAL for its queue pairs', async () => {
  await using pair = await connectedPair();
  const { a, b } = pair;
  const small = await b.device.createCq({ cqe: 1 });
  const [from, to] = [await a.pd.createQp({ sendCq: a.cq }), await b.pd.createQp({ sendCq: small })];
  const events = heard({ ...b, qp: to });
  const ofQueue: string[] = [];
  small.on('event', ({ type }: AsyncEvent) => ofQueue.push(type));
  await from.connect(to.endpoint(), { timeout: 8, retryCnt: 1 });
  await to.connect(from.endpoint());
  const many = small.cqe + 1;
  for (let i = 0; i < many; i++) {
    to.postRecv({ sgList: b.mr.sge(0, 8) });
    from.postSend({ opcode: 'SEND', sgList: Buffer.from('x') });
  }
  await eventually(() => expect(events).toEqual(both('QP_FATAL')));
  expect(ofQueue).toEqual(['CQ_ERR']);
  expect(to.state).toBe('ERR');
});

test('an invalid request of the peer raises QP_REQ_ERR', async () => {
  await using pair = await connectedPair();
  const { a, b } = pair;
  const events = heard(b);
  const remoteAddr = Number(b.mr.remote.addr) + 1;
  a.qp.postSend({
    opcode: 'ATOMIC_FETCH_AND_ADD',
    sgList: a.mr.sge(0, 8),
    remoteAddr,
    rkey: b.mr.rkey,
    compareAdd: 1n,
  });
  expect(await a.cq.next(WAIT)).toMatchObject({ statusName: 'REM_INV_REQ_ERR' });
  await eventually(() => expect(events).toEqual(both('QP_REQ_ERR')));
});
