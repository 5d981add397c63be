// Warnings of the process about what would otherwise fail in silence.
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { MemoryHub } from '../../src/index.js';
import { ALL, connectedPair, endOn, openOn } from './pair.js';

interface Warning {
  readonly code: string;
  readonly message: string;
}

let warnings: Warning[] = [];
const onWarning = (warning: Error) => warnings.push(warning as unknown as Warning);
beforeEach(() => {
  warnings = [];
  process.on('warning', onWarning);
});
afterEach(() => void process.off('warning', onWarning));

const codes = () => warnings.map(({ code }) => code).filter((code) => code.startsWith('WASM_ROCE'));
test('a queue pair that has no receive for a second raises an event each time, and a warning once', async () => {
  await using pair = await connectedPair();
  const { a, b } = pair;
  const events: string[] = [];
  b.qp.on('event', ({ type }) => events.push(type));
  for (let i = 1; i <= 2; i++) {
    a.qp.postSend({ opcode: 'SEND', sgList: a.mr.sge(0, 64) });
    await sleep(900);
    expect(events.filter((type) => type === 'QP_NO_RECEIVE').length).toBe(i - 1);
    await sleep(1200);
    expect(events.filter((type) => type === 'QP_NO_RECEIVE').length).toBe(i);
    b.qp.postRecv({ sgList: b.mr.sge(0, 64) });
    expect((await b.cq.next()).ok).toBe(true);
  }
  expect(codes()).toEqual(['WASM_ROCE_NO_RECEIVE']);
  expect(warnings[0]?.message).toContain(`${b.qp} has no receive: post some with qp.postRecv, before the peer sends`);
});

test('a shared receive queue that is empty is named', async () => {
  const hub = new MemoryHub();
  const [a, b] = [await endOn(await openOn(hub)), await endOn(await openOn(hub, { seed: 2 }))];
  const srq = await b.pd.createSrq();
  const qp = await b.pd.createQp({ sendCq: b.cq, srq });
  await a.qp.connect(qp.endpoint(), { access: ALL });
  await qp.connect(a.qp.endpoint(), { access: ALL });
  a.qp.postSend({ opcode: 'SEND', sgList: a.mr.sge(0, 64) });
  await sleep(2000);
  expect(warnings[0]?.message).toContain(`${srq} of ${qp} has no receive: post some with srq.postRecv`);
  for (const { device } of [a, b]) await device.close({ force: true });
});

test('a queue pair whose receives the library posts lets its peer wait without a warning', async () => {
  await using pair = await connectedPair();
  const { a, b } = pair;
  b.qp.postedByLibrary();
  a.qp.postSend({ opcode: 'SEND', sgList: a.mr.sge(0, 64) });
  await sleep(2000);
  expect([b.qp.counters().send_rnr_err !== 0, codes()]).toEqual([true, []]);
});

test('a device warns once of packets whose ICRC never fits', async () => {
  const hub = new MemoryHub();
  const device = await openOn(hub, { fault: { rx: { corrupt: 1 } } });
  const peer = await openOn(hub, { seed: 2 });
  const [a, b] = [await endOn(device), await endOn(peer)];
  await a.qp.connect(b.qp.endpoint(), { access: ALL });
  await b.qp.connect(a.qp.endpoint(), { access: ALL, retryCnt: Number.POSITIVE_INFINITY });
  b.qp.postSend({
    opcode: 'RDMA_WRITE',
    sgList: b.mr.sge(0, 64),
    ...a.mr.remote,
    remoteAddr: a.mr.remote.addr,
  } as never);
  await sleep(60_000);
  expect(codes()).toEqual(['WASM_ROCE_ICRC']);
  expect(warnings[0]?.message).toContain(`drops the packets for ${a.qp}: none has had the right ICRC (drop_icrc)`);
  for (const each of [device, peer]) await each.close({ force: true });
});
