/**
 * The addon for arm64, with an arm64 Node on an emulated processor. QEMU's user mode translates system calls: it knows
 * the sockets of the udp link, but not the options of packet sockets and AF_XDP.
 */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { all, describeIf, netPrivilege, programPrivilege } from '../kit/privileges.js';
import { ROOT } from '../repo/sources.js';
import { sh, vethPair } from './netns.js';

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
  a.qp.postSend({ opcode: 'RDMA_WRITE', sgList: a.mr.slice(0, 65536), remoteAddr, rkey });
  throwIfFailed(await a.cq.next());
  console.log(process.arch, a.mr.buffer.equals(b.mr.buffer));
  for (const { device } of [a, b]) await device.close({ force: true });`;

async function onArm64(options: readonly object[]): Promise<string> {
  const node = ['-L', LIBRARIES, NODE, '--input-type=module', '-e', PROGRAM, JSON.stringify(options)];
  return (await promisify(execFile)('qemu-aarch64', node)).stdout;
}

describeIf(all(netPrivilege(), programPrivilege('qemu-aarch64'), emulated), 'an emulated arm64 processor', () => {
  beforeAll(() => vethPair(['lka0', 'lka1'], 197, 1500));
  afterAll(() => void sh('ip link del lka0'));

  test.each([
    ['memory', [{ addresses: ['10.0.0.1'] }, { addresses: ['10.0.0.2'] }]],
    ['udp', [{ interface: 'lka0' }, { interface: 'lka1' }]],
  ])(
    'two devices on the %s link',
    async (link, places) => {
      expect(await onArm64(places.map((place) => ({ link, ...place })))).toBe('arm64 true\n');
    },
    120_000,
  );
});
