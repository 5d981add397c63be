// Hosts that do not keep to the rules: each gets the status that the specification names, or loses its own controller.
import { setTimeout } from 'node:timers/promises';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { connect, createTarget, type NvmeTarget } from '../../../src/nvme.js';
import { Status } from '../../../src/protocols/nvme/status.js';
import {
  AdminOpcode,
  Cns,
  COMMAND_BYTES,
  type CommandFields,
  encodeCommand,
  encodeConnectRequest,
  FABRICS_OPCODE,
  FabricsType,
  inCapsule,
  NvmOpcode,
  Property,
  type Response,
} from '../../../src/protocols/nvme/wire.js';
import { eventually } from '../../kit/eventually.js';
import { Random } from '../../kit/random.js';
import { device, HOST, peer, useDevices } from '../devices.js';
import { MemoryStorage } from './memorystorage.js';
import { ENABLING, RawHost } from './rawhost.js';

useDevices();

const NQN = 'nqn.2026-01.com.example:disks';
const PORT = 4420;
const BLOCKS = 256;

let target: NvmeTarget;
let disk: MemoryStorage;
let faults: string[];
const hosts: RawHost[] = [];

beforeEach(async () => {
  disk = new MemoryStorage(BLOCKS * 512);
  faults = [];
  target = await createTarget({
    device: peer,
    onError: ({ message }) => faults.push(message),
    subsystems: [{ nqn: NQN, namespaces: [{ storage: disk }] }],
  });
});

afterEach(async () => {
  for (const host of hosts.splice(0)) await host.close();
  await target.close();
});

async function raw(qid = 0, entries = 32): Promise<RawHost> {
  const host = await RawHost.connect(device, HOST, PORT, encodeConnectRequest(qid, entries, 0));
  hosts.push(host);
  return host;
}

/** Makes the command's descriptor that of data behind the command, whose length fills where a key began. */
function describeCapsule(command: Buffer, length: number): void {
  command.writeBigUInt64LE(0n, 24);
  command.writeUInt32LE(length, 32);
  command.writeUInt32LE(0x01_00_00_00, 36);
}

/** An admin queue with a controller that is ready. */
async function admin(kato = 0): Promise<RawHost> {
  const host = await RawHost.enabled(device, HOST, NQN, kato);
  hosts.push(host);
  return host;
}

/** An admin queue and an I/O queue of one controller. */
async function io(): Promise<[RawHost, RawHost]> {
  const host = await admin();
  const queue = await raw(1, 128);
  expect((await queue.ask(queue.connectCommand(NQN, 1, host.cntlid, 127))).status).toBe(Status.SUCCESS);
  return [host, queue];
}

test.each([
  ['another record format', (data: Buffer) => data.writeUInt16LE(1, 0), 2],
  ['too many commands', (data: Buffer) => data.writeUInt16LE(32, 6), 4],
])('a connection with %s is rejected', async (_name, change, status) => {
  const data = Buffer.from(encodeConnectRequest(0, 32, 0));
  change(data);
  const error = await RawHost.connect(device, HOST, PORT, data).catch((refused) => refused);
  expect(error).toMatchObject({ code: 'ECONNREFUSED', reason: 'CONSUMER_DEFINED' });
  expect([...error.privateData.subarray(0, 4)]).toEqual([0, 0, status, 0]);
});

test('before Connect there is no other command, and before EN only properties', async () => {
  const host = await raw();
  expect((await host.ask({ opcode: AdminOpcode.KEEP_ALIVE })).status).toBe(Status.INVALID_OPCODE);
  expect((await host.ask(host.connectCommand(NQN, 0, 0xffff))).status).toBe(Status.SUCCESS);
  expect((await host.ask({ opcode: AdminOpcode.KEEP_ALIVE })).status).toBe(Status.COMMAND_SEQUENCE_ERROR);
  expect((await host.ask({ ...ENABLING, dwords: [0, Property.CONFIGURATION, 0x1234_0001] })).status).toBe(
    Status.SUCCESS,
  );
  const get = { opcode: FABRICS_OPCODE, fabricsType: FabricsType.PROPERTY_GET };
  expect((await host.ask({ ...get, dwords: [0, Property.STATUS] })).result).toBe(2n);
  expect((await host.ask({ ...get, dwords: [0, 0x1234] })).status).toBe(Status.INVALID_FIELD);
  expect((await host.ask({ ...get, dwords: [0, Property.CAPABILITIES] })).status).toBe(Status.INVALID_FIELD);
});

test.each([
  ['a controller that is not there', 1, 99, 127, 0x182, 0x10010],
  ['an id for the admin queue', 0, 1, 31, 0x182, 0x10010],
  ['a queue id beyond the limit', 129, 1, 127, 0x182, 42],
  ['no entries', 0, 0xffff, 0, 0x182, 44],
  ['too many entries', 0, 0xffff, 32, 0x182, 44],
])('Connect with %s is refused', async (_name, qid, cntlid, size, status, result) => {
  const host = await raw();
  expect(await host.ask(host.connectCommand(NQN, qid, cntlid, size))).toMatchObject({ status, result: BigInt(result) });
});

test('two Connects at once on one queue make one controller', async () => {
  const host = await raw();
  const fields = host.connectCommand(NQN, 0, 0xffff);
  for (const cid of [1, 2]) host.send(encodeCommand(fields, cid));
  const responses: Response[] = [];
  await eventually(() => {
    responses.push(...host.take());
    expect(responses.length).toBe(2);
  });
  expect(responses.map(({ status }) => status).sort()).toEqual([Status.SUCCESS, Status.COMMAND_SEQUENCE_ERROR]);
  expect(target.controllers).toBe(1);
});

test('a second queue with the same id is refused, and so is one for another host’s controller', async () => {
  const host = await admin();
  const queue = await raw(1, 128);
  expect((await queue.ask(queue.connectCommand(NQN, 1, host.cntlid, 127))).status).toBe(Status.SUCCESS);
  const twice = await raw(1, 128);
  expect((await twice.ask(twice.connectCommand(NQN, 1, host.cntlid, 127))).status).toBe(Status.COMMAND_SEQUENCE_ERROR);
  const foreign = await raw(2, 128);
  const command = foreign.connectCommand(NQN, 2, host.cntlid, 127);
  foreign.data[0] = 8;
  expect((await foreign.ask(command)).status).toBe(Status.CONNECT_INVALID_PARAMETERS);
  expect(host.hasEnded).toBe(false);
});

test.each<[string, (command: Buffer) => unknown, Status]>([
  ['flags of PRPs', (c) => c.fill(0, 1, 1 + 1), Status.INVALID_FIELD],
  ['flags of a fused command', (c) => c.fill(0x41, 1, 1 + 1), Status.INVALID_FIELD],
  ['another kind of descriptor', (c) => c.fill(0x20, 39, 39 + 1), Status.SGL_DESCRIPTOR_TYPE_INVALID],
  ['another subtype', (c) => c.fill(0x45, 39, 39 + 1), Status.INVALID_FIELD],
  ['too little memory', (c) => c.writeUIntLE(511, 32, 3), Status.DATA_SGL_LENGTH_INVALID],
  ['too much memory', (c) => c.writeUIntLE(1024, 32, 3), Status.DATA_SGL_LENGTH_INVALID],
  ['room in the capsule', (c) => describeCapsule(c, 512), Status.INVALID_FIELD],
  ['too much room in the capsule', (c) => describeCapsule(c, 513), Status.DATA_SGL_LENGTH_INVALID],
  ['memory that ends beyond the last address', (c) => c.fill(0xff, 24, 32), Status.INVALID_FIELD],
  ['another namespace', (c) => c.writeUInt32LE(2, 4), Status.INVALID_NAMESPACE],
  ['another opcode', (c) => c.fill(0x42, 0, 0 + 1), Status.INVALID_OPCODE],
  ['a block behind the last', (c) => c.writeUInt32LE(BLOCKS, 40), Status.LBA_OUT_OF_RANGE],
  ['a block far away', (c) => c.fill(0xff, 40, 48), Status.LBA_OUT_OF_RANGE],
])('Read with %s has that status, and the next one is served', async (_name, change, status) => {
  const [, queue] = await io();
  const command = encodeCommand({ opcode: NvmOpcode.READ, nsid: 1, data: queue.keyed(512) }, 0xabcd);
  change(command);
  expect(await queue.ask(command)).toMatchObject({ status, cid: 0xabcd });
  disk.data.fill(3);
  expect(await queue.ask({ opcode: NvmOpcode.READ, nsid: 1, data: queue.keyed(512) })).toMatchObject({ status: 0 });
  expect([...new Set(queue.data.subarray(0, 512))]).toEqual([3]);
});

test('data in the capsule must be there', async () => {
  const [, queue] = await io();
  const capsule = (offset: number, bytes: number) => {
    const command = encodeCommand({ opcode: NvmOpcode.WRITE, nsid: 1, data: inCapsule(BigInt(offset), 512) }, 5);
    return Buffer.concat([command, Buffer.alloc(bytes, 6)]);
  };
  expect((await queue.ask(capsule(0, 511))).status).toBe(Status.SGL_OFFSET_INVALID);
  expect((await queue.ask(capsule(1, 512))).status).toBe(Status.SGL_OFFSET_INVALID);
  expect(disk.data[0]).toBe(0);
  expect((await queue.ask(capsule(0, 512))).status).toBe(Status.SUCCESS);
  expect(disk.data[511]).toBe(6);
});

test('Compare tells whether the data is the same', async () => {
  const [, queue] = await io();
  disk.data.fill(4, 0, 1024);
  queue.data.fill(4, 0, 1024);
  const compare = { opcode: NvmOpcode.COMPARE, nsid: 1, dwords: [0, 0, 1], data: queue.keyed(1024) };
  expect((await queue.ask(compare)).status).toBe(Status.SUCCESS);
  queue.data[1023] = 5;
  expect((await queue.ask(compare)).status).toBe(Status.COMPARE_FAILURE);
});

test('the response invalidates the key of a descriptor that requests it', async () => {
  const [, queue] = await io();
  for (const slba of [0, BLOCKS]) {
    const access = ['localWrite', 'remoteWrite', 'invalidate'] as const;
    const region = await queue.qp.pd.regMr(512, { access });
    const data = {
      place: 'host',
      address: BigInt(region.iova),
      length: 512,
      rkey: region.rkey,
      invalidates: true,
    } as const;
    const { status } = await queue.ask({ opcode: NvmOpcode.READ, nsid: 1, dwords: [slba], data });
    expect(status).toBe(slba === 0 ? Status.SUCCESS : Status.LBA_OUT_OF_RANGE);
    // a command that is refused before its data is looked at leaves that to the host
    expect(queue.invalidated.splice(0)).toEqual(slba === 0 ? [region.rkey] : []);
  }
});

test('a fifth Async Event Request is refused, and the others wait', async () => {
  const host = await admin();
  for (let cid = 10; cid < 14; cid++) host.send(encodeCommand({ opcode: AdminOpcode.ASYNC_EVENT_REQUEST }, cid));
  expect(await host.ask({ opcode: AdminOpcode.ASYNC_EVENT_REQUEST }, 14)).toMatchObject({
    cid: 14,
    status: Status.ASYNC_EVENT_LIMIT_EXCEEDED,
  });
  expect((await host.ask({ opcode: AdminOpcode.ABORT, dwords: [0x000a_0000] })).result).toBe(1n);
});

test('unsupported features and structures have that status', async () => {
  const host = await admin();
  const status = async (fields: CommandFields) => (await host.ask(fields)).status;
  expect(await status({ opcode: AdminOpcode.IDENTIFY, dwords: [0x1f], data: host.keyed(4096) })).toBe(
    Status.INVALID_FIELD,
  );
  expect(
    await status({ opcode: AdminOpcode.IDENTIFY, nsid: 9, dwords: [Cns.DESCRIPTORS], data: host.keyed(4096) }),
  ).toBe(Status.INVALID_NAMESPACE);
  expect(await status({ opcode: AdminOpcode.GET_LOG_PAGE, dwords: [0xc0 | (3 << 16)], data: host.keyed(16) })).toBe(
    Status.INVALID_LOG_PAGE,
  );
  expect(await status({ opcode: AdminOpcode.SET_FEATURES, dwords: [0x7e] })).toBe(Status.INVALID_FIELD);
  expect(await status({ opcode: AdminOpcode.GET_FEATURES, dwords: [0x7e] })).toBe(Status.INVALID_FIELD);
  expect(await status({ opcode: AdminOpcode.KEEP_ALIVE })).toBe(Status.KEEP_ALIVE_TIMEOUT_INVALID);
  expect(await status({ opcode: 0x7e })).toBe(Status.INVALID_OPCODE);
});

test('a capsule that is too short, or a key that is wrong, ends the controller of that host alone', async () => {
  const honest = await connect({ device, host: HOST, nqn: NQN, keepAlive: 0 });
  const host = await admin();
  host.send(Buffer.alloc(COMMAND_BYTES - 1));
  await eventually(() => expect(host.hasEnded).toBe(true));
  expect(faults).toEqual([
    'EIO: the peer does not keep to the protocol of NVMe over RDMA: a command has 63 bytes, must have 64',
  ]);
  const [other, queue] = await io();
  queue.send(encodeCommand({ opcode: NvmOpcode.WRITE, nsid: 1, data: { ...queue.keyed(512), rkey: 1 } }, 3));
  await eventually(() => expect([other.hasEnded, queue.hasEnded]).toEqual([true, true]));
  expect(faults[1]).toContain('REM_ACCESS_ERR');
  expect(await honest.namespace(1).read(0, 512)).toEqual(Buffer.alloc(512));
  await eventually(() => expect(target.controllers).toBe(1));
  await honest.close();
});

test('a host that writes with a wrong key is disconnected, and the target reports why', async () => {
  const host = await admin();
  host.qp.postSend({ opcode: 'RDMA_WRITE', sgList: host.memory.sge(0, 4), remoteAddr: 0, rkey: 1 });
  await eventually(() => expect(host.hasEnded).toBe(true));
  expect(faults).toEqual([
    expect.stringMatching(/the peer sent a request that qp \w+ does not allow \(QP_ACCESS_ERR\)/),
  ]);
});

test('a host that is silent for longer than its keep-alive timeout is disconnected', async () => {
  const host = await admin(150);
  await eventually(() => expect(host.hasEnded).toBe(true));
  expect(faults[0]).toMatch(/^ETIMEDOUT: the host was silent for \d+ ms$/);
});

test('each interval of the keep-alive timeout needs one command of the host, at any time in it', async () => {
  const host = await admin(150);
  await setTimeout(250);
  expect((await host.ask({ opcode: AdminOpcode.KEEP_ALIVE })).status).toBe(0);
  await setTimeout(160);
  expect([host.hasEnded, faults]).toEqual([false, []]);
  await eventually(() => expect(host.hasEnded).toBe(true));
});

test('random capsules end their own controllers alone', async () => {
  const honest = await connect({ device, host: HOST, nqn: NQN, keepAlive: 0 });
  const random = new Random(5);
  for (let round = 0; round < 40; round++) {
    const [host, queue] = await io();
    for (const one of [host, queue])
      for (let i = 0; i < 12; i++) {
        const command = encodeCommand({ opcode: random.below(256), nsid: random.below(3), data: one.keyed(512) }, i);
        for (let n = random.below(6); n > 0; n--) command[random.below(COMMAND_BYTES)] = random.below(256);
        // what it may do to the disk is no fault
        if ([NvmOpcode.WRITE, NvmOpcode.WRITE_ZEROES].includes(command[0] as number)) continue;
        if (!one.hasEnded) one.send(command);
      }
    await Promise.all([host.close(), queue.close()]);
    hosts.length = 0;
  }
  expect(await honest.namespace(1).read(0, 4096)).toEqual(Buffer.alloc(4096));
  await eventually(() => expect(target.controllers).toBe(1));
  await honest.close();
}, 60_000);
