/**
 * The addon for arm64, with an arm64 Node on an emulated processor. QEMU's user mode translates system calls: it knows
 * the sockets of the udp link, but not the options of packet sockets and AF_XDP.
 */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { register } from '../../src/probe/packet/icrc.js';
import { all, describeIf, netPrivilege, programPrivilege } from '../kit/privileges.js';
import { Random } from '../kit/random.js';
import { ROOT } from '../repo/sources.js';
import { sh, vethPair } from './netns.js';
import './ownsockets.js';

const NODE = join(ROOT, 'build/arm64/bin/node');
/** The C library for arm64, which comes with the cross-compiler. */
const LIBRARIES = '/usr/aarch64-linux-gnu';
const emulated = {
  ok: existsSync(NODE) && existsSync(LIBRARIES),
  reason: 'no Node for arm64 or no C library for it: npm run build',
};

/** Writes between two devices of the process and prints the processor and whether the bytes are right. */
const PROGRAM = `
  const { openDevice, throwIfFailed } = await import('${join(ROOT, 'dist/index.js')}');
  const open = async (options) => {
    const device = await openDevice(options);
    const [pd, cq] = [await device.allocPd(), await device.createCq()];
    const mr = await pd.regMr(65536, { access: ['localWrite', 'remoteWrite'] });
    return { device, cq, mr, qp: await pd.createQp({ sendCq: cq }) };
  };
  const [a, b] = await Promise.all(JSON.parse(process.argv[1]).map(open));
  await a.qp.connect(b.qp.endpoint());
  await b.qp.connect(a.qp.endpoint(), { access: ['remoteWrite'] });
  a.mr.buffer.fill('0123456789');
  const { addr: remoteAddr, rkey } = b.mr.remote;
  a.qp.postSend({ opcode: 'RDMA_WRITE', sgList: a.mr.sge(0, 65536), remoteAddr, rkey });
  throwIfFailed(await a.cq.next());
  const offload = a.device.notes.find((note) => note.startsWith('ICRC'))?.match(/\\((.*)\\)/)[1] ?? 'none';
  console.log(process.arch, a.mr.buffer.equals(b.mr.buffer), offload);
  for (const { device } of [a, b]) await device.close({ force: true });`;

/** Prints the CRC of some bytes by each method, from several registers and alignments. */
const CRCS = `
  const { createRequire } = await import('node:module');
  const { bytes, starts, lengths } = JSON.parse(process.argv[1]);
  const buffer = Uint8Array.from(bytes);
  const { crcMethods, crc } = createRequire('/')('${join(ROOT, 'prebuilds/linux-arm64/wasm_roce.node')}');
  const all = (method) =>
    lengths.flatMap((length) =>
      starts.map((start, shift) => {
        const bytes = buffer.subarray(shift, shift + length);
        const copy = new Uint8Array(length);
        const copied = crc(method, start, bytes, copy);
        const crcs = [crc(method, start, bytes), copied];
        return Buffer.compare(copy, bytes) === 0 && crcs[0] === crcs[1] ? copied : 'the copy differs';
      }),
    );
  console.log(JSON.stringify(Object.fromEntries(crcMethods().map((method) => [method, all(method)]))));`;

async function onArm64(program: string, argument: object): Promise<string> {
  const node = ['-L', LIBRARIES, NODE, '--input-type=module', '-e', program, JSON.stringify(argument)];
  return (await promisify(execFile)('qemu-aarch64', node)).stdout;
}

describeIf(all(netPrivilege(), programPrivilege('qemu-aarch64'), emulated), 'an emulated arm64 processor', () => {
  beforeAll(() => vethPair(['lka0', 'lka1'], 197, 1500));
  afterAll(() => void sh('ip link del lka0'));

  test.each([
    ['memory', 'none', [{ addresses: ['10.0.0.1'] }, { addresses: ['10.0.0.2'] }]],
    ['udp', 'pmull', [{ interface: 'lka0' }, { interface: 'lka1' }]],
  ])(
    'two devices on the %s link, ICRC offload by %s',
    async (link, offload, places) => {
      const devices = places.map((place) => ({ link, ...place }));
      expect(await onArm64(PROGRAM, devices)).toBe(`arm64 true ${offload}\n`);
    },
    120_000,
  );

  test('each method for the CRC agrees with the CRC byte by byte', async () => {
    const bytes = Array.from(new Random(4791).bytes(4096 + 4));
    const [starts, lengths] = [
      [0, 1, 0xffffffff, 0xdebb20e3],
      [256, 512, 768, 1024, 2048, 4096],
    ];
    const right = lengths.flatMap((length) =>
      starts.map((start, shift) => register(start, Uint8Array.from(bytes.slice(shift, shift + length)))),
    );
    expect(JSON.parse(await onArm64(CRCS, { bytes, starts, lengths }))).toEqual({ pmull: right, crc32: right });
  });
});
