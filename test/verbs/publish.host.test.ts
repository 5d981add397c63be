// Devices published to other processes.
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createMemoryHub, publishedDevices } from '../../src/index.js';
import { runtimeFolder } from '../../src/link/runtimefolder.js';
import { connectedPair, openOn } from './pair.js';

const before = process.env.XDG_RUNTIME_DIR;
let base: string;

beforeEach(() => {
  base = mkdtempSync(join(tmpdir(), 'wasm-roce-'));
  process.env.XDG_RUNTIME_DIR = base;
});

afterEach(() => {
  if (before === undefined) delete process.env.XDG_RUNTIME_DIR;
  else process.env.XDG_RUNTIME_DIR = before;
  rmSync(base, { recursive: true });
});

test('a published device gives its counters and those of its queue pairs until it is closed', async () => {
  const pair = await connectedPair({ open: { publish: true } });
  const { a, b } = pair;
  a.qp.postSend({ opcode: 'RDMA_WRITE', sgList: a.mr.sge(0, 8), remoteAddr: b.mr.iova, rkey: b.mr.rkey });
  await a.cq.next({ timeout: 20_000 });
  const found = await publishedDevices();
  expect(found).toHaveLength(2);
  expect(found[0]).toMatchObject({
    name: a.device.label,
    pid: process.pid,
    state: 'ACTIVE',
    link: 'memory',
    counters: { sent_pkts: 1, rcvd_pkts: 1, 'link.tx_frames': 1 },
    qps: [{ qpNum: a.qp.qpNum, type: 'RC', state: 'RTS', peer: { qpNum: b.qp.qpNum }, counters: { sent_pkts: 1 } }],
  });
  expect(found[0]?.counters).toEqual(a.device.counters());
  await pair[Symbol.asyncDispose]();
  expect(readdirSync(runtimeFolder())).toEqual([]);
  expect(await publishedDevices()).toEqual([]);
});

test('a program may choose the published name, and wrong names are refused', async () => {
  const hub = createMemoryHub();
  await using device = await openOn(hub, { publish: 'storage.1' });
  expect((await publishedDevices()).map(({ name }) => name)).toEqual(['storage.1']);
  await device.publish('again');
  expect(await publishedDevices()).toHaveLength(1);
  await expect(openOn(hub, { publish: '../x' })).rejects.toThrow(
    /publish is '\.\.\/x', must be 1 to 32 of the characters/,
  );
});

test('a device that is published twice at once is published once', async () => {
  const device = await openOn(createMemoryHub());
  await Promise.all([device.publish('one'), device.publish('two')]);
  expect((await publishedDevices()).map(({ name }) => name)).toEqual(['one']);
  await device.close();
  expect(readdirSync(runtimeFolder())).toEqual([]);
});

test('a request that is read while the device closes is not answered', async () => {
  const device = await openOn(createMemoryHub(), { publish: true });
  const [file] = readdirSync(runtimeFolder()) as [string];
  const socket = connect(join(runtimeFolder(), file));
  await once(socket, 'connect');
  // The connection was accepted once a later one was answered.
  expect(await publishedDevices()).toHaveLength(1);
  const answers: string[] = [];
  socket.on('data', (answer) => answers.push(String(answer)));
  const gone = new Promise((resolve) => socket.on('error', () => {}).on('close', resolve));
  socket.write('stat\n');
  await device.close();
  await gone;
  expect(answers).toEqual([]);
});

test('the folder of sockets is accessible to its user only, and a folder of others is refused', async () => {
  await using device = await openOn(createMemoryHub(), { publish: true });
  expect(device.isClosed).toBe(false);
  expect(statSync(runtimeFolder()).mode & 0o777).toBe(0o700);
  process.env.XDG_RUNTIME_DIR = join(base, 'other');
  mkdirSync(runtimeFolder(), { recursive: true, mode: 0o755 });
  await expect(publishedDevices()).rejects.toThrow(
    /EPERM: .*\/other\/wasm-roce must be a folder of this user with mode 700/,
  );
});

test('sockets of dead processes are ignored and removed', async () => {
  await using device = await openOn(createMemoryHub(), { publish: true });
  const stale = join(runtimeFolder(), 'dead@1.1.sock');
  const program =
    'require("node:net").createServer().listen(process.argv[1], () => process.kill(process.pid, "SIGKILL"))';
  spawnSync(process.execPath, ['-e', program, stale]);
  expect(existsSync(stale)).toBe(true);
  const names = (await publishedDevices()).map(({ name }) => name);
  expect(names).toEqual([device.label]);
  expect(existsSync(stale)).toBe(false);
});

test('a second request gets an answer, and a flood of bytes none', async () => {
  await using device = await openOn(createMemoryHub(), { publish: true });
  const [file] = readdirSync(runtimeFolder());
  const talk = (words: string) =>
    new Promise<string>((resolve) => {
      let text = '';
      const socket = connect(join(runtimeFolder(), file as string), () => socket.write(words));
      socket.on('data', (part) => {
        text += part;
        if (text.includes('\n')) socket.destroy();
      });
      socket.on('error', () => {});
      socket.on('close', () => resolve(text));
    });
  expect(JSON.parse(await talk('hello\n'))).toEqual({ error: 'the only request is stat' });
  expect(await talk('x'.repeat(5000))).toBe('');
  expect(JSON.parse(await talk('stat\n'))).toMatchObject({ device: device.label });
});
