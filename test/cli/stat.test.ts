// Counters of devices in other processes.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { PublishedDevice } from '../../src/index.js';
import { connectedPair, type Pair } from '../verbs/pair.js';
import { run } from './run.js';

let base: string;
let pair: Pair;
const env = () => ({ env: { XDG_RUNTIME_DIR: base } });

beforeAll(async () => {
  const before = process.env.XDG_RUNTIME_DIR;
  base = mkdtempSync(join(tmpdir(), 'wasm-roce-'));
  process.env.XDG_RUNTIME_DIR = base;
  pair = await connectedPair({ open: { publish: 'one' } });
  if (before === undefined) delete process.env.XDG_RUNTIME_DIR;
  else process.env.XDG_RUNTIME_DIR = before;
  const { a, b } = pair;
  a.qp.postSend({ opcode: 'RDMA_WRITE', sgList: a.mr.slice(0, 8), remoteAddr: b.mr.iova, rkey: b.mr.rkey });
  await a.cq.next({ timeout: 5000 });
});

afterAll(async () => {
  await pair[Symbol.asyncDispose]();
  rmSync(base, { recursive: true });
});

test('a table for each device, with a column for each queue pair', async () => {
  const { status, stdout } = await run(['stat'], env());
  expect(status).toBe(0);
  expect(stdout).toMatch(new RegExp(`one, process ${process.pid}: memory link on mem0, ACTIVE, `));
  expect(stdout).toMatch(/ {2}qp 0x[0-9a-f]{6} RC RTS to [\d.]+ qp 0x[0-9a-f]{6}\n/);
  expect(stdout).toMatch(/counter +device +0x[0-9a-f]{6}/);
  expect(stdout).toMatch(/sent_pkts +1 +1/);
  expect(stdout).not.toContain('drop_icrc');
  expect((await run(['stat', '--all'], env())).stdout).toContain('drop_icrc');
});

test('--json: an array and nothing else', async () => {
  const devices = JSON.parse((await run(['stat', String(process.pid), '--json'], env())).stdout) as PublishedDevice[];
  expect(devices).toHaveLength(2);
  expect(devices[1]).toMatchObject({ name: 'one', counters: { rx_write_requests: 1 }, qps: [{ state: 'RTS' }] });
});

test('--prometheus: one family after the other, every line as the format wants it', async () => {
  const { stdout } = await run(['stat', '--prometheus'], env());
  const lines = stdout.trimEnd().split('\n');
  for (const line of lines)
    expect(line).toMatch(/^(# TYPE \w+ (counter|gauge)|\w+\{\w+="[^"\n]*"(,\w+="[^"\n]*")*\} \d+)$/);
  const families = lines.filter((line) => line.startsWith('#')).map((line) => line.split(' ')[2]);
  expect(new Set(families).size).toBe(families.length);
  expect(stdout).toContain(
    `# TYPE wasm_roce_sent_pkts_total counter\nwasm_roce_sent_pkts_total{name="one",pid="${process.pid}"} 1\n`,
  );
  expect(stdout).toMatch(/wasm_roce_qp_sent_pkts_total\{name="one",pid="\d+",qp="0x[0-9a-f]{6}",type="RC"\} 1/);
  expect(stdout).toMatch(/wasm_roce_link_tx_frames_total\{/);
});

test('a name that nobody has: status 1, and the names that there are', async () => {
  const { status, stderr } = await run(['stat', 'two'], env());
  expect(status).toBe(1);
  expect(stderr).toMatch(/^wasm-roce: no device is published as 'two'; there is one \(process \d+\), one/);
  expect((await run(['stat', '--json', '--prometheus'], env())).status).toBe(2);
});

test('nobody publishes: it says so', async () => {
  const empty = mkdtempSync(join(tmpdir(), 'wasm-roce-'));
  const { stdout } = await run(['stat'], { env: { XDG_RUNTIME_DIR: empty } });
  expect(stdout).toBe('no process of this user publishes a device\n');
  rmSync(empty, { recursive: true });
});
