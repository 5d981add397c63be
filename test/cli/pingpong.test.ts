// Our client and our server, on every link.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import type { Report } from '../../src/cli/pingpong/report.js';
import { all, netPrivilege, programPrivilege, testIf } from '../kit/privileges.js';
import { type Ended, freePort, NO_ADDON, run, start } from './run.js';

const folder = mkdtempSync(join(tmpdir(), 'wasm-roce-cli-'));
afterAll(() => rmSync(folder, { recursive: true }));

/** Any loopback address can be used; each test file has its own. */
const SERVER = '127.79.0.1';
const CLIENT = '127.79.0.2';

/** Runs both ends with the same options; the client has more of them. */
async function pair(both: readonly string[], more: readonly string[] = []): Promise<[Ended, Ended]> {
  const port = String(await freePort());
  const server = start(['pingpong', '--address', SERVER, '-p', port, '--idle', '15', ...both]);
  try {
    await server.says('waiting for a client');
    const client = await run(['pingpong', '--address', CLIENT, '-p', port, '--idle', '15', SERVER, ...both, ...more]);
    return [client, await server.ended];
  } finally {
    server.child.kill('SIGKILL');
  }
}

const report = ({ stdout }: Ended) => JSON.parse(stdout) as Report;

describe('the udp link, without privileges', () => {
  test('prints the words of the stock tool for people', async () => {
    const [client, server] = await pair(['--link', 'udp', '-n', '200', '-c']);
    expect([client.status, server.status]).toEqual([0, 0]);
    for (const { stdout } of [client, server]) {
      const lines = stdout.split('\n');
      expect(lines[0]).toMatch(
        /^ {2}local address: {2}LID 0x0000, QPN 0x[0-9a-f]{6}, PSN 0x[0-9a-f]{6}, GID ::ffff:127\./,
      );
      expect(lines[1]).toMatch(
        /^ {2}remote address: LID 0x0000, QPN 0x[0-9a-f]{6}, PSN 0x[0-9a-f]{6}, GID ::ffff:127\./,
      );
      expect(lines[2]).toMatch(/^1638400 bytes in \d+\.\d\d seconds = \d+\.\d\d Mbit\/sec$/);
      expect(lines[3]).toMatch(/^200 iters in \d+\.\d\d seconds = \d+\.\d\d usec\/iter$/);
      expect(stdout).toContain('200 messages checked, every byte right');
    }
    expect(client.stdout).toMatch(/round trip usec: min .*, median .*, 99\.9% /);
    expect(client.stderr).toBe('');
  });

  test('--json prints one object at either end, and both agree', async () => {
    const [client, server] = await pair(['--link', 'udp', '-n', '50', '-s', '64k', '-e', '-c', '--json', '-m', '4096']);
    const ours = report(client);
    const theirs = report(server);
    expect(ours).toMatchObject({ ok: true, role: 'client', link: 'udp', interface: 'lo', size: 65536, iters: 50 });
    expect(ours).toMatchObject({ checked: 50, invalid: 0, bytes: 6553600, mtu: 4096 });
    expect(theirs.role).toBe('server');
    expect(theirs.latency).toBeNull();
    expect(theirs.local).toMatchObject({ qpNum: ours.remote.qpNum, psn: ours.remote.psn, gid: ours.remote.gid });
    expect(ours.counters.qp.rdma_sends).toBe(50);
  });

  test('works with a thread for each card, asleep or spinning', async () => {
    const options = ['--link', 'udp', '--mode', 'worker', '-n', '50', '-s', '64k', '-c', '--json'];
    for (const more of [['-e', '--spin', '0'], []]) {
      const [client, server] = await pair([...options, ...more]);
      expect([client.status, server.status]).toEqual([0, 0]);
      expect(report(client)).toMatchObject({ ok: true, checked: 50, invalid: 0 });
    }
  });

  test('with loss on the way every message arrives by retransmission', async () => {
    const faults = ['--drop', '0.05', '--duplicate', '0.02', '--seed', '7'];
    const [client, server] = await pair(
      ['--link', 'udp', '-n', '60', '-s', '16k', '-c', '--json', '--timeout', '12'],
      faults,
    );
    expect([client.status, server.status]).toEqual([0, 0]);
    const { invalid, faults: made, retransmits } = report(client);
    expect(invalid).toBe(0);
    expect(made.tx_drop).toBeGreaterThan(10);
    expect(retransmits + report(server).retransmits).toBeGreaterThan(10);
  });

  test('works with messages of no bytes', async () => {
    const [client, server] = await pair(['--link', 'udp', '-n', '20', '-s', '0', '-c']);
    expect([client.status, server.status]).toEqual([0, 0]);
  });

  test('-c finds wrong bytes', async () => {
    const port = String(await freePort());
    // Pages begin with 0 only with -c, so a client without it sends bytes that the server does not expect.
    const server = start(['pingpong', '--address', SERVER, '--link', 'udp', '-p', port, '-n', '3', '-c', '--json']);
    await server.says('waiting for a client');
    const client = await run(['pingpong', '--address', CLIENT, '--link', 'udp', '-p', port, '-n', '3', SERVER]);
    const { status, stdout, stderr } = await server.ended;
    expect(client.status).toBe(0);
    expect(status).toBe(1);
    expect(JSON.parse(stdout)).toMatchObject({ ok: false, checked: 3, invalid: 3 });
    expect(stderr).toMatch(/3 of 3 messages did not hold the bytes that were sent/);
  });

  test('--keep serves one client after the other, also those that connect meanwhile', async () => {
    const port = String(await freePort());
    const server = start([
      'pingpong',
      '--address',
      SERVER,
      '--link',
      'udp',
      '-p',
      port,
      '-n',
      '10',
      '--keep',
      '--json',
    ]);
    await server.says('waiting for a client');
    const clients = [CLIENT, '127.79.0.3'].map((address) =>
      run(['pingpong', '--address', address, '--link', 'udp', '-p', port, '-n', '10', SERVER]),
    );
    expect((await Promise.all(clients)).map(({ status }) => status)).toEqual([0, 0]);
    server.child.kill('SIGINT');
    const { status, stdout } = await server.ended;
    expect(status).toBe(130);
    expect(
      stdout
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line).ok),
    ).toEqual([true, true]);
  });

  test('a GID that does not exist gives status 2', async () => {
    const port = String(await freePort());
    const server = start(['pingpong', '--address', SERVER, '--link', 'udp', '-p', port, '--idle', '5']);
    await server.says('waiting for a client');
    const args = ['pingpong', '--address', CLIENT, '--link', 'udp', '-p', port, SERVER, '-g', '9'];
    const { status, stderr } = await run(args);
    server.child.kill('SIGKILL');
    expect(status).toBe(2);
    expect(stderr).toMatch(/GID index 9 \(--gid-idx\) does not exist; there is 0: ::ffff:127\.79\.0\.2/);
  });
});

describe('the memory link, both ends in one process', () => {
  test('with faults of every kind every byte is right, and the capture complete', async () => {
    const pcap = join(folder, 'memory.pcapng');
    const faults = ['--drop', '0.03', '--corrupt', '0.03', '--duplicate', '0.03', '--reorder', '0.03', '--seed', '3'];
    const args = ['--link', 'memory', '-n', '100', '-s', '9000', '-c', '--json', '--timeout', '10', '--pcap', pcap];
    const { status, stdout, stderr } = await run(['pingpong', ...args, ...faults]);
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    const { ok, faults: made, retransmits, link } = JSON.parse(stdout) as Report;
    expect({ ok, link }).toEqual({ ok: true, link: 'memory' });
    expect(Object.keys(made)).toEqual(expect.arrayContaining(['tx_drop', 'rx_corrupt', 'tx_duplicate', 'rx_reorder']));
    expect(retransmits).toBeGreaterThan(0);
    expect(statSync(pcap).size).toBeGreaterThan(100 * 9000);
  });

  test('a delay shows in the round trips', async () => {
    const { stdout } = await run(['pingpong', '--link', 'memory', '-n', '20', '--delay', '2000', '--json']);
    expect((JSON.parse(stdout) as Report).latency?.min).toBeGreaterThan(4000);
  });

  test('needs no addon', async () => {
    const { status } = await run(['pingpong', '--link', 'memory', '-n', '10'], { node: NO_ADDON });
    expect(status).toBe(0);
  });

  test('a failed completion explains itself when everything is lost, status 1', async () => {
    const args = ['pingpong', '--link', 'memory', '-n', '1', '--drop', '1', '--timeout', '6', '--retry', '2', '--json'];
    const { status, stdout, stderr } = await run(args);
    expect(status).toBe(1);
    expect(stderr).toMatch(/^wasm-roce: SEND .* failed with RETRY_EXC_ERR: .*\(likely: .*\)\n/);
    expect(JSON.parse(stdout)).toMatchObject({ ok: false, error: { code: 'RETRY_EXC_ERR' } });
  });

  test('a capture that cannot be written gives status 3', async () => {
    const { status, stderr } = await run(['pingpong', '--link', 'memory', '--pcap', '/nowhere/at/all.pcapng']);
    expect(status).toBe(3);
    expect(stderr).toMatch(/ENOENT.*\/nowhere\/at\/all\.pcapng/);
  });
});

testIf(
  all(netPrivilege(), programPrivilege('tshark')),
  'the packet link, and a capture that tshark reads',
  async () => {
    const pcap = join(folder, 'packet.pcapng');
    const [client, server] = await pair(['--link', 'packet', '-n', '50', '-c', '--json'], ['--pcap', pcap]);
    expect([client.status, server.status]).toEqual([0, 0]);
    expect(report(client)).toMatchObject({ ok: true, link: 'packet', invalid: 0 });
    const sends = execFileSync('tshark', ['-r', pcap, '-Y', `infiniband.bth.opcode <= 5 && ip.src == ${SERVER}`], {
      encoding: 'utf8',
      stdio: 'pipe',
    });
    // more if a busy machine delays its acknowledgements
    expect(sends.trim().split('\n').length).toBeGreaterThanOrEqual(50 * 4);
    expect(sends).not.toMatch(/malformed/i);
  },
);
