// Every object can be queried for its attributes, which come from the card where it stores them.
import { expect, test } from 'vitest';
import { MemoryHub, throwIfFailed } from '../../src/index.js';
import { connectedPair, openOn } from './pair.js';

test.each(['RC', 'UC', 'UD'] as const)(
  'a queue pair, %s: its queues have at least the room that was asked for',
  async (type) => {
    await using device = await openOn(new MemoryHub());
    const pd = await device.allocPd();
    const sendCq = await device.createCq();
    const cap = { maxSendWr: 20, maxRecvWr: 100, maxSendSge: 3, maxRecvSge: 5, maxInlineData: 70 };
    const qp = await pd.createQp({ type, sendCq, ...cap });
    const found = qp.query();
    expect(found).toMatchObject({ qpNum: qp.qpNum, type, state: 'RESET', ahAttr: undefined });
    for (const [name, asked] of Object.entries(cap)) {
      const granted = found.cap[name as keyof typeof cap];
      expect(granted, name).toBeGreaterThanOrEqual(asked);
      expect(granted, name).toBeLessThan(2 * asked + 64);
    }
    expect(found.progress).toMatchObject({ sendPending: 0, recvPending: 0 });
  },
);

test('query of completion queues and shared receive queues has their sizes and use', async () => {
  await using device = await openOn(new MemoryHub());
  const pd = await device.allocPd();
  const cq = await device.createCq({ cqe: 33 });
  expect(cq.cqe).toBe(33);
  await cq.resize(99);
  expect(cq.cqe).toBe(99);
  const srq = await pd.createSrq({ maxWr: 9, maxSge: 2, srqLimit: 4 });
  const { maxWr, ...rest } = srq.query();
  expect(maxWr).toBeGreaterThanOrEqual(9);
  expect(rest).toEqual({ maxSge: 2, srqLimit: 4, pending: 0 });
});

test('query of regions, windows and address handles has their attributes', async () => {
  await using device = await openOn(new MemoryHub());
  const pd = await device.allocPd();
  const mr = await pd.regMr(5000, { access: ['localWrite', 'remoteRead', 'mwBind'], iova: 0x12340000 });
  expect([mr.pd === pd, mr.length, Number(mr.iova)]).toEqual([true, 5000, 0x12340000]);
  expect(mr.access.toSorted()).toEqual(['localWrite', 'mwBind', 'remoteRead']);
  expect(mr.remote).toEqual({ addr: 0x12340000, rkey: mr.rkey, length: 5000 });
  const fast = await pd.allocMr();
  expect([fast.isValid, fast.length]).toEqual([false, 0]);
  for (const type of [1, 2] as const) {
    const mw = await pd.allocMw(type);
    expect([mw.type, mw.isBound]).toEqual([type, false]);
  }
  const ah = await pd.createAh({ grh: { dgid: device.chooseGid().gid, trafficClass: 8 } });
  const { trafficClass, flowLabel } = ah.address;
  expect([ah.label, trafficClass, flowLabel]).toEqual(['10.0.0.1', 8, 0]);
  expect(ah.maxMessage).toBe(device.queryPort().activeMtu);
});

test('the limit of the window is the largest by default, and the window stays within it', async () => {
  await using pair = await connectedPair();
  const { a, b } = pair;
  expect(a.qp.windowLimit).toBe(768);
  a.qp.windowLimit = 3;
  for (let i = 0; i < 8; i++) {
    const sgList = a.mr.sge(0, 4096);
    a.qp.postSend({ opcode: 'RDMA_WRITE', sgList, remoteAddr: b.mr.iova, rkey: b.mr.rkey });
    throwIfFailed(await a.cq.next());
  }
  expect([a.qp.windowLimit, a.qp.query().progress.window]).toEqual([3, 3]);
  expect(() => {
    a.qp.windowLimit = 0;
  }).toThrow('windowLimit is 0, must be from 1 to 768');
  const ud = await a.pd.createQp({ sendCq: a.cq, type: 'UD' });
  expect(() => {
    ud.windowLimit = 8;
  }).toThrow(/^EINVAL: qp .* has type UD: only RC has a window/);
});
