// Counters of devices in other processes.
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import parse from 'parse-prometheus-text-format';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { metricOf } from '../../src/cli/stat/metrics.js';
import { prometheusText } from '../../src/cli/stat/prometheus.js';
import { type Counters, openDevice, type PublishedDevice } from '../../src/index.js';
import { eventually } from '../kit/eventually.js';
import { connectedPair, loopback, type Pair } from '../verbs/pair.js';
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

/** Sends one more packet. */
async function write(): Promise<void> {
  const { a, b } = pair;
  a.qp.postSend({ opcode: 'RDMA_WRITE', sgList: a.mr.sge(0, 8), remoteAddr: b.mr.iova, rkey: b.mr.rkey });
  await a.cq.next({ timeout: 20_000 });
}

afterAll(async () => {
  await pair[Symbol.asyncDispose]();
  rmSync(base, { recursive: true });
});

test('prints a table for each device, with a column for each queue pair', async () => {
  const { status, stdout } = await run(['stat'], env());
  expect(status).toBe(0);
  expect(stdout).toMatch(new RegExp(`one, process ${process.pid} \\(.+\\): memory link on mem0, ACTIVE, `));
  expect(stdout).toMatch(/ {2}qp 0x[0-9a-f]{6} RC RTS to [\d.]+ qp 0x[0-9a-f]{6}\n/);
  expect(stdout).toMatch(/counter +device +0x[0-9a-f]{6}/);
  expect(stdout).toMatch(/sent_pkts +1 +1/);
  expect(stdout).not.toContain('drop_icrc');
  expect((await run(['stat', '--all'], env())).stdout).toContain('drop_icrc');
});

test('--explain prints what the counters of silent drops mean', async () => {
  const { stdout } = await run(['stat', 'one', '--all', '--explain'], env());
  expect(stdout).toMatch(/^ {2}drop_icrc: the ICRC is wrong: damaged in transit/m);
  expect((await run(['stat', 'one', '--explain'], env())).stdout).not.toContain('drop_icrc');
});

test('--json prints an array and nothing else', async () => {
  const devices = JSON.parse((await run(['stat', String(process.pid), '--json'], env())).stdout) as PublishedDevice[];
  expect(devices).toHaveLength(2);
  expect(devices[1]).toMatchObject({ name: 'one', counters: { rx_write_requests: 1 }, qps: [{ state: 'RTS' }] });
});

describe('--prometheus', () => {
  test('a foreign parser finds each metric, with its type and its help', async () => {
    const { stdout } = await run(['stat', '--prometheus'], env());
    const families = parse(stdout);
    expect(families.length).toBeGreaterThan(100);
    expect(new Set(families.map(({ name }) => name)).size).toBe(families.length);
    for (const { name, type, help, metrics } of families) {
      expect(type, name).toBe(name.endsWith('_total') ? 'COUNTER' : 'GAUGE');
      expect(help, name).toMatch(/^(?!The counter).{8,}\.$/);
      const labels = metrics.map((metric) => JSON.stringify(metric.labels));
      expect(new Set(labels).size, name).toBe(labels.length);
    }
    const sent = families.find(({ name }) => name === 'wasm_roce_sent_pkts_total')?.metrics;
    expect(sent).toContainEqual({ value: '1', labels: { name: 'one' } });
    expect(families.find(({ name }) => name === 'wasm_roce_link_tx_frames_total')).toBeDefined();
    const ofQps = families.find(({ name }) => name === 'wasm_roce_qp_sent_pkts_total')?.metrics;
    expect(ofQps?.[0]?.labels).toEqual({ name: expect.any(String), qp: expect.stringMatching(/^0x/), type: 'RC' });
  });

  const device = (pid: number, name: string, counters: Counters): PublishedDevice => ({
    ...{ name, pid, command: `server ${pid}`, device: 'wasm0', interface: 'eth0', link: 'packet', state: 'ACTIVE' },
    ...{ addresses: [], counters, qps: [] },
  });

  test('a restarted process continues its series, and two devices of one name have their own', () => {
    const text = (...pids: number[]) => prometheusText(pids.map((pid) => device(pid, 'a "b"\n\\', { sent_pkts: 3 })));
    const isSeries = (line: string) => !line.startsWith('wasm_roce_program_info{');
    const series = (pid: number) => text(pid).split('\n').filter(isSeries);
    expect(series(7)).toEqual(series(4711));
    expect(text(7)).toContain('pid="7",command="server 7"} 1\n');
    const names = parse(text(9, 7))[0]?.metrics.map(({ labels }) => labels?.name);
    expect(names).toEqual(['a "b"\n\\', 'a "b"\n\\#2']);
  });

  test('a value that can fall is a gauge, and every counter of each link has a text of its own', async () => {
    const { 'link.tx_errors': counter, 'link.tx_last_errno': gauge } = Object.fromEntries(
      ['link.tx_errors', 'link.tx_last_errno'].map((name) => [name, metricOf(name).type]),
    );
    expect([counter, gauge]).toEqual(['counter', 'gauge']);
    for (const options of [loopback(), { link: 'memory', fault: {} }] as const) {
      await using device = await openDevice(options);
      for (const name of Object.keys(device.counters())) expect(metricOf(name).help).not.toMatch(/^The counter/);
    }
  });
});

describe('--watch', () => {
  const times = (text: string, part: string) => text.split(part).length - 1;
  /** Things that a run could leave behind: sockets in the folder, and connections to this process. */
  const traces = () => [readdirSync(join(base, 'wasm-roce')), process.getActiveResourcesInfo().filter(isPipe).length];
  const isPipe = (name: string) => name === 'PipeWrap';

  test('into a pipe prints one table after the other, with rates; Ctrl-C ends it and leaves nothing', async () => {
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
    await eventually(() => expect(traces()).toEqual(before));
  });

  test('--json prints one line each time', async () => {
    const watching = start(['stat', '--watch', '0.1', '--json'], env());
    await watching.prints((stdout) => times(stdout, '\n') >= 3);
    watching.child.kill('SIGINT');
    const { status, stdout } = await watching.ended;
    expect(status).toBe(130);
    for (const line of stdout.trimEnd().split('\n')) expect(JSON.parse(line)).toHaveLength(2);
  });

  test('on a terminal clears the screen each time, and Ctrl-C on its keyboard ends it', async () => {
    const before = traces();
    // whether there are colours depends on TERM and CI
    const watching = start(['stat', 'one', '--watch', '0.1'], { env: { ...env().env, NO_COLOR: '1' }, terminal: true });
    await watching.prints((stdout) => times(stdout, '\u001b[H\u001b[2J') >= 3);
    watching.child.stdin?.write('\u0003');
    const { status, stdout } = await watching.ended;
    expect(status).toBe(130);
    for (const screen of stdout.split('\u001b[H\u001b[2J').slice(1, -1))
      expect(screen.trim()).toMatch(/^one, process \d+ \(.+\): memory link/);
    // no mode of the terminal is set that would have to be reset
    expect(stdout).not.toContain('\u001b[?');
    await eventually(() => expect(traces()).toEqual(before));
  });

  test('without a device says so, and goes on', async () => {
    const watching = start(['stat', '--watch', '0.1'], { env: { XDG_RUNTIME_DIR: mkdtempSync(join(base, 'none-')) } });
    await watching.prints((stdout) => times(stdout, 'and no process of this user publishes a device') >= 2);
    watching.child.kill('SIGINT');
    expect((await watching.ended).status).toBe(130);
  });
});

test('an unknown name gives status 1, and the known names', async () => {
  const { status, stderr } = await run(['stat', 'two'], env());
  expect(status).toBe(1);
  expect(stderr).toMatch(/^wasm-roce: no device is called 'two'; the devices are: one \(process \d+\), one/);
  expect((await run(['stat', '--json', '--prometheus'], env())).status).toBe(2);
});

test('without a device it says so', async () => {
  const empty = mkdtempSync(join(tmpdir(), 'wasm-roce-'));
  const { stdout } = await run(['stat'], { env: { XDG_RUNTIME_DIR: empty } });
  expect(stdout).toBe('no program shares its addresses, and no process of this user publishes a device\n');
  rmSync(empty, { recursive: true });
});
