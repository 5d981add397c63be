// Opening devices, and their attributes.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { expect, test } from 'vitest';
import { createMemoryHub, openDevice, throwIfFailed } from '../../src/index.js';
import { connectedPair, openOn, pattern } from './pair.js';

test('query has limits, vendor and link', async () => {
  await using device = await openOn(createMemoryHub());
  expect(device.query()).toMatchObject({
    name: 'wasm-mem0',
    vendor: 'wasm-roce',
    nodeGuid: '0000:00ff:fe00:0001',
    maxSge: 32,
    maxQpRdAtom: 128,
    memoryBytes: 32 * 2 ** 20,
    atomicCap: 'HCA',
    link: { kind: 'memory', features: { ipHeaderVisible: true } },
  });
  expect(device.queryPort()).toEqual({
    state: 'ACTIVE',
    maxMtu: 4096,
    activeMtu: 4096,
    gidTableLength: 3,
    pkeyTableLength: 1,
    maxMsgSize: 2 ** 31,
    linkLayer: 'Ethernet',
    interface: 'mem0',
    interfaceMtu: 4500,
  });
});

test('the GID table and the notes have the choices of openDevice', async () => {
  await using device = await openOn(createMemoryHub(), { addresses: ['fd00::7', '10.9.0.7', 'fe80::7'] });
  expect(device.gids.map(({ gid }) => gid)).toEqual(['fe80::7', '::ffff:10.9.0.7', 'fd00::7']);
  expect(device.chooseGid()).toMatchObject({ index: 1 });
  expect(device.chooseGid('fd00::1')).toMatchObject({ index: 2, reason: expect.stringContaining('only IPv6') });
  expect(() => device.chooseGid('host.example')).toThrow(TypeError);
  expect(device.notes.join('\n')).toMatch(
    /memory[\s\S]*GID 1, ::ffff:10\.9\.0\.7: the first IPv4[\s\S]*path MTU up to 4096/,
  );
  await using v4 = await openOn(createMemoryHub(), { addresses: ['10.0.0.1'] });
  expect(() => v4.chooseGid('fd00::1')).toThrow(/EADDRNOTAVAIL: no address of mem0 \(10\.0\.0\.1\) can reach fd00::1/);
});

test('devices without a hub share the common one', async () => {
  await using one = await openDevice({ link: 'memory', memoryBytes: 2 ** 23 });
  await using other = await openDevice({ link: 'memory', memoryBytes: 2 ** 23 });
  expect(one.gids[1]?.address).not.toBe(other.gids[1]?.address);
  await expect(one.resolveAddress({ grh: { dgid: other.chooseGid().gid } })).resolves.toMatchObject({ hopLimit: 64 });
});

test('a card of 4 GiB, the largest, keeps a trace', async () => {
  await using device = await openDevice({ link: 'memory', memoryBytes: 2 ** 32, trace: 64 });
  expect(await device.createCq()).toMatchObject({ kind: 'cq' });
});

test('openDevice refuses wrong options', async () => {
  const refused = (options: object) => expect(openDevice(options)).rejects;
  await refused({ link: 'tcp' }).toThrow("link is 'tcp', must be 'packet', 'udp', 'xdp', 'memory' or a link");
  await refused({ link: 'memory', hub: {} }).toThrow('hub is an object, must be made by createMemoryHub');
  await refused({ link: 'memory', memoryBytes: 1000 }).toThrow(
    'memoryBytes is 1000, must be from 8388608 to 4294967296',
  );
  await refused({ interface: 'nosuch0' }).toThrow(
    /ENODEV: there is no interface 'nosuch0'|EOPNOTSUPP: the native addon/,
  );
});

test('devices of one seed draw the same numbers, and those without a seed others', async () => {
  const numbers = async (seed?: number | string) => {
    await using device = await openDevice({
      link: 'memory',
      hub: createMemoryHub(),
      memoryBytes: 2 ** 23,
      ...(seed && { seed }),
    });
    const pd = await device.allocPd();
    const qp = await pd.createQp({ sendCq: await device.createCq() });
    return [qp.qpNum, qp.endpoint().psn, (await pd.regMr(8)).rkey].join();
  };
  expect(await numbers(5)).toBe(await numbers(5));
  expect(await numbers('five')).not.toBe(await numbers(5));
  expect(await numbers()).not.toBe(await numbers());
});

test('device, link and queue pair have counters by name', async () => {
  await using pair = await connectedPair();
  const { a, b } = pair;
  pattern(100).copy(a.mr.buffer);
  a.qp.postSend({ opcode: 'RDMA_WRITE', sgList: a.mr.sge(0, 100), remoteAddr: b.mr.iova, rkey: b.mr.rkey });
  await a.cq.next({ timeout: 20_000 });
  expect(a.device.counters()).toMatchObject({ sent_pkts: 1, rcvd_pkts: 1, drop_icrc: 0, 'link.tx_frames': 1 });
  expect(b.device.counters()).toMatchObject({ sent_pkts: 1, rcvd_pkts: 1, rx_write_requests: 1 });
  expect(b.qp.counters()).toMatchObject({ rcvd_pkts: 1, duplicate_request: 0 });
});

test('the iterator of events ends with the device', async () => {
  await using pair = await connectedPair();
  const { a, b } = pair;
  const types: string[] = [];
  const reader = (async () => {
    for await (const event of b.device.events) types.push(event.type);
  })();
  a.qp.postSend({ opcode: 'RDMA_WRITE', sgList: a.mr.sge(0, 1), remoteAddr: b.mr.iova, rkey: (b.mr.rkey ^ 1) >>> 0 });
  await a.cq.next({ timeout: 20_000 });
  await new Promise((resolve) => setTimeout(resolve, 5));
  await b.device.close({ force: true });
  await reader;
  expect(types).toEqual(['QP_ACCESS_ERR']);
});

test('a listener of close may close the device again', async () => {
  const device = await openOn(createMemoryHub());
  let heard = 0;
  const told = new Promise<void>((resolve) => {
    device.on('close', () => {
      heard++;
      void device.close({ force: true }).then(resolve);
    });
  });
  await device.close();
  expect(device.isClosed).toBe(true);
  await told;
  expect(heard).toBe(1);
});

test('a device repairs the faults of its link, and the capture has both directions', async () => {
  const file = join(mkdtempSync(join(tmpdir(), 'wasm-roce-')), 'faults.pcapng');
  const fault = { seed: 3, both: { drop: 0.05, duplicate: 0.02, reorder: 0.02, corrupt: 0.02 } };
  await using pair = await connectedPair({ open: { fault }, connect: { timeout: 10 } });
  await using watched = await connectedPair({ open: { pcap: file } });
  const { a, b } = pair;
  pattern(60000).copy(a.mr.buffer);
  for (let i = 0; i < 20; i++) {
    b.mr.buffer.fill(0);
    a.qp.postSend({ opcode: 'RDMA_WRITE', sgList: a.mr.sge(0, 60000), remoteAddr: b.mr.iova, rkey: b.mr.rkey });
    throwIfFailed(await a.cq.next({ timeout: 20000 }));
    expect(b.mr.buffer.subarray(0, 60000).equals(pattern(60000))).toBe(true);
  }
  const counters = a.device.counters();
  expect(counters.retransmits).toBeGreaterThan(0);
  expect(counters['link.fault_tx_drop']).toBeGreaterThan(0);
  const sides = [watched.a, watched.b] as const;
  sides[0].qp.postSend({ opcode: 'RDMA_WRITE', remoteAddr: 0, rkey: 0 });
  throwIfFailed(await sides[0].cq.next({ timeout: 20_000 }));
  await watched.a.device.close({ force: true });
  expect(readFileSync(file).readUInt32LE(0)).toBe(0x0a0d0d0a);
  expect(readFileSync(file).length).toBeGreaterThan(200);
  rmSync(dirname(file), { recursive: true });
});
