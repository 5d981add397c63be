// Our host and our target: disks over RDMA, and what either end is told when something is wrong.
import { once } from 'node:events';
import { pipeline } from 'node:stream/promises';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import {
  connect,
  createTarget,
  DISCOVERY_NQN,
  discover,
  NVME_PORT,
  type NvmeConnectOptions,
  type NvmeController,
  NvmeError,
  type NvmeTarget,
  type SubsystemOptions,
} from '../../../src/nvme.js';
import { TransferBuffers } from '../../../src/protocols/nvme/buffers.js';
import { eventually } from '../../kit/eventually.js';
import { Random } from '../../kit/random.js';
import { device, HOST, peer, useDevices } from '../devices.js';
import { MemoryStorage } from './memorystorage.js';

useDevices();

const NQN = 'nqn.2026-01.com.example:disks';
const PRIVATE_NQN = 'nqn.2026-01.com.example:private';
const HOST_NQN = 'nqn.2026-01.com.example:host';
const MIB = 2 ** 20;
/** Lengths that fit into a capsule or not, into one part or not. */
const BLOCKS = [1, 2, 8, 9, 16, 255, 256, 600];

let target: NvmeTarget;
let disk: MemoryStorage;
let big: MemoryStorage;
let readOnly: MemoryStorage;
let faults: string[];
const controllers: NvmeController[] = [];

beforeEach(async () => {
  disk = new MemoryStorage(4 * MIB);
  big = new MemoryStorage(MIB);
  readOnly = new MemoryStorage(MIB, true);
  readOnly.data.fill(7);
  faults = [];
  target = await createTarget({
    device: peer,
    onError: ({ message }, { nqn }) => faults.push(`${nqn}: ${message}`),
    subsystems: [
      {
        nqn: NQN,
        namespaces: [{ storage: disk }, { nsid: 7, storage: readOnly }, { storage: big, blockBytes: 4096 }],
      },
      { nqn: PRIVATE_NQN, namespaces: [{ storage: new MemoryStorage(512) }], hosts: [HOST_NQN] },
    ],
  });
});

afterEach(async () => {
  for (const controller of controllers.splice(0)) await controller.close();
  await target.close();
  expect(faults).toEqual([]);
});

async function connected(options: Partial<NvmeConnectOptions> = {}): Promise<NvmeController> {
  const controller = await connect({ device, host: HOST, nqn: NQN, ...options });
  controllers.push(controller);
  return controller;
}

test('a host finds the namespaces', async () => {
  const { namespaces } = await connected();
  expect(
    namespaces.map(({ nsid, blockBytes, bytes, isReadOnly }) => ({ nsid, blockBytes, bytes, isReadOnly })),
  ).toEqual([
    { nsid: 1, blockBytes: 512, bytes: 4 * MIB, isReadOnly: false },
    { nsid: 2, blockBytes: 4096, bytes: MIB, isReadOnly: false },
    { nsid: 7, blockBytes: 512, bytes: MIB, isReadOnly: true },
  ]);
  expect(target.controllers).toBe(1);
});

test('reads return what was written, whatever the sizes and however many at once', async () => {
  const random = new Random(11);
  const controller = await connected({ ioQueues: 3 });
  const model = Buffer.alloc(disk.bytes);
  const namespace = controller.namespace(1);
  for (let round = 0; round < 12; round++) {
    const parts = Array.from({ length: 8 }, (_, i) => {
      const position = i * 2 ** 19 + 512 * random.below(256);
      const length = 512 * (BLOCKS[random.below(BLOCKS.length)] as number);
      return { position, data: Buffer.alloc(Math.min(length, (i + 1) * 2 ** 19 - position), 1 + random.below(255)) };
    });
    await Promise.all(parts.map(({ position, data }) => namespace.write(position, data)));
    for (const { position, data } of parts) data.copy(model, position);
    const found = await Promise.all(parts.map(({ position, data }) => namespace.read(position, data.length)));
    for (const [i, { data }] of parts.entries()) expect(found[i]?.equals(data)).toBe(true);
  }
  expect(disk.data.equals(model)).toBe(true);
  expect((await namespace.read(0, disk.bytes)).equals(model)).toBe(true);
});

describe('long data of the program', () => {
  test('is moved from and to where it is', async () => {
    const namespace = (await connected()).namespace(1);
    const take = vi.spyOn(TransferBuffers.prototype, 'take');
    const data = Buffer.from(Uint8Array.from({ length: MIB }, (_, i) => i * 7 + (i >>> 9)));
    await namespace.write(512, data);
    expect((await namespace.read(512, MIB)).equals(data)).toBe(true);
    expect(disk.data.subarray(512, 512 + MIB).equals(data)).toBe(true);
    // the target alone takes buffers
    expect(new Set(take.mock.contexts).size).toBe(1);
    take.mockRestore();
    // no region is left: the next one is the first again
    const pd = await device.allocPd();
    const mr = await pd.regMr(new Uint8Array(1));
    expect(mr.addr).toBe(2 ** 32);
    await mr.close();
    await pd.close();
  });

  test.each([8192, 16_384, MIB])('may be %i bytes of the memory of a region', async (length) => {
    const namespace = (await connected()).namespace(1);
    const pd = await device.allocPd();
    const mr = await pd.regMr(length);
    mr.buffer.fill(9);
    await namespace.write(0, mr.buffer);
    expect(disk.data.subarray(0, length).equals(Buffer.alloc(length, 9))).toBe(true);
    await mr.close();
    await pd.close();
  });

  test('is copied if it cannot be registered', async () => {
    const namespace = (await connected()).namespace(1);
    const data = new Uint8Array(Reflect.construct(ArrayBuffer, [MIB, { maxByteLength: 2 * MIB }])).fill(3);
    await namespace.write(0, data);
    expect(disk.data.subarray(0, MIB).equals(data)).toBe(true);
  });

  test('belongs to the program again when the target refuses a part', async () => {
    const namespace = (await connected()).namespace(1);
    disk.failure = new Error('EIO: a bad block');
    await expect(namespace.read(0, MIB)).rejects.toBeInstanceOf(NvmeError);
    await expect(namespace.write(0, Buffer.alloc(MIB))).rejects.toBeInstanceOf(NvmeError);
    disk.failure = undefined;
    faults.splice(0);
    expect((await namespace.read(0, MIB)).length).toBe(MIB);
    const pd = await device.allocPd();
    const mr = await pd.regMr(new Uint8Array(1));
    expect(mr.addr).toBe(2 ** 32);
    await mr.close();
    await pd.close();
  });
});

test('the other commands have their effects', async () => {
  const controller = await connected();
  const namespace = controller.namespace(2);
  await namespace.write(0, Buffer.alloc(65_536, 5));
  expect(big.flushes).toBe(0);
  await namespace.flush();
  expect(big.flushes).toBe(1);
  await namespace.write(65_536, Buffer.alloc(4096, 6), { durable: true });
  expect(big.flushes).toBe(2);
  await namespace.writeZeroes(4096, 8192);
  expect([...new Set(big.data.subarray(0, 4096))]).toEqual([5]);
  expect([...new Set(big.data.subarray(4096, 12_288))]).toEqual([0]);
  expect(big.data[12_288]).toBe(5);
  await namespace.discard(0, MIB);
  await namespace.writeZeroes(0, MIB);
  expect([...new Set(big.data)]).toEqual([0]);
});

test('streams read and write ranges', async () => {
  const controller = await connected();
  const namespace = controller.namespace(1);
  const data = Buffer.from(Array.from({ length: 700_001 }, (_, i) => i % 251));
  await pipeline(
    [data.subarray(0, 3), data.subarray(3, 100_000), data.subarray(100_000)],
    namespace.createWriteStream({ start: 512 }),
  );
  expect(disk.flushes).toBe(1);
  const parts: Buffer[] = [];
  for await (const part of namespace.createReadStream({ start: 512, end: 512 + 700_416 })) parts.push(part as Buffer);
  expect(Buffer.concat(parts).equals(Buffer.concat([data], 700_416))).toBe(true);
  await expect(pipeline([data], namespace.createWriteStream({ start: 0, end: 512 }))).rejects.toThrow(
    /must be within the range/,
  );
});

test('close makes everything durable, and frees the target', async () => {
  const controller = await connected();
  await controller.namespace(1).write(0, Buffer.alloc(512, 1));
  await controller.close();
  expect(disk.flushes).toBe(1);
  await eventually(() => expect(target.controllers).toBe(0));
  await expect(controller.namespace(1).read(0, 512)).rejects.toThrow('ECANCELED: the controller was closed');
});

test('a target that closes ends its hosts, and closes the storages', async () => {
  const controller = await connected();
  const closed = once(controller, 'close');
  await target.close();
  expect(String((await closed)[0])).toContain('ECONNRESET: the target has disconnected');
  await expect(controller.namespace(1).write(0, Buffer.alloc(512))).rejects.toThrow('ECONNRESET');
  expect([disk, readOnly, big].map(({ isClosed }) => isClosed)).toEqual([true, true, true]);
});

test('several hosts share a namespace, and one that disconnects does not end the other', async () => {
  const [one, other] = [await connected(), await connected({ hostNqn: HOST_NQN })];
  expect(target.controllers).toBe(2);
  await one.namespace(1).write(0, Buffer.alloc(4096, 9));
  expect(await other.namespace(1).read(0, 4096)).toEqual(Buffer.alloc(4096, 9));
  await one.close();
  await eventually(() => expect(target.controllers).toBe(1));
  expect(await other.namespace(1).read(0, 512)).toEqual(Buffer.alloc(512, 9));
});

test('the discovery log names the subsystems and their addresses', async () => {
  expect(await discover({ device, host: HOST })).toEqual(
    [DISCOVERY_NQN, NQN, PRIVATE_NQN].map((nqn) => ({ nqn, address: HOST, port: NVME_PORT })),
  );
});

describe('Connect is refused', () => {
  test.each<[string, Partial<NvmeConnectOptions>, string]>([
    [
      'without such a subsystem',
      { nqn: 'nqn.x' },
      'ENOENT: the target answered Connect with CONNECT_INVALID_PARAMETERS',
    ],
    ['that may not', { nqn: PRIVATE_NQN }, 'EACCES: the target answered Connect with CONNECT_INVALID_HOST'],
    [
      'where nobody listens',
      { port: 4421 },
      'ECONNREFUSED: 10.0.0.2 port 4421 refused the connection: no listener on that port',
    ],
  ])('%s', async (_name, options, message) => {
    await expect(connected(options)).rejects.toThrow(message);
    await eventually(() => expect(target.controllers).toBe(0));
  });

  test('unless the subsystem admits the host', async () => {
    const controller = await connected({ nqn: PRIVATE_NQN, hostNqn: HOST_NQN });
    expect(await controller.namespace(1).read(0, 512)).toEqual(Buffer.alloc(512));
  });
});

describe('an error of the storage', () => {
  test.each([
    ['ENOSPC', 'ENOSPC: the target answered Write with CAPACITY_EXCEEDED'],
    ['EIO', 'EIO: the target answered Write with WRITE_FAULT'],
  ])('%s is that of the host', async (code, message) => {
    const namespace = (await connected()).namespace(1);
    disk.failure = Object.assign(new Error('no'), { code });
    await expect(namespace.write(0, Buffer.alloc(2 * MIB))).rejects.toThrow(message);
    await expect(namespace.read(0, MIB)).rejects.toThrow(
      code === 'EIO' ? 'UNRECOVERED_READ_ERROR' : 'CAPACITY_EXCEEDED',
    );
    disk.failure = undefined;
    await namespace.write(0, Buffer.alloc(512, 3));
    expect(disk.data[511]).toBe(3);
  });

  test('a read-only namespace takes no writes', async () => {
    const namespace = (await connected()).namespace(7);
    expect(await namespace.read(0, 512)).toEqual(Buffer.alloc(512, 7));
    const error: unknown = await namespace.write(0, Buffer.alloc(512)).catch((refused) => refused);
    expect(error).toBeInstanceOf(NvmeError);
    expect(error).toMatchObject({ code: 'EROFS', status: 'NAMESPACE_WRITE_PROTECTED' });
  });
});

describe('wrong arguments name the value and the rule', () => {
  test.each<[SubsystemOptions[], string]>([
    [[{ nqn: 'disks', namespaces: [] }], "nqn is 'disks', must be a name that begins with 'nqn.'"],
    [
      [
        { nqn: NQN, namespaces: [] },
        { nqn: NQN, namespaces: [] },
      ],
      `nqn is '${NQN}', must be different in each subsystem`,
    ],
    [
      [{ nqn: NQN, namespaces: [{ nsid: 1025, storage: new MemoryStorage(512) }] }],
      'nsid is 1025, must be from 1 to 1024',
    ],
    [
      [{ nqn: NQN, namespaces: [{ blockBytes: 513, storage: new MemoryStorage(512) }] }],
      'blockBytes is 513, must be 512 or 4096',
    ],
    [[{ nqn: NQN, namespaces: [{ storage: new MemoryStorage(511) }] }], 'storage.bytes is 511, must be at least 512'],
    [[{ nqn: NQN, namespaces: [{ uuid: 'x', storage: new MemoryStorage(512) }] }], "uuid is 'x', must be a UUID"],
  ])('createTarget %#', async (subsystems, message) => {
    await expect(createTarget({ device: peer, port: 0, subsystems })).rejects.toThrow(message);
  });

  test.each([
    [{ subsystems: [], prot: 1 }, "createTarget has no option 'prot', must be one of"],
    [{}, 'subsystems is undefined, must be an array'],
    [{ subsystems: [{ nqn: NQN, namespace: [] }] }, "a subsystem has no option 'namespace', must be one of"],
    [{ subsystems: [{ nqn: NQN, namespaces: [{}] }] }, 'storage is undefined, must be an object'],
  ])('createTarget with the options %j', async (options, message) => {
    await expect(createTarget({ device: peer, ...options } as never)).rejects.toThrow(message);
  });

  test('connect and the calls of a namespace', async () => {
    await expect(connected({ host: '' })).rejects.toThrow("host is '', must be a name or an address");
    await expect(connected({ ioQueues: 0 })).rejects.toThrow('ioQueues is 0, must be from 1 to 128');
    await expect(connected({ timeout: 0 })).rejects.toThrow('timeout is 0, must be from 1 to 2147483647');
    await expect(connected({ nqn: 'disks' })).rejects.toThrow("nqn is 'disks', must be a name that begins with 'nqn.'");
    await expect(connected({ hostId: '1' })).rejects.toThrow("hostId is '1', must be a UUID");
    await expect(connected({ ioQueue: 1 } as never)).rejects.toThrow("connect has no option 'ioQueue', must be one of");
    const controller = await connected();
    expect(() => controller.namespace(3)).toThrow('ENODEV: the subsystem has no namespace 3');
    const namespace = controller.namespace(1);
    await expect(namespace.read(100, 512)).rejects.toThrow('position is 100, must be a multiple of 512');
    await expect(namespace.write(0, Buffer.alloc(5))).rejects.toThrow('length is 5, must be a multiple of 512');
    await expect(namespace.read(4 * MIB, 512)).rejects.toThrow(
      `position + length is ${4 * MIB + 512}, must be at most ${4 * MIB}`,
    );
  });

  test('a port that has a listener', async () => {
    await expect(createTarget({ device: peer, subsystems: [] })).rejects.toThrow('EADDRINUSE');
  });
});
