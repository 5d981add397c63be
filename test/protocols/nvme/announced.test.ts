// Our host reads, bounds and obeys the announcements of a target.
import { afterEach, expect, test } from 'vitest';
import { connect, discover, type NvmeController } from '../../../src/nvme.js';
import { discoveryLog } from '../../../src/protocols/nvme/discovery.js';
import { NvmOpcode } from '../../../src/protocols/nvme/wire.js';
import { device, HOST, peer, useDevices } from '../devices.js';
import { RawTarget, type RawTargetOptions } from './rawtarget.js';

useDevices();

const NQN = 'nqn.2026-01.com.example:disks';
let target: RawTarget;
let controller: NvmeController | undefined;

afterEach(async () => {
  await controller?.close();
  controller = undefined;
  await target.close();
});

async function open(options: RawTargetOptions = {}): Promise<NvmeController> {
  target = await RawTarget.listen(peer, options);
  controller = await connect({ device, host: HOST, nqn: NQN, keepAlive: 0, timeout: 5000 });
  return controller;
}

const blocksOf = (opcode: NvmOpcode) =>
  target.seen.filter((command) => command.opcode === opcode).map(({ blocks }) => blocks);

test.each([
  [2, 0, 16_384],
  [4, 0, 65_536],
  [0, 0, 131_072],
  [1, 2, 32_768],
  [63, 0, 131_072],
])('MDTS %i with pages of 2^(12 + %i) bytes: no command moves more than %i bytes', async (mdts, page, most) => {
  const { namespaces } = await open({
    capabilities: 127n | (15n << 24n) | (1n << 37n) | (BigInt(page) << 48n),
    controller: (data) => data.writeUInt8(mdts, 77),
  });
  const [disk] = namespaces;
  const data = Buffer.alloc(2 ** 18, 'data');
  await disk?.write(0, data);
  expect((await disk?.read(0, data.length))?.equals(data)).toBe(true);
  for (const opcode of [NvmOpcode.READ, NvmOpcode.WRITE])
    expect(new Set(blocksOf(opcode))).toEqual(new Set([most / 512]));
});

test.each<[string, (data: Buffer) => void, RegExp]>([
  ['metadata', (data) => data.writeUInt16LE(8, 128), /its blocks have 8 bytes of metadata each/],
  ['too small blocks', (data) => data.writeUInt8(8, 130), /its blocks have 2\^8 bytes/],
  ['too large blocks', (data) => data.writeUInt8(18, 130), /its blocks have 262144 bytes, and 131072 can be moved/],
  [
    'a format of metadata, in the upper bits of FLBAS',
    (data) => {
      data[26] = 0x20;
      data.writeUInt16LE(16, 128 + 4 * 16);
      data[130 + 4 * 16] = 9;
    },
    /16 bytes of metadata/,
  ],
])('a namespace with %s is refused when it is used', async (_, change, message) => {
  const { namespaces } = await open({ namespace: change });
  const [disk] = namespaces;
  await expect(disk?.read(0, 512)).rejects.toMatchObject({
    code: 'EOPNOTSUPP',
    message: expect.stringMatching(message),
  });
  await expect(disk?.write(0, Buffer.alloc(512))).rejects.toThrow(message);
  expect(target.seen).toEqual([]);
});

test('a target without Write Zeroes gets zeroes, and one without Dataset Management keeps the blocks', async () => {
  const { namespaces } = await open({ controller: (data) => data.writeUInt16LE(0, 520) });
  const [disk] = namespaces;
  await disk?.writeZeroes(512, 200_704);
  expect(new Set(target.disk.subarray(512, 512 + 200_704))).toEqual(new Set([0]));
  expect(target.disk[512 + 200_704]).not.toBe(0);
  await disk?.discard(0, 4096);
  expect(new Set(target.seen.map(({ opcode }) => opcode))).toEqual(new Set([NvmOpcode.WRITE]));
});

test('a Write Zeroes has its own size limit, or that of transfers', async () => {
  const { namespaces } = await open({ commandSet: (data) => data.writeUInt8(3, 1) });
  await namespaces[0]?.writeZeroes(0, 2 ** 17);
  expect(blocksOf(NvmOpcode.WRITE_ZEROES)).toEqual([64, 64, 64, 64]);
  await controller?.close();
  await target.close();
  const other = await open({ controller: (data) => data.writeUInt8(4, 77) });
  await other.namespaces[0]?.writeZeroes(0, 2 ** 17);
  expect(blocksOf(NvmOpcode.WRITE_ZEROES)).toEqual([128, 128]);
});

test('a discard of 2^32 blocks and more has several ranges', async () => {
  const blocks = 2n ** 33n;
  const { namespaces } = await open({ blocks });
  await namespaces[0]?.discard(0, Number(blocks) * 512);
  const [command, ...others] = target.seen;
  expect(others).toEqual([]);
  expect(command?.ranges).toEqual([
    [0n, 0xffffffff],
    [0xffffffffn, 0xffffffff],
    [0x1fffffffen, 2],
  ]);
});

test('ranges keep to DMRL, DMRSL and DMSL', async () => {
  const { namespaces } = await open({
    commandSet: (data) => {
      data[3] = 3;
      data.writeUInt32LE(8, 4);
      data.writeBigUInt64LE(20n, 8);
    },
  });
  await namespaces[0]?.discard(512, 50 * 512);
  expect(target.seen.map(({ ranges }) => ranges)).toEqual([
    [
      [1n, 8],
      [9n, 8],
      [17n, 4],
    ],
    [
      [21n, 8],
      [29n, 8],
      [37n, 4],
    ],
    [
      [41n, 8],
      [49n, 2],
    ],
  ]);
});

test('queues of one entry are an error of the target', async () => {
  const capabilities = 0n | (15n << 24n) | (1n << 37n);
  await expect(open({ capabilities })).rejects.toThrow(/its queues have 1 entry, must have at least 2/);
});

test.each<[string, () => Buffer, RegExp]>([
  [
    '2^40 records',
    () => {
      const log = discoveryLog([], 0);
      log.writeBigUInt64LE(2n ** 40n, 8);
      return log;
    },
    /1099511627776 records, must have at most 4096/,
  ],
  [
    'another generation each time',
    (() => {
      let generation = 0;
      return () => discoveryLog([], generation++);
    })(),
    /has changed 10 times while it was read/,
  ],
])('a discovery log with %s is refused', async (_, log, message) => {
  target = await RawTarget.listen(peer, { log });
  await expect(discover({ device, host: HOST })).rejects.toThrow(message);
});

test('namespaces without end are refused', async () => {
  const namespaces = (above: number) => Array.from({ length: 1024 }, (_, i) => above + 1 + i);
  const options = { namespaces, namespace: (data: Buffer) => data.fill(0) };
  await expect(open(options)).rejects.toThrow(/it has more than 16384 namespaces/);
});
