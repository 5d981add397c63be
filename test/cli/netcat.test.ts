// listen and connect: every byte in at one end comes out at the other, and every way in which a connection ends.
import { execFileSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, statSync, writeFileSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, describe, expect, test } from 'vitest';
import type { Report } from '../../src/cli/netcat/report.js';
import { eventually } from '../kit/eventually.js';
import { all, netPrivilege, programPrivilege, testIf } from '../kit/privileges.js';
import { sh, vethPair } from '../link/netns.js';
import { type Ended, type Running, run, start } from './run.js';

const folder = mkdtempSync(join(tmpdir(), 'wasm-roce-netcat-'));
const running: Running[] = [];
afterAll(() => {
  for (const { child } of running) child.kill('SIGKILL');
  for (const fd of held) closeSync(fd);
  rmSync(folder, { recursive: true });
});

const PORT = '7471';
let pairs = 0;
let inputs = 0;
const held = new Set<number>();

/** Two loopback addresses that no other test uses. */
function addresses(): { readonly server: string; readonly client: string } {
  const n = ++pairs;
  return { server: `127.60.${n}.1`, client: `127.60.${n}.2` };
}

/** Runs the command with redirections of a shell, such as `<in >out`. The shell execs it, so that signals reach it. */
function redirected(args: readonly string[], redirections: string): Running {
  const started = start(args, { prefix: ['sh', '-c', `exec "$0" "$@" ${redirections}`] });
  running.push(started);
  return started;
}

async function listening(address: string, redirections: string, ...args: string[]): Promise<Running> {
  const server = redirected(['listen', '--address', address, '--link', 'udp', PORT, ...args], redirections);
  await server.says('listening on');
  return server;
}

function calling(from: string, to: string, redirections: string, ...args: string[]): Running {
  return redirected(['connect', '--address', from, '--link', 'udp', to, PORT, ...args], redirections);
}

function file(name: string, bytes: number): string {
  const path = join(folder, name);
  writeFileSync(path, randomBytes(bytes));
  return path;
}

/** Input that holds a line, and stays open until `end` writes more and closes it. */
function openInput(): { readonly path: string; end(text: string): void } {
  const path = join(folder, `input-${++inputs}`);
  execFileSync('mkfifo', [path]);
  const fd = openSync(path, 'r+');
  held.add(fd);
  writeSync(fd, 'a line\n');
  return {
    path,
    end(text) {
      writeSync(fd, text);
      closeSync(fd);
      held.delete(fd);
    },
  };
}

const digest = (path: string) => createHash('sha256').update(readFileSync(path)).digest('hex');

/** The JSON report on stderr. */
const report = ({ stderr }: Ended) =>
  JSON.parse(stderr.split('\n').find((line) => line.startsWith('{')) ?? '') as Report;

/** Runs both ends, each with a file as input and a file as output. */
async function exchange(bytes: number, ...args: string[]): Promise<readonly [Ended, Ended]> {
  const { server, client } = addresses();
  const [a, b] = [file(`${server}.in`, bytes), file(`${client}.in`, bytes)];
  const listener = await listening(server, `<${a} >${b}.out`, '--json', ...args);
  const caller = calling(client, server, `<${b} >${a}.out`, '--json', ...args);
  const ended = await Promise.all([listener.ended, caller.ended]);
  expect([digest(`${a}.out`), digest(`${b}.out`)]).toEqual([digest(a), digest(b)]);
  return ended;
}

describe('bytes arrive unchanged, both ways at once', () => {
  test('32 MiB', async () => {
    const bytes = 32 * 2 ** 20;
    const ended = await exchange(bytes);
    expect(ended.map(({ status }) => status)).toEqual([0, 0]);
    expect(report(ended[0])).toMatchObject({ ok: true, role: 'listen', link: 'udp', sent: bytes, received: bytes });
    expect(report(ended[1])).toMatchObject({ ok: true, role: 'connect', peer: { port: 7471 } });
  });

  test('with loss, duplicates and reordering on the way', async () => {
    const faults = ['--drop', '0.003', '--duplicate', '0.01', '--reorder', '0.003', '--seed', '5'];
    const ended = await exchange(2 * 2 ** 20, ...faults);
    expect(ended.map(({ status }) => status)).toEqual([0, 0]);
    expect(report(ended[0]).faults.tx_duplicate).toBeGreaterThan(0);
  });

  test('with a thread for each card, and a capture', async () => {
    const pcap = join(folder, 'worker.pcapng');
    const ended = await exchange(2 ** 20, '--mode', 'worker', '--pcap', pcap);
    expect(ended.map(({ status }) => status)).toEqual([0, 0]);
    expect(statSync(pcap).size).toBeGreaterThan(2 ** 20);
  });
});

describe('rsockets', () => {
  test('carry 2 MiB both ways at once', async () => {
    const bytes = 2 * 2 ** 20;
    const ended = await exchange(bytes, '--rsocket');
    expect(ended.map(({ status }) => status)).toEqual([0, 0]);
    expect(report(ended[0])).toMatchObject({ ok: true, role: 'listen', link: 'udp', sent: bytes, received: bytes });
    expect(report(ended[1])).toMatchObject({ ok: true, role: 'connect', peer: { port: 7471 } });
  });

  test('end one direction, and a listener that stays takes the next client', async () => {
    const { server, client } = addresses();
    const answer = openInput();
    const listener = await listening(server, `<${answer.path}`, '--rsocket', '-k', '-w', '60');
    const caller = calling(client, server, `<${file('rsocket-question', 1000)}`, '--rsocket');
    await listener.prints((stdout) => stdout.length > 0);
    expect(caller.child.exitCode).toBeNull();
    answer.end('and the last\n');
    expect(await caller.ended).toMatchObject({ status: 0, stdout: 'a line\nand the last\n', stderr: '' });
    const second = await calling(client, server, '</dev/null', '--rsocket').ended;
    expect(second).toMatchObject({ status: 0, stdout: '' });
    listener.child.kill('SIGINT');
    await listener.ended;
  });

  test('report an end without rsockets, a missing listener, and a timeout', async () => {
    const { server, client } = addresses();
    const listener = await listening(server, '</dev/null', '-k');
    const wrong = await calling(client, server, '</dev/null', '--rsocket').ended;
    expect(wrong.status).toBe(1);
    expect(wrong.stderr).toMatch(/rsocket/);
    listener.child.kill('SIGINT');
    await listener.ended;
    const nobody = await calling(client, server, '</dev/null', '--rsocket', '-w', '1').ended;
    expect([nobody.status, nobody.stdout]).toEqual([1, '']);
    expect(nobody.stderr).toContain('no RoCE device has UDP port 4791 there');
    const alone = await redirected(
      ['listen', '--rsocket', '-w', '0.2', '--address', server, '--link', 'udp', PORT],
      '</dev/null',
    ).ended;
    expect(alone.status).toBe(1);
    expect(alone.stderr).toMatch(/nobody connected within 0\.2 s/);
  });
});

describe('the end of one direction', () => {
  test('lets an end that has sent everything receive the answer', async () => {
    const { server, client } = addresses();
    const question = file('question', 100_000);
    const answer = openInput();
    const heard = join(folder, 'heard');
    const listener = await listening(server, `<${answer.path} >${heard}`, '--progress');
    const caller = calling(client, server, `<${question}`);
    await eventually(() => expect(statSync(heard).size).toBe(100_000));
    expect(caller.child.exitCode).toBeNull();
    answer.end('and the last\n');
    expect(await caller.ended).toMatchObject({ status: 0, stdout: 'a line\nand the last\n', stderr: '' });
    const { status, stderr } = await listener.ended;
    expect(status).toBe(0);
    expect(stderr).toMatch(/\nsent 20 B, received 97\.7 KiB in \d+\.\d s, .*\/s\n$/);
    expect(digest(heard)).toBe(digest(question));
  });

  test('of output into a file with typed input comes with the other end’s', async () => {
    const { server, client } = addresses();
    const copy = join(folder, 'copy');
    const listener = start(['listen', '--address', server, '--link', 'udp', PORT], {
      ...{ terminal: true, prefix: ['sh', '-c', `exec "$0" "$@" >${copy}`] },
    });
    running.push(listener);
    await listener.prints((shown) => shown.includes('listening on'));
    expect((await calling(client, server, `<${file('original', 5000)}`).ended).status).toBe(0);
    expect((await listener.ended).status).toBe(0);
    expect(digest(copy)).toBe(digest(join(folder, 'original')));
  });

  test('by a reader that has enough ends the connection without an error', async () => {
    const { server, client } = addresses();
    const listener = await listening(server, '</dev/zero >/dev/null');
    const command = 'exec 3>&1; (("$0" "$@" </dev/null; echo "status $?" >&3) | head -c 10 >/dev/null)';
    const caller = start(['connect', '--address', client, '--link', 'udp', server, PORT], {
      prefix: ['sh', '-c', command],
    });
    expect(await caller.ended).toMatchObject({ stdout: 'status 0\n', stderr: '' });
    const { status, stderr } = await listener.ended;
    expect({ status, stderr }).toMatchObject({
      status: 1,
      stderr: expect.stringContaining('closed the connection before the end of its data'),
    });
  });

  test('a writer waits for a slow reader, with little on the way', async () => {
    const { server, client } = addresses();
    const listener = start(['listen', '--address', server, '--link', 'udp', PORT]);
    running.push(listener);
    await listener.says('listening on');
    // the pipe to us soon is full, since we do not read it
    listener.child.stdout?.pause();
    const caller = calling(client, server, '</dev/zero');
    // the client reads as much as fits into pipes and buffers, then no more
    let before = 0;
    const isStill = async () => {
      await sleep(500);
      const now = bytesRead(caller.pid);
      const isSame = now === before && now > 2 ** 20;
      before = now;
      return isSame;
    };
    await eventually(async () => expect(await isStill()).toBe(true));
    expect(before).toBeLessThan(32 * 2 ** 20);
    expect([listener.child.exitCode, caller.child.exitCode]).toEqual([null, null]);
  });
});

describe('ends of the connection', () => {
  test('without a listener: the reason by name, status 1', async () => {
    const { server, client } = addresses();
    const listener = await listening(server, '</dev/null');
    const refused = await run(['connect', '--address', client, '--link', 'udp', server, '7472', '--json']);
    expect(refused).toMatchObject({ status: 1, stdout: '' });
    expect(refused.stderr).toContain('refused the connection: no listener on that port, reason 8 (INVALID_SERVICE_ID)');
    expect(report(refused)).toMatchObject({ ok: false, error: { code: 'ECONNREFUSED' } });
    listener.child.kill('SIGTERM');
    expect((await listener.ended).status).toBe(143);
  });

  test('without an answer or a client: status 1 after the time', async () => {
    const { server, client } = addresses();
    const called = await run(['connect', '--address', client, '--link', 'udp', server, PORT, '-w', '0.2']);
    expect(called).toMatchObject({ status: 1, stdout: '' });
    expect(called.stderr).toMatch(new RegExp(`no connection to ${server} port ${PORT} within 200 ms`));
    const waited = await run(['listen', '--address', server, '--link', 'udp', PORT, '-w', '0.2', '-q']);
    expect(waited).toMatchObject({ status: 1, stderr: 'wasm-roce: nobody connected within 0.2 s (--timeout)\n' });
  });

  testIf(
    all(netPrivilege(), programPrivilege('ip')),
    'nobody answers ARP: status 1 after the time, and a word of it',
    async () => {
      vethPair(['nca0', 'nca1'], 198, 1500);
      try {
        const caller = redirected(['connect', '--ib-dev', 'nca0', '10.198.0.77', PORT, '-w', '0.2'], '</dev/null');
        await caller.says('no connection to 10.198.0.77 port 7471 within 200 ms; its address is not resolved yet');
        expect((await caller.ended).status).toBe(1);
      } finally {
        sh('ip link del nca0');
      }
    },
  );

  test('by Ctrl-C is known to the other end at once', async () => {
    const { server, client } = addresses();
    const listener = await listening(server, `<${openInput().path} >/dev/null`);
    const caller = calling(client, server, `<${openInput().path}`, '-q');
    await caller.prints((stdout) => stdout.length > 0);
    caller.child.kill('SIGINT');
    expect(await caller.ended).toMatchObject({ status: 130, stderr: '' });
    expect(await listener.ended).toMatchObject({ status: 1 });
  });

  test('by a killed peer is detected', async () => {
    const { server, client } = addresses();
    const listener = await listening(
      server,
      `<${openInput().path} >/dev/null`,
      '--keep-alive',
      '0.2',
      '--peer-timeout',
      '1',
    );
    const caller = calling(client, server, '</dev/null');
    await caller.prints((stdout) => stdout.length > 0);
    caller.child.kill('SIGKILL');
    const { status, stderr } = await listener.ended;
    expect(status).toBe(1);
    expect(stderr).toMatch(
      new RegExp(`wasm-roce: ${client} port \\d+ no longer answers: .*no packet of the peer has come within 1000 ms`),
    );
  });

  test('by output that cannot be written: status 1', async () => {
    const { server, client } = addresses();
    const listener = await listening(server, `<${openInput().path} >/dev/null`);
    const { status, stderr } = await calling(client, server, '</dev/null >/dev/full').ended;
    expect(status).toBe(1);
    expect(stderr).toContain('standard output cannot be written: ENOSPC');
    expect((await listener.ended).status).toBe(1);
  });

  test('--keep-open serves one client after the other, each with its report', async () => {
    const { server, client } = addresses();
    const listener = await listening(server, '</dev/null', '--keep-open', '--json');
    for (const name of ['first', 'second']) {
      const { status } = await calling(client, server, `<${file(name, 1000)}`).ended;
      expect(status).toBe(0);
    }
    listener.child.kill('SIGINT');
    const { status, stderr } = await listener.ended;
    expect(status).toBe(130);
    const reports = stderr.split('\n').filter((line) => line.startsWith('{'));
    expect(reports.map((line) => JSON.parse(line).received)).toEqual([1000, 1000]);
  });
});

/** Bytes that a process has read, including its program. */
function bytesRead(pid: number): number {
  return Number(/rchar: (\d+)/.exec(readFileSync(`/proc/${pid}/io`, 'utf8'))?.[1]);
}
