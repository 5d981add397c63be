// The demo in two namespaces, in one process, and stopped in the middle.
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import type { Row } from '../../src/cli/demo/active.js';
import { TASKS } from '../../src/cli/demo/operation.js';
import { eventually } from '../kit/eventually.js';
import { netPrivilege, testIf } from '../kit/privileges.js';
import { lives } from '../kit/processes.js';
import { NO_ADDON, run, start } from './run.js';

interface Result {
  ok: boolean;
  place: { kind: string; reason: string };
  rows: Row[];
}

function check(stdout: string, links: readonly string[]): Result {
  const result = JSON.parse(stdout) as Result;
  const expected = links.flatMap((link) => TASKS.map(({ name, size }) => `${link} ${name} ${size}`));
  expect(result.rows.map(({ link, operation, size }) => `${link} ${operation} ${size}`)).toEqual(expected);
  for (const { wrong, count, size, verifiedBytes, latency, gbitPerSecond } of result.rows) {
    expect(wrong).toBe('');
    expect(verifiedBytes).toBeGreaterThanOrEqual(count * size);
    expect(latency.p99).toBeGreaterThanOrEqual(latency.median);
    expect(gbitPerSecond).toBeGreaterThan(0);
  }
  expect(result.ok).toBe(true);
  return result;
}

describe('the demo in one process', () => {
  test('everything over the memory link', async () => {
    const { status, stdout, stderr } = await run(['demo', '--link', 'memory', '--json']);
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    expect(check(stdout, ['memory']).place.kind).toBe('process');
  });

  test('says why where namespaces cannot be made: here the program for it is not found', async () => {
    const { status, stdout } = await run(['demo'], { env: { PATH: '/nowhere' } });
    expect(status).toBe(0);
    expect(stdout.split('\n')[0]).toBe('two cards in this process, on the memory link: unshare is not installed');
    expect(stdout).toContain('retransmits');
  });

  test('works without the addon', async () => {
    const { status, stdout } = await run(['demo', '--json'], { node: NO_ADDON });
    expect(status).toBe(0);
    expect(check(stdout, ['memory']).place.reason).toMatch(/the native addon is not built/);
  });

  // A user namespace without a mapping permits no further one, as on hosts that forbid them.
  testIf(netPrivilege(), 'where the kernel forbids namespaces', async () => {
    const { status, stdout } = await run(['demo', '--json'], { prefix: ['unshare', '--user'] });
    expect(status).toBe(0);
    expect(check(stdout, ['memory']).place.reason).toMatch(/unshare .* is not permitted here/);
  });

  test('ends with status 2 for a thread for each card, or 3 where no other link is there', async () => {
    const named = await run(['demo', '--link', 'memory', '--mode', 'worker']);
    expect(named).toMatchObject({ status: 2, stderr: expect.stringContaining('--link memory works in one thread') });
    const replaced = await run(['demo', '--mode', 'worker'], { env: { PATH: '/nowhere' } });
    expect(replaced.status).toBe(3);
    expect(replaced.stderr).toContain(
      'no network namespaces, which --mode worker needs here: unshare is not installed',
    );
  });

  test('never replaces the link of --link: status 3', async () => {
    const { status, stderr } = await run(['demo', '--link', 'udp'], { env: { PATH: '/nowhere' } });
    expect(status).toBe(3);
    expect(stderr).toBe('wasm-roce: no network namespaces for the udp link: unshare is not installed\n');
  });
});

/** The target of a link under /proc; empty if the process is gone. */
function target(link: string): string {
  try {
    return readlinkSync(link);
  } catch {
    return '';
  }
}

/** The descendants of a process, with their network namespaces. */
function below(pid: number): { pid: number; net: string }[] {
  if (!lives(pid)) return [];
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'latin1').split(' ').filter(Boolean).map(Number);
  return children.flatMap((child) => [{ pid: child, net: target(`/proc/${child}/ns/net`) }, ...below(child)]);
}

/** The network namespaces of all processes. */
function namespaces(): Set<string> {
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  return new Set(pids.map((pid) => target(`/proc/${pid}/ns/net`)));
}

/** Whether the demo's interface is in this namespace. Other tests have others here. */
const hasInterface = () => execFileSync('ip', ['-o', 'link'], { encoding: 'utf8' }).includes('roce0');

describe('the demo in two namespaces', () => {
  testIf(
    netPrivilege(),
    'with a thread for each card',
    async () => {
      const { status, stdout, stderr } = await run(['demo', '--link', 'packet', '--mode', 'worker', '--json']);
      expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
      check(stdout, ['packet']);
    },
    60_000,
  );

  testIf(
    netPrivilege(),
    'everything over packet and udp',
    async () => {
      const { status, stdout, stderr } = await run(['demo', '--json']);
      expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
      expect(check(stdout, ['packet', 'udp']).place.kind).toBe('namespaces');
    },
    60_000,
  );

  for (const [signal, status] of [
    ['SIGINT', 130],
    ['SIGTERM', 143],
    ['SIGKILL', null],
  ] as const)
    testIf(netPrivilege(), `${signal} in the middle leaves no process, no interface, no namespace`, async () => {
      const own = readlinkSync('/proc/self/ns/net');
      const demo = start(['demo']);
      const strangers = () => below(demo.pid).filter(({ net }) => net !== '' && net !== own);
      await eventually(() => expect(new Set(strangers().map(({ net }) => net)).size).toBe(2));
      // Let the demo begin its work.
      await new Promise((resolve) => setTimeout(resolve, 700));
      const cards = strangers();
      expect(cards.length).toBeGreaterThanOrEqual(2);
      process.kill(demo.pid, signal);
      expect((await demo.ended).status).toBe(status);
      await eventually(() => expect(cards.filter(({ pid, net }) => lives(pid) || namespaces().has(net))).toEqual([]));
      expect(hasInterface()).toBe(false);
    });
});
