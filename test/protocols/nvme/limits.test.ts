// The share of one host of a target is bounded, and an honest host beside it is served at once.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type CmId, createCmId, type Device } from '../../../src/index.js';
import { connect, createTarget, type NvmeController, type NvmeTarget } from '../../../src/nvme.js';
import {
  AdminOpcode,
  ANY_CONTROLLER,
  encodeCommand,
  encodeConnectRequest,
  inMemory,
  NvmOpcode,
} from '../../../src/protocols/nvme/wire.js';
import { eventually } from '../../kit/eventually.js';
import { SlowReadsLink } from '../../kit/slowreads.js';
import { HOST, openAt, peer, useDevices } from '../devices.js';
import { MemoryStorage } from './memorystorage.js';
import { ENABLING, RawHost } from './rawhost.js';

useDevices();

const NQN = 'nqn.2026-01.com.example:disks';
const PORT = 4420;

let target: NvmeTarget;
let faults: string[];
let other: Device;
let hostile: Device;
let slow: SlowReadsLink;
let honest: NvmeController;

beforeEach(async () => {
  faults = [];
  target = await createTarget({
    device: peer,
    onError: ({ message }) => faults.push(message),
    subsystems: [{ nqn: NQN, namespaces: [{ storage: new MemoryStorage(2 ** 20) }] }],
  });
  other = await openAt('10.0.0.3');
  hostile = await openAt('10.0.0.66', {
    wrapLink: SlowReadsLink.wrap((link) => {
      slow = link;
    }),
  });
  honest = await connect({ device: other, host: HOST, nqn: NQN });
});
afterEach(async () => {
  await honest.close();
  await target.close();
  for (const device of [other, hostile]) await device.close({ force: true });
});

/** The honest host gets a small and a large read within a second. */
async function isServed(): Promise<void> {
  const start = performance.now();
  const disk = honest.namespace(1);
  for (const bytes of [4096, 131_072]) expect(await disk.read(0, bytes)).toHaveLength(bytes);
  expect(performance.now() - start).toBeLessThan(1000);
}

/** An admin queue and an I/O queue of the hostile host. */
async function io(): Promise<[RawHost, RawHost]> {
  const admin = await RawHost.connect(hostile, HOST, PORT, encodeConnectRequest(0, 32, 0));
  const { result } = await admin.ask(admin.connectCommand(NQN, 0, ANY_CONTROLLER));
  await admin.ask(ENABLING);
  const queue = await RawHost.connect(hostile, HOST, PORT, encodeConnectRequest(1, 128, 0));
  await queue.ask(queue.connectCommand(NQN, 1, Number(result & 0xffffn), 127));
  return [admin, queue];
}

test('a host that takes no responses loses its queue when more of them wait than it has entries', async () => {
  const host = await RawHost.enabled(hostile, HOST, NQN);
  host.isDeaf = true;
  let sent = 0;
  while (!host.hasEnded && sent < 5000) {
    try {
      host.send(encodeCommand({ opcode: AdminOpcode.ABORT }, sent & 0xffff));
      sent++;
    } catch {
      // its send queue is full
    }
    await new Promise((resolve) => setImmediate(resolve));
  }
  // 64 were taken, 256 are posted, and 32 may wait
  expect(sent).toBeLessThan(600);
  expect(faults).toEqual([expect.stringMatching(/33 responses wait, its queue has 32 entries/)]);
  await isServed();
});

test('a host that takes no responses, and sends no more, is disconnected', async () => {
  const host = await RawHost.enabled(hostile, HOST, NQN);
  host.isDeaf = true;
  for (let cid = 0; cid < 80; cid++) {
    host.send(encodeCommand({ opcode: AdminOpcode.ABORT }, cid));
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  await eventually(() => expect(host.hasEnded).toBe(true));
  expect(faults).toEqual([expect.stringMatching(/^ETIMEDOUT: the peer let \d+ bytes through within 10000 ms/)]);
});

test('a host whose memory answers 4 KiB each 3 s keeps a share of the buffers, and is disconnected', async () => {
  const [admin, queue] = await io();
  slow.interval = 3000;
  const write = (cid: number, bytes: number) => {
    const data = inMemory(queue.address, queue.memory.rkey, bytes);
    queue.send(encodeCommand({ opcode: NvmOpcode.WRITE, nsid: 1, dwords: [0, 0, bytes / 512 - 1], data }, cid));
  };
  for (let cid = 0; cid < 120; cid++) {
    write(cid, cid < 64 ? 131_072 : 4096);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  const started = performance.now();
  const removed = target.removeNamespace(NQN, 1);
  const nsid = target.addNamespace(NQN, { nsid: 2, storage: new MemoryStorage(2 ** 20) });
  expect(nsid).toBe(2);
  await eventually(() => expect(honest.namespaces.map((each) => each.nsid)).toEqual([2]));
  for (let second = 0; second < 5; second++) {
    const start = performance.now();
    for (const bytes of [4096, 131_072]) expect(await honest.namespace(2).read(0, bytes)).toHaveLength(bytes);
    expect(performance.now() - start).toBeLessThan(1000);
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
  await removed;
  expect(performance.now() - started).toBeLessThan(25_000);
  expect(faults).toEqual([expect.stringMatching(/^ETIMEDOUT: the peer let \d+ bytes through within 10000 ms/)]);
  await eventually(() => expect([admin.hasEnded, queue.hasEnded]).toEqual([true, true]));
});

test('connections of one host without Connect leave memory for others', async () => {
  const pd = await hostile.allocPd();
  const cq = await hostile.createCq({ cqe: 4096 });
  const ids: CmId[] = [];
  let refused = 0;
  const open = async () => {
    const id = createCmId(hostile);
    try {
      await id.resolveAddr(HOST, PORT);
      await id.resolveRoute();
      await id.createQp(pd, { sendCq: cq, maxSendWr: 1, maxRecvWr: 1 });
      await id.connect({ privateData: encodeConnectRequest(1, 128, 0) });
      ids.push(id);
    } catch {
      refused++;
      await id.close();
    }
  };
  const before = peer.query().memoryAvailable;
  for (let round = 0; round < 40; round++) {
    await Promise.all(Array.from({ length: 20 }, open));
    if (round % 8 > 0) continue;
    await using one = await connect({ device: other, host: HOST, nqn: NQN });
    expect(await one.namespace(1).read(0, 4096)).toHaveLength(4096);
  }
  expect(ids.length + refused).toBe(800);
  expect(peer.query().memoryAvailable).toBeGreaterThan(before / 3);
  // they are given up after 10 s, and their memory comes back
  for (const id of ids) await id.close();
  await eventually(() => expect(before - peer.query().memoryAvailable).toBeLessThan(2 ** 20));
}, 60_000);
