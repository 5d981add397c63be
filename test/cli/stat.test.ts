// Counters of devices in other processes.
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { PublishedDevice } from '../../src/index.js';
import { connectedPair, type Pair } from '../verbs/pair.js';
import { run, start } from './run.js';

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
  await write();
});

/** One packet more. */
async function write(): Promise<void> {
  const { a, b } = pair;
  a.qp.postSend({ opcode: 'RDMA_WRITE', sgList: a.mr.slice(0, 8), remoteAddr: b.mr.iova, rkey: b.mr.rkey });
  await a.cq.next({ timeout: 5000 });
}

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

test('--explain: what the counters of silent drops mean', async () => {
  const { stdout } = await run(['stat', 'one', '--all', '--explain'], env());
  expect(stdout).toMatch(/^ {2}drop_icrc: the ICRC is wrong: damaged on the way/m);
  expect((await run(['stat', 'one', '--explain'], env())).stdout).not.toContain('drop_icrc');
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

describe('--watch', () => {
  const times = (text: string, part: string) => text.split(part).length - 1;
  /** What a run could leave: sockets in the folder, and connections to this process. */
  const traces = () => [readdirSync(join(base, 'wasm-roce')), process.getActiveResourcesInfo().filter(isPipe).length];
  const isPipe = (name: string) => name === 'PipeWrap';

  test('into a pipe: one table after the other, with rates; Ctrl-C ends it and leaves nothing', async () => {
    const before = traces();
    const watching = start(['stat', 'one', '--watch', '0.1'], env());
    await watching.prints((stdout) => times(stdout, 'one, process') >= 1);
    await write();
    await watching.prints((stdout) => /rx_write_requests +\d+ \(\d+\/s\)/.test(stdout));
    await watching.prints((stdout) => times(stdout, 'one, process') >= 3);
    watching.child.kill('SIGINT');
    const { status, stdout, stderr } = await watching.ended;
    expect({ status, stderr }).toEqual({ status: 130, stderr: '' });
    expect(stdout).not.toContain('\u001b');
    expect(stdout.endsWith('\n')).toBe(true);
    await expect.poll(traces).toEqual(before);
  });

  test('--json: one line each time', async () => {
    const watching = start(['stat', '--watch', '0.1', '--json'], env());
    await watching.prints((stdout) => times(stdout, '\n') >= 3);
    watching.child.kill('SIGINT');
    const { status, stdout } = await watching.ended;
    expect(status).toBe(130);
    for (const line of stdout.trimEnd().split('\n')) expect(JSON.parse(line)).toHaveLength(2);
  });

  test('on a terminal: the screen is cleared each time; Ctrl-C on its keyboard ends it', async () => {
    const before = traces();
    const watching = start(['stat', 'one', '--watch', '0.1'], { ...env(), terminal: true });
    await watching.prints((stdout) => times(stdout, '\u001b[H\u001b[2J') >= 3);
    watching.child.stdin?.write('\u0003');
    const { status, stdout } = await watching.ended;
    expect(status).toBe(130);
    for (const screen of stdout.split('\u001b[H\u001b[2J').slice(1, -1))
      expect(screen.trim()).toMatch(/^one, process \d+: memory link/);
    // no mode of the terminal is switched that would have to be switched back
    expect(stdout).not.toContain('\u001b[?');
    await expect.poll(traces).toEqual(before);
  });

  test('nobody publishes: it says so, and goes on', async () => {
    const watching = start(['stat', '--watch', '0.1'], { env: { XDG_RUNTIME_DIR: mkdtempSync(join(base, 'none-')) } });
    await watching.prints((stdout) => times(stdout, 'no process of this user publishes a device') >= 2);
    watching.child.kill('SIGINT');
    expect((await watching.ended).status).toBe(130);
  });
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
