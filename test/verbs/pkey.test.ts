// The P_Key table of a device.
import { expect, test } from 'vitest';
import { createMemoryHub } from '../../src/index.js';
import { connectedPair, openOn } from './pair.js';

test('the P_Key table has the default partition by default', async () => {
  const hub = createMemoryHub();
  await using plain = await openOn(hub);
  expect(plain.queryPkey(0)).toBe(0xffff);
  await using device = await openOn(hub, { pkeys: [0xffff, 0x8001, 0x0002] });
  expect(device.queryPort().pkeyTableLength).toBe(3);
  expect([0, 1, 2].map((index) => device.queryPkey(index))).toEqual([0xffff, 0x8001, 0x0002]);
  expect(() => device.queryPkey(3)).toThrow('index is 3, must be from 0 to 2');
});

test('queue pairs of one partition are connected by its index, but not two limited members', async () => {
  await using pair = await connectedPair({
    open: { pkeys: [0xffff, 0x8001, 0x0001] },
    connect: { pkeyIndex: 1, timeout: 5, retryCnt: 1 },
  });
  const { a, b } = pair;
  const write = async () => {
    a.qp.postSend({ opcode: 'RDMA_WRITE', sgList: a.mr.sge(0, 4), remoteAddr: b.mr.iova, rkey: b.mr.rkey });
    return (await a.cq.next({ timeout: 20_000 })).statusName;
  };
  expect(await write()).toBe('SUCCESS');
  expect(a.qp.query().pkeyIndex).toBe(1);
  for (const { qp } of [a, b]) {
    await qp.modify({ state: 'SQD' });
    await qp.modify({ pkeyIndex: 2 });
    await qp.modify({ state: 'RTS' });
  }
  expect(await write()).toBe('RETRY_EXC_ERR');
  expect(b.device.counters().drop_pkey).toBeGreaterThan(0);
});

test('openDevice refuses wrong P_Key tables', async () => {
  const refused = (pkeys: readonly number[]) => expect(openOn(createMemoryHub(), { pkeys })).rejects;
  await refused([]).toThrow('the number of pkeys is 0, must be from 1 to 128');
  await refused([0x8000]).toThrow('pkeys[0] is 32768, must not name partition 0');
  await refused([1, 0x10000]).toThrow('pkeys[1] is 65536, must be from 1 to 65535');
});

test('the connection manager connects in the default partition at any index', async () => {
  const hub = createMemoryHub();
  await using a = await openOn(hub, { pkeys: [0x8001, 0xffff] });
  await using b = await openOn(hub, { pkeys: [0x8002, 0x7fff, 0x8003] });
  await using server = await b.listen({ port: 7471 });
  const accepted = server.next().then((request) => request?.accept());
  await using connection = await a.connect({ host: b.gids[0]?.address as string, port: 7471 });
  await using other = await accepted;
  expect([connection.qp.query().pkeyIndex, other?.qp.query().pkeyIndex]).toEqual([1, 1]);
  await connection.send(Buffer.from('hello'));
  expect((await other?.receive())?.data).toEqual(Buffer.from('hello'));
});

test('the connection manager connects in the first partition without a default partition', async () => {
  const open = { pkeys: [0x8001, 0x8002] };
  const hub = createMemoryHub();
  await using a = await openOn(hub, open);
  await using b = await openOn(hub, open);
  await using server = await b.listen({ port: 7471 });
  void server.next().then((request) => request?.accept());
  await using connection = await a.connect({ host: b.gids[0]?.address as string, port: 7471 });
  expect(connection.qp.query().pkeyIndex).toBe(0);
});
