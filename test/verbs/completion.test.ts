// Getting completions: polling, waiting, events; and explanations of failed ones.
import { once } from 'node:events';
import { expect, test } from 'vitest';
import { type AsyncEvent, throwIfFailed, Wc, WcError } from '../../src/index.js';
import { ALL, connectedPair, type End } from './pair.js';

const WAIT = { timeout: 20_000 };

function write(from: End, to: End, wrId = 0): void {
  from.qp.postSend({
    wrId,
    opcode: 'RDMA_WRITE',
    sgList: from.mr.sge(0, 8),
    remoteAddr: to.mr.iova,
    rkey: to.mr.rkey,
  });
}

/** Polls like a program that has other work to do in between. */
async function pollUntil(end: End, into: Wc[]): Promise<number> {
  for (const until = performance.now() + 10_000; performance.now() < until; ) {
    const count = end.cq.poll(into);
    if (count > 0) return count;
    await new Promise((resolve) => setImmediate(resolve));
  }
  return 0;
}

test('poll fills the given objects, and no more than there are completions', async () => {
  await using pair = await connectedPair();
  const { a, b } = pair;
  const wcs = a.cq.createWcs(3);
  const same = [...wcs];
  for (let i = 0; i < 5; i++) write(a, b, i);
  const seen: number[] = [];
  while (seen.length < 5) {
    const count = await pollUntil(a, wcs);
    expect(count).toBeGreaterThan(0);
    for (const wc of wcs.slice(0, count)) seen.push(wc.wrId);
  }
  expect(seen).toEqual([0, 1, 2, 3, 4]);
  expect(wcs.every((wc, i) => wc === same[i])).toBe(true);
  expect(a.cq.poll(wcs)).toBe(0);
});

test('a copy of a completion stays as it is when the original is polled into again', async () => {
  await using pair = await connectedPair();
  const { a, b } = pair;
  const wcs = a.cq.createWcs(1);
  write(a, b, 1);
  await pollUntil(a, wcs);
  const copy = wcs[0]?.copy();
  write(a, b, 2);
  await pollUntil(a, wcs);
  expect([copy?.wrId, wcs[0]?.wrId]).toEqual([1, 2]);
  expect(copy).toBeInstanceOf(Wc);
  expect(copy?.explain().summary).toContain('succeeded');
});

test('for await gives every completion an object of its own', async () => {
  await using pair = await connectedPair();
  const { a, b } = pair;
  for (let i = 0; i < 10; i++) write(a, b, i);
  const got: Wc[] = [];
  for await (const wc of a.cq) {
    got.push(wc);
    if (got.length === 10) break;
  }
  expect(got.map((wc) => wc.wrId)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  expect(new Set(got).size).toBe(10);
});

test('calls of next are served in the order of the calls', async () => {
  await using pair = await connectedPair();
  const { a, b } = pair;
  const waiting = [a.cq.next(WAIT), a.cq.next(WAIT), a.cq.next(WAIT)];
  for (let i = 0; i < 3; i++) write(a, b, i);
  expect((await Promise.all(waiting)).map((wc) => wc.wrId)).toEqual([0, 1, 2]);
});

test('next ends by its signal, by its timeout, and when the queue is closed', async () => {
  await using pair = await connectedPair();
  const { a, b } = pair;
  const controller = new AbortController();
  const aborted = a.cq.next({ signal: controller.signal });
  setTimeout(() => controller.abort(), 5);
  await expect(aborted).rejects.toMatchObject({ name: 'AbortError' });
  await expect(a.cq.next({ signal: AbortSignal.abort('enough') })).rejects.toBe('enough');
  await expect(a.cq.next({ timeout: 5 })).rejects.toThrow(/ETIMEDOUT: no completion on cq \d+ within 5 ms/);
  await expect(a.cq.next({ timeout: -1 })).rejects.toThrow(/timeout is -1/);
  const idle = await a.device.createCq();
  const next = idle.next();
  const loop = (async () => {
    for await (const _ of idle) throw new Error('nothing should come');
    return 'ended';
  })();
  await idle.close();
  await expect(next).rejects.toMatchObject({ code: 'ECANCELED' });
  expect(await loop).toBe('ended');
  // A cancelled waiter must not consume a completion.
  write(a, b, 5);
  expect(await a.cq.next(WAIT)).toMatchObject({ wrId: 5 });
});

test('an armed CQ notifies once', async () => {
  await using pair = await connectedPair();
  const { a, b } = pair;
  let rings = 0;
  a.cq.on('completion', () => rings++);
  a.cq.arm();
  const ring = once(a.cq, 'completion');
  write(a, b);
  write(a, b);
  await ring;
  await pollUntil(a, a.cq.createWcs(2));
  await new Promise((resolve) => setTimeout(resolve, 20));
  expect(rings).toBe(1);
});

test('a CQ armed for solicited completions does not notify of others', async () => {
  await using pair = await connectedPair();
  const { a, b } = pair;
  b.qp.postRecv([{ sgList: b.mr.sge(0, 8) }, { sgList: b.mr.sge(0, 8) }]);
  let rings = 0;
  b.cq.on('completion', () => rings++);
  b.cq.arm(true);
  a.qp.postSend({ opcode: 'SEND', sgList: Buffer.from('psst') });
  await a.cq.next(WAIT);
  await new Promise((resolve) => setTimeout(resolve, 10));
  expect(rings).toBe(0);
  a.qp.postSend({ opcode: 'SEND', sgList: Buffer.from('hey'), solicited: true });
  await once(b.cq, 'completion');
  expect(b.cq.poll(b.cq.createWcs(8))).toBe(2);
});

test('a WRITE with a wrong key completes with REM_ACCESS_ERR and raises QP_ACCESS_ERR at the peer', async () => {
  await using pair = await connectedPair();
  const { a, b } = pair;
  const events: AsyncEvent[] = [];
  b.device.on('event', (event) => events.push(event));
  const told = once(b.qp, 'event');
  b.qp.postRecv({ wrId: 77 });
  a.qp.postSend([
    { wrId: 1, opcode: 'RDMA_READ', sgList: a.mr.sge(0, 8), remoteAddr: b.mr.iova, rkey: (b.mr.rkey ^ 1) >>> 0 },
    { wrId: 2, opcode: 'SEND' },
  ]);
  const wc = await a.cq.next(WAIT);
  expect(wc).toMatchObject({ wrId: 1, ok: false, statusName: 'REM_ACCESS_ERR' });
  const { summary, syndrome, peer, likelyCauses, timers } = wc.explain();
  const address = b.device.gids[b.device.chooseGid().index]?.address;
  expect(summary).toContain(`to ${address} qp 0x${b.qp.qpNum.toString(16)} failed with REM_ACCESS_ERR`);
  expect(syndrome).toBe('NAK: remote access error (0x62)');
  expect(peer).toEqual({ address, qpNum: b.qp.qpNum });
  expect(likelyCauses[0]).toMatch(/rkey is wrong/);
  expect(timers.ackTimeoutMs).toBeCloseTo(67.1, 1);
  expect(() => throwIfFailed(wc)).toThrow(WcError);
  expect(await a.cq.next(WAIT)).toMatchObject({ wrId: 2, statusName: 'WR_FLUSH_ERR' });
  expect(a.qp.state).toBe('ERR');
  await told;
  expect(await b.cq.next(WAIT)).toMatchObject({ wrId: 77, statusName: 'WR_FLUSH_ERR' });
  expect(events).toEqual([{ type: 'QP_ACCESS_ERR', qp: b.qp }]);
  expect(b.qp.state).toBe('ERR');
});

test('a SEND without a receive completes with RNR_RETRY_EXC_ERR when the retries are used up', async () => {
  await using pair = await connectedPair({ connect: { access: ALL, rnrRetry: 2, minRnrTimer: 1 } });
  const { a } = pair;
  a.qp.postSend({ opcode: 'SEND' });
  const wc = await a.cq.next(WAIT);
  expect(wc.statusName).toBe('RNR_RETRY_EXC_ERR');
  expect(wc.explain()).toMatchObject({
    syndrome: expect.stringMatching(/^RNR NAK: no receive posted, timer code 1/),
    timers: { rnrRetry: 2 },
  });
  expect(wc.rnrs).toBeGreaterThanOrEqual(2);
});

test('the explanation of a request to a vanished peer names its silence', async () => {
  await using pair = await connectedPair({ connect: { access: ALL, timeout: 8, retryCnt: 2 } });
  const { a, b } = pair;
  await b.qp.modify({ state: 'RESET' });
  write(a, b);
  const wc = await a.cq.next(WAIT);
  expect(wc.statusName).toBe('RETRY_EXC_ERR');
  const { likelyCauses, timers, syndrome } = wc.explain();
  expect(syndrome).toBe('no answer');
  expect(timers).toMatchObject({ timeouts: 3, retryCnt: 2 });
  expect(likelyCauses.join('\n')).toMatch(/nothing at all came back/);
});

test('an overrun CQ raises CQ_ERR, and poll throws when it is empty', async () => {
  await using pair = await connectedPair({ qp: { maxSendWr: 64 } });
  const { a, b } = pair;
  const small = await a.device.createCq({ cqe: 2 });
  const qp = await a.pd.createQp({ sendCq: small });
  const peer = await b.pd.createQp({ sendCq: b.cq });
  await qp.connect(peer.endpoint());
  await peer.connect(qp.endpoint(), { access: ALL });
  const told = once(small, 'event');
  const { iova, rkey } = b.mr;
  for (let i = 0; i < 32; i++) qp.postSend({ opcode: 'RDMA_WRITE', sgList: a.mr.sge(0, 8), remoteAddr: iova, rkey });
  expect(await told).toEqual([{ type: 'CQ_ERR', cq: small }]);
  const wcs = small.createWcs(64);
  expect(small.poll(wcs)).toBeGreaterThanOrEqual(2);
  expect(() => small.poll(wcs)).toThrow(/EIO: cq \d+ overran/);
  await expect(small.next()).rejects.toThrow(/overran/);
});

test('resize keeps pending completions, and is refused when they do not fit', async () => {
  await using pair = await connectedPair();
  const { a, b } = pair;
  await a.cq.resize(2);
  expect(a.cq.cqe).toBe(2);
  write(a, b, 1);
  write(a, b, 2);
  await waitUntilDone(a);
  await expect(a.cq.resize(1)).rejects.toThrow(
    /^EINVAL: cqe is 1, must be at least the 2 pending completions of cq \d+/,
  );
  await expect(a.cq.resize(0)).rejects.toThrow(RangeError);
  await expect(a.cq.resize(2 ** 22)).rejects.toThrow(/^ENOMEM: no memory to resize cq \d+ to 4194304 completions/);
  expect(a.cq.cqe).toBe(2);
  await a.cq.resize(64);
  for (let wrId = 3; wrId <= 40; wrId++) write(a, b, wrId);
  for (let wrId = 1; wrId <= 40; wrId++) expect(await a.cq.next(WAIT)).toMatchObject({ wrId, ok: true });
});

/** Waits until all requests are complete, without polling their completions. */
async function waitUntilDone(end: End): Promise<void> {
  while (end.qp.query().progress.sendPending > 0) await new Promise((resolve) => setImmediate(resolve));
}
