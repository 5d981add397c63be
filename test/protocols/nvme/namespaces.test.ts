// Namespaces that come and go while hosts are connected.
import { once } from 'node:events';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { connect, createTarget, type NvmeController, type NvmeTarget } from '../../../src/nvme.js';
import { Status } from '../../../src/protocols/nvme/status.js';
import {
  AdminOpcode,
  type CommandFields,
  encodeCommand,
  Feature,
  LogPage,
  NAMESPACE_NOTICES,
  NAMESPACES_CHANGED,
  RETAIN_EVENT,
} from '../../../src/protocols/nvme/wire.js';
import { device, HOST, peer, useDevices } from '../devices.js';
import { MemoryStorage } from './memorystorage.js';
import { RawHost } from './rawhost.js';

useDevices();

const NQN = 'nqn.2026-01.com.example:disks';

let target: NvmeTarget;
let disk: MemoryStorage;
const open: { close(): Promise<void> }[] = [];

beforeEach(async () => {
  disk = new MemoryStorage(65_536);
  target = await createTarget({ device: peer, subsystems: [{ nqn: NQN, namespaces: [{ storage: disk }] }] });
});

afterEach(async () => {
  for (const one of open.splice(0)) await one.close();
  await target.close();
});

async function connected(): Promise<NvmeController> {
  const controller = await connect({ device, host: HOST, nqn: NQN });
  open.push(controller);
  return controller;
}

const idsOf = ({ namespaces }: NvmeController) => namespaces.map(({ nsid }) => nsid);

test('a host finds a namespace that is added, and keeps the others', async () => {
  const controller = await connected();
  const first = controller.namespace(1);
  const told = once(controller, 'namespaces');
  const added = new MemoryStorage(8192);
  expect(target.addNamespace(NQN, { storage: added, blockBytes: 4096 })).toBe(2);
  await told;
  expect(idsOf(controller)).toEqual([1, 2]);
  expect(controller.namespace(1)).toBe(first);
  await controller.namespace(2).write(4096, Buffer.alloc(4096, 3));
  expect(added.data[4096]).toBe(3);
});

test('a namespace that is removed is refused, and its storage is closed', async () => {
  const controller = await connected();
  const namespace = controller.namespace(1);
  const told = once(controller, 'namespaces');
  await target.removeNamespace(NQN, 1);
  expect(disk).toMatchObject({ isClosed: true, flushes: 1 });
  await told;
  expect(idsOf(controller)).toEqual([]);
  await expect(namespace.read(0, 512)).rejects.toMatchObject({ status: 'INVALID_NAMESPACE' });
  await expect(target.removeNamespace(NQN, 1)).rejects.toMatchObject({ code: 'ENOENT' });
});

test('commands under way are executed before the storage of their removed namespace is closed', async () => {
  const controller = await connected();
  const namespace = controller.namespace(1);
  let go = () => {};
  const gate = new Promise<void>((resolve) => {
    go = resolve;
  });
  const { write } = disk;
  const begun = new Promise<void>((resolve) => {
    disk.write = async (...args) => {
      resolve();
      await gate;
      return write.apply(disk, args);
    };
  });
  const written = namespace.write(0, Buffer.alloc(16_384, 9));
  await begun;
  const removed = target.removeNamespace(NQN, 1);
  await expect(namespace.read(0, 512)).rejects.toMatchObject({ status: 'INVALID_NAMESPACE' });
  expect(disk.isClosed).toBe(false);
  go();
  await Promise.all([written, removed]);
  expect(disk.data[16_383]).toBe(9);
  expect(disk.isClosed).toBe(true);
});

test('many changes while a host looks end with the present namespaces', async () => {
  const controller = await connected();
  for (let round = 0; round < 20; round++) {
    const nsid = target.addNamespace(NQN, { storage: new MemoryStorage(512) });
    if (round % 3 === 0) await target.removeNamespace(NQN, nsid);
  }
  while (idsOf(controller).length < 14) await once(controller, 'namespaces');
  expect(idsOf(controller)).toEqual(Array.from({ length: 14 }, (_, i) => i + 1));
});

test('a host that does not read the log is notified once, one that wants no notices never', async () => {
  const host = await RawHost.enabled(device, HOST, NQN);
  open.push(host);
  const event = { opcode: AdminOpcode.ASYNC_EVENT_REQUEST };
  const readLog = async (flags = 0) => {
    const dwords = [LogPage.CHANGED_NAMESPACES | flags | (1023 << 16)];
    const command = { opcode: AdminOpcode.GET_LOG_PAGE, dwords, data: host.keyed(4096) };
    expect((await host.ask(command)).status).toBe(Status.SUCCESS);
    return [host.data.readUInt32LE(0), host.data.readUInt32LE(4), host.data.readUInt32LE(8)];
  };
  const notices = (dwords: number[]): CommandFields => ({ opcode: AdminOpcode.SET_FEATURES, dwords });
  host.send(encodeCommand(event, 100));
  await target.removeNamespace(NQN, 1);
  expect(await readLog()).toEqual([1, 0, 0]);
  expect((await host.ask(notices([Feature.ASYNC_EVENTS, NAMESPACE_NOTICES]))).status).toBe(Status.SUCCESS);
  target.addNamespace(NQN, { storage: new MemoryStorage(512) });
  expect(await host.response(100)).toMatchObject({ status: Status.SUCCESS, result: BigInt(NAMESPACES_CHANGED) });
  host.send(encodeCommand(event, 101));
  target.addNamespace(NQN, { storage: new MemoryStorage(512) });
  expect(await readLog(RETAIN_EVENT)).toEqual([1, 2, 0]);
  expect(await readLog()).toEqual([1, 2, 0]);
  expect(await readLog()).toEqual([0, 0, 0]);
  expect(host.take()).toEqual([]);
  target.addNamespace(NQN, { storage: new MemoryStorage(512) });
  expect(await host.response(101)).toMatchObject({ result: BigInt(NAMESPACES_CHANGED) });
  // a change while the host has no request with the controller
  expect(await readLog()).toEqual([3, 0, 0]);
  await target.removeNamespace(NQN, 2);
  host.send(encodeCommand(event, 102));
  expect(await host.response(102)).toMatchObject({ result: BigInt(NAMESPACES_CHANGED) });
  expect(await readLog()).toEqual([2, 0, 0]);
});

test('options that do not fit are refused, and nothing changes', async () => {
  const storage = new MemoryStorage(512);
  const add = (options: object, nqn = NQN) => target.addNamespace(nqn, { storage, ...options });
  expect(() => add({}, 'nqn.2026-01.com.example:none')).toThrow(/there is no subsystem nqn.2026-01.com.example:none/);
  expect(() => add({ nsid: 1 })).toThrow(/nsid.* is 1, must be different in each namespace/);
  expect(() => add({ nsid: 1025 })).toThrow(/nsid.* is 1025, must be from 1 to 1024/);
  expect(() => add({ name: '1' })).toThrow(/name.* is '1', must be different in each namespace/);
  const uuid = '00000000-0000-4000-8000-000000000001';
  expect(add({ uuid })).toBe(2);
  expect(() => add({ uuid })).toThrow(/uuid.*must be different in each namespace/);
  expect(idsOf(await connected())).toEqual([1, 2]);
});

test('close ends with the error of a storage, and closes the others', async () => {
  const [bad, good] = [new MemoryStorage(512), new MemoryStorage(512)];
  for (const storage of [bad, good]) target.addNamespace(NQN, { storage });
  bad.failure = new Error('no space');
  await expect(target.close()).rejects.toThrow('no space');
  expect([disk, bad, good].map(({ isClosed }) => isClosed)).toEqual([true, true, true]);
  target = await createTarget({ device: peer, subsystems: [{ nqn: NQN, namespaces: [] }] });
});
