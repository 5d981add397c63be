// nvme-target: files as disks for hosts of NVMe over RDMA.
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Device, openDevice } from '../../src/index.js';
import { connect, discover } from '../../src/nvme.js';
import { type Running, run, start } from './run.js';

const HERE = '127.87.0.1';
const END = ['--address', HERE, '--link', 'udp'];
const NQN = 'nqn.2026-01.com.example:disks';
let device: Device;
let folder: string;
const running: Running[] = [];

beforeAll(async () => {
  device = await openDevice({ link: 'udp', addresses: ['127.87.0.2'] });
  folder = mkdtempSync(join(tmpdir(), 'wasm-roce-nvme-'));
});
afterEach(() => {
  for (const { child } of running.splice(0)) child.kill('SIGKILL');
});
afterAll(async () => {
  await device.close({ force: true });
  rmSync(folder, { recursive: true });
});

function begin(...args: string[]): Running {
  const command = start(['nvme-target', ...args, ...END]);
  running.push(command);
  return command;
}

test('blocks that a host writes are in the file, and another run serves it again', async () => {
  const [file, fixed] = [join(folder, 'disk'), join(folder, 'fixed')];
  const data = randomBytes(300_032);
  writeFileSync(fixed, data.subarray(0, 65_536));
  const args = ['--nqn', NQN, '--namespace', `disk=${file},size=8m,block=4096`, '--namespace', `fixed=${fixed},ro`];
  const first = begin(...args);
  await first.says(`serving ${NQN} on ${HERE} port 4420`);
  {
    await using controller = await connect({ device, host: HERE, nqn: NQN });
    const [disk, readOnly] = [controller.namespace(1), controller.namespace(2)];
    expect([disk.bytes, disk.blockBytes, readOnly.bytes, readOnly.isReadOnly]).toEqual([2 ** 23, 4096, 65_536, true]);
    await disk.write(4096, Buffer.concat([data], 303_104), { durable: true });
    expect((await readOnly.read(0, 65_536)).equals(data.subarray(0, 65_536))).toBe(true);
  }
  first.child.kill('SIGINT');
  expect(await first.ended).toMatchObject({ status: 0, stdout: '' });
  expect(statSync(file).size).toBe(2 ** 23);
  expect(
    readFileSync(file)
      .subarray(4096, 4096 + data.length)
      .equals(data),
  ).toBe(true);
  const second = begin('--json', ...args);
  await second.prints((stdout) => stdout.includes('}\n'));
  await using controller = await connect({ device, host: HERE, nqn: NQN });
  expect((await controller.namespace(1).read(4096, 303_104)).subarray(0, data.length).equals(data)).toBe(true);
  // what the file does not have any more cannot be read
  truncateSync(file, 4096);
  await expect(controller.namespace(1).read(4096, 4096)).rejects.toThrow('UNRECOVERED_READ_ERROR');
});

test('without --nqn the subsystem has a name of this host; hosts that --allow does not name are refused', async () => {
  const allowed = 'nqn.2026-01.com.example:host';
  const target = begin('--namespace', `disk=${join(folder, 'one')},size=1m`, '--allow', allowed, '--listen', '4421');
  await target.says('port 4421');
  const [, nqn] = (await discover({ device, host: HERE, port: 4421 })).map((entry) => entry.nqn) as [string, string];
  expect(nqn).toMatch(
    /^nqn\.2014-08\.org\.nvmexpress:uuid:[\da-f]{8}-[\da-f]{4}-8[\da-f]{3}-[89ab][\da-f]{3}-[\da-f]{12}$/,
  );
  await expect(connect({ device, host: HERE, port: 4421, nqn })).rejects.toThrow('EACCES');
  await (await connect({ device, host: HERE, port: 4421, nqn, hostNqn: allowed })).close();
});

test.each([
  [[], /required option '--namespace <name=file>' not specified|--namespace is missing/],
  [['--namespace', 'disk'], /must be NAME=FILE, perhaps with ,size=1G ,block=4096 or ,ro/],
  [['--namespace', 'a=b,block=1024'], /block=1024 must be size=BYTES, block=512, block=4096 or ro/],
  [['--namespace', 'a=b', '--namespace', 'a=c'], /There are two disks a/],
  [['--namespace', 'a=b,size=1t'], /must be a number of bytes/],
  [['--namespace', 'a=b', '--link', 'memory'], /no host could connect/],
])('wrong usage: %j', async (args, message) => {
  const { status, stderr } = await run(['nvme-target', ...args]);
  expect([status, stderr]).toEqual([2, expect.stringMatching(message)]);
});

test('a missing file, or one without a size, is refused', async () => {
  const none = await run(['nvme-target', '--namespace', `a=${join(folder, 'none')}`, ...END]);
  expect([none.status, none.stderr]).toEqual([expect.any(Number), expect.stringContaining('ENOENT')]);
  writeFileSync(join(folder, 'empty'), '');
  const empty = await run(['nvme-target', '--namespace', `a=${join(folder, 'empty')}`, ...END]);
  expect(empty.stderr).toContain('has no size: give one, such as size=1G');
  writeFileSync(join(folder, 'long'), Buffer.alloc(1024));
  const long = await run(['nvme-target', '--namespace', `a=${join(folder, 'long')},size=512`, ...END]);
  expect(long.stderr).toContain('has 1024 bytes, which are more than 512');
});

describe('a host', () => {
  const HOST = ['--address', '127.87.0.3', '--link', 'udp'];
  let file: string;
  beforeEach(async () => {
    file = join(folder, 'tested');
    writeFileSync(file, Buffer.alloc(2 ** 20, 4));
    const other = ['--namespace', `small=${join(folder, 'small')},size=64k,block=4096`];
    await begin('--nqn', NQN, '--namespace', `tested=${file}`, ...other).says('serving');
  });

  test('discover lists the subsystems', async () => {
    const { status, stdout } = await run(['nvme', 'discover', HERE, ...HOST]);
    expect({ status, stdout }).toEqual({ status: 0, stdout: `${NQN}  ${HERE}  port 4420\n` });
    const json = await run(['nvme', 'discover', HERE, '--json', ...HOST]);
    expect(JSON.parse(json.stdout)).toEqual([{ nqn: NQN, address: HERE, port: 4420 }]);
  });

  test('connect-test reads each namespace, and changes none', async () => {
    const { status, stdout } = await run(['nvme', 'connect-test', HERE, NQN, '--seconds', '0.2', ...HOST]);
    expect(status).toBe(0);
    expect(stdout).toMatch(
      /^namespace 1: 1 MiB, blocks of 512 bytes\n {2}\d+ reads of 4 KiB: \d+\/s, \d+ MiB\/s, median .* us, p99 .* us\nnamespace 2: 64 KiB/,
    );
    expect(readFileSync(file).every((byte) => byte === 4)).toBe(true);
  });

  test('connect-test --write writes to one namespace, and reads it back', async () => {
    const args = ['--nsid', '1', '--write', '512k', '--block', '64k', '--depth', '3', '--seconds', '0.1', '--json'];
    const { status, stdout } = await run(['nvme', 'connect-test', HERE, NQN, ...args, ...HOST]);
    expect(status).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({
      ...{ host: HERE, nqn: NQN, block: 65_536, depth: 3, written: 2 ** 19 },
      namespaces: [{ nsid: 1, bytes: 2 ** 20, latency: { min: expect.any(Number) } }],
    });
    const content = readFileSync(file);
    expect(content.subarray(0, 2 ** 19).some((byte) => byte !== 4)).toBe(true);
    expect(content.subarray(2 ** 19).every((byte) => byte === 4)).toBe(true);
  });

  test.each([
    [['--write', '4k'], 2, '--write needs --nsid'],
    [['--write', '1000', '--nsid', '1'], 2, 'It must be a multiple of 4096'],
    [['--nsid', '9'], 1, 'the subsystem has no namespace 9'],
    [['--block', '512'], 2, '--block is 512, must be a multiple of 4096 and at most 65536 for namespace 2'],
    [['--write', '2m', '--nsid', '1'], 2, '--write is 2097152, must be at most 1048576'],
  ])('connect-test %j', async (args, expected, message) => {
    const { status, stderr } = await run(['nvme', 'connect-test', HERE, NQN, ...args, ...HOST]);
    expect({ status, stderr }).toEqual({ status: expected, stderr: expect.stringContaining(message) });
  });

  test('a missing subsystem and a missing target are reported', async () => {
    const none = await run(['nvme', 'connect-test', HERE, `${NQN}2`, ...HOST]);
    expect({ status: none.status, stderr: none.stderr }).toEqual({
      status: 1,
      stderr: expect.stringContaining('ENOENT: the target answered Connect with CONNECT_INVALID_PARAMETERS'),
    });
    const refused = await run(['nvme', 'discover', HERE, '-p', '4499', ...HOST]);
    expect({ status: refused.status, stderr: refused.stderr }).toEqual({
      status: 1,
      stderr: expect.stringContaining('ECONNREFUSED'),
    });
  });
});
