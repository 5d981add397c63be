import { inspect } from 'node:util';
import { expect, test } from 'vitest';
import { createCmId, createMemoryHub, openDevice } from '../../src/index.js';

test('every object has a description for the console and for JSON, open and closed', async () => {
  const hub = createMemoryHub();
  const device = await openDevice({ hub });
  const pd = await device.allocPd();
  const cq = await device.createCq({ cqe: 8 });
  const mr = await pd.regMr(64, { access: ['localWrite', 'remoteWrite'], iova: 2n ** 63n });
  const srq = await pd.createSrq({ maxWr: 8 });
  const qp = await pd.createQp({ sendCq: cq });
  const ah = await pd.createAh({ grh: { dgid: '10.0.0.1' } });
  const fast = await pd.allocMr();
  const mw = await pd.allocMw();
  const id = createCmId(device);
  await qp.connect(qp.endpoint());
  const described: [object, object][] = [
    [device, { kind: 'device', label: 'wasm-mem0', link: 'memory', state: 'ACTIVE', mode: 'inline' }],
    [pd, { kind: 'pd', label: '1' }],
    [cq, { kind: 'cq', cqe: 8, pending: 0 }],
    [mr, { kind: 'mr', length: 64, iova: '9223372036854775808', access: ['localWrite', 'remoteWrite'] }],
    [srq, { kind: 'srq', maxWr: 8, pending: 0 }],
    [qp, { kind: 'qp', label: qp.label, type: 'RC', state: 'RTS', peer: `10.0.0.1 qp ${qp.label}` }],
    [ah, { kind: 'ah', label: '10.0.0.1' }],
    [ah.address, { destination: '10.0.0.1', destMac: '02:00:00:00:00:01' }],
    [fast, { kind: 'mr', isValid: false }],
    [mw, { kind: 'mw', type: 2, isBound: false }],
    [id, { kind: 'cm id', space: 'TCP', state: 'IDLE' }],
    [device.congestion, { enabled: true, ect: true }],
    [id.channel, { ids: 1, unread: [], isClosed: false }],
    [hub, { coalesces: false, links: 1 }],
  ];
  for (const [object, facts] of described) {
    const json = JSON.stringify(object);
    expect(JSON.parse(json)).toMatchObject(facts);
    expect(json.length).toBeLessThan(400);
    expect(inspect(object)).toMatch(new RegExp(`^${object.constructor.name} \\{`));
    expect(inspect({ deep: { deeper: { deepest: object } } })).toContain(`[${object.constructor.name}]`);
  }
  await device.close({ force: true });
  for (const [object] of described.slice(0, 7))
    expect(JSON.parse(JSON.stringify(object))).toMatchObject({ isClosed: true });
});

test('a completion has its status and operation by name', async () => {
  const device = await openDevice({ hub: createMemoryHub() });
  const pd = await device.allocPd();
  const cq = await device.createCq();
  const mr = await pd.regMr(64);
  const qp = await pd.createQp({ sendCq: cq });
  await qp.connect(qp.endpoint());
  qp.postRecv({ wrId: 1, sgList: mr.sge(0, 8) });
  qp.postSend({ wrId: 2, opcode: 'SEND_WITH_IMM', immData: 7, sgList: mr.sge(8, 4) });
  const shown = [await cq.next(), await cq.next()].map((wc) => JSON.parse(JSON.stringify(wc)));
  const common = { status: 'SUCCESS', qpNum: qp.qpNum };
  expect(shown).toContainEqual({ ...common, wrId: 1, opcode: 'RECV', byteLen: 4, immData: 7 });
  expect(shown).toContainEqual(expect.objectContaining({ ...common, wrId: 2, opcode: 'SEND' }));
  await device.close({ force: true });
});
