// The perftest commands, ours against ours, and their hand-shake against what the stock programs were recorded to say.
import { describe, expect, test } from 'vitest';
import { decodeKeys, encodeKeys, KEYS_BYTES } from '../../src/cli/perftest/handshake.js';
import { KINDS } from '../../src/cli/perftest/kinds.js';
import type { PerftestReport } from '../../src/cli/perftest/report.js';
import { type Ended, freePort, run, start } from './run.js';

const SERVER = '127.81.0.1';
const CLIENT = '127.81.0.2';

/** Runs both ends with the same options, the client with more. */
async function pair(command: string, both: readonly string[], more: readonly string[] = []): Promise<[Ended, Ended]> {
  const port = String(await freePort());
  const all = ['--link', 'udp', '-p', port, '--idle', '15', ...both];
  const server = start([command, '--address', SERVER, ...all]);
  try {
    await server.says('waiting for a client');
    const client = await run([command, '--address', CLIENT, SERVER, ...all, ...more]);
    return [client, await server.ended];
  } finally {
    server.child.kill('SIGKILL');
  }
}

const report = ({ stdout }: Ended) => JSON.parse(stdout) as PerftestReport;

describe('keys', () => {
  // as ib_write_bw of perftest 25.01 wrote them
  const RECORDED =
    '0000:0001:000030:7c8c52:00001b8d:000055979c922000:00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:00:02:00000000:\0';
  const KEYS = {
    ...{ outReads: 1, qpn: 0x30, psn: 0x7c8c52, rkey: 0x1b8d, vaddr: 0x55979c922000n, gid: '::ffff:10.77.0.2' },
  };

  test('are read and written as the stock programs do', () => {
    expect(RECORDED.length).toBe(KEYS_BYTES);
    expect(decodeKeys(Buffer.from(RECORDED, 'latin1'))).toEqual(KEYS);
    expect(encodeKeys(KEYS).toString('latin1')).toBe(RECORDED);
  });

  test('what is none is refused with its text', () => {
    expect(() => decodeKeys(Buffer.from('0000:0001:000030', 'latin1'))).toThrow(
      /the peer's keys are "0000:0001:000030"/,
    );
  });
});

describe('the udp link, without privileges', () => {
  test.each(KINDS.map(({ name }) => name))('%s: one JSON object at either end', async (name) => {
    const [client, server] = await pair(name, ['-n', '50', '--json']);
    expect([client.status, server.status, client.stderr]).toEqual([0, 0, '']);
    const [ours, theirs] = [report(client), report(server)];
    expect(ours).toMatchObject({ ok: true, test: name, role: 'client', link: 'udp', peerVersion: '6.24', qps: 1 });
    expect(theirs).toMatchObject({ role: 'server', local: ours.remote, remote: ours.local });
    const { size } = KINDS.find((kind) => kind.name === name) ?? {};
    if (name.endsWith('bw')) {
      const [result] = ours.bandwidth ?? [];
      expect(result).toMatchObject({ size, iters: 50 });
      expect(result?.peak).toBeGreaterThanOrEqual(result?.average ?? Number.NaN);
      expect(theirs.bandwidth?.[0]).toMatchObject({ size, iters: 50 });
    } else {
      const { min, typical, p99, max } = ours.latency?.[0] ?? { min: 0, typical: 0, p99: 0, max: 0 };
      expect([min, typical, p99, max].every((time) => time > 0)).toBe(true);
      expect([min, typical, p99, max]).toEqual([min, typical, p99, max].toSorted((a, b) => a - b));
    }
  });

  test.each([
    ['send-bw', ['-c', 'UD', '-a']],
    ['send-lat', ['-c', 'UC', '-s', '5000']],
    ['write-bw', ['-b', '-q', '4', '-s', '64']],
    ['write-bw', ['-b', '-a', '-n', '2']],
    ['write-bw', ['--write_with_imm', '-b', '-q', '2']],
    ['write-lat', ['--write_with_imm', '-c', 'UC']],
    ['read-bw', ['-b', '-m', '1024', '-F']],
    ['atomic-bw', ['-q', '3', '-A', 'CMP_AND_SWAP']],
  ])('%s %s', async (name, options) => {
    const [client, server] = await pair(name, ['-n', '20', ...options, '--json']);
    expect([client.status, server.status, client.stderr]).toEqual([0, 0, '']);
    expect(report(client).ok && report(server).ok).toBe(true);
  });

  test('the columns of the stock programs for people', async () => {
    const [client, server] = await pair('send-bw', ['-n', '100', '-s', '1000']);
    for (const { stdout } of [client, server]) {
      expect(stdout).toContain(' #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]');
      expect(stdout).toMatch(/^ 1000 +100 +\d+\.\d\d +\d+\.\d\d +0\.\d{6}$/m);
    }
    const [lat] = await pair('write-lat', ['-n', '100']);
    expect(lat.stdout).toMatch(/#bytes #iterations {4}t_min\[usec\] .* 99\.9% percentile\[usec\]/);
    expect(lat.stdout).toMatch(/^ 2 +100( +\d+\.\d\d){7}$/m);
  });

  test('-D measures for so many seconds', async () => {
    const [client, server] = await pair('write-bw', ['-s', '4096', '--json'], ['-D', '0.3']);
    expect([client.status, server.status]).toEqual([0, 0]);
    expect(report(client).bandwidth?.[0]?.iters).toBeGreaterThan(100);
    expect(report(server).bandwidth?.[0]?.iters).toBe(report(client).bandwidth?.[0]?.iters);
  });

  test('with loss on the way, by retransmission', async () => {
    const faults = ['--drop', '0.03', '--seed', '5'];
    const [client, server] = await pair('write-lat', ['-n', '100', '-u', '10', '--json'], faults);
    expect([client.status, server.status]).toEqual([0, 0]);
    expect(report(client).faults.tx_drop).toBeGreaterThan(0);
    expect(report(client).retransmits + report(server).retransmits).toBeGreaterThan(0);
  });
});

test('the memory link, both ends in one process', async () => {
  const { status, stdout } = await run(['send-bw', '--link', 'memory', '-n', '100', '--json']);
  expect(status).toBe(0);
  expect(JSON.parse(stdout)).toMatchObject({ ok: true, link: 'memory', bandwidth: [{ size: 65536, iters: 100 }] });
});

test.each([
  [['read-bw', '-c', 'UD'], /'UD' is invalid.*RC/],
  [['write-bw', '-D', '1', '-b'], /--duration measures one direction/],
  [['send-bw', '-m', '1000'], /256, 512, 1024, 2048, 4096/],
  [['send-bw', '--link', 'memory', '192.0.2.1'], /takes no HOST/],
])('wrong usage: %s', async (args, text) => {
  const { status, stderr } = await run(args);
  expect(status).toBe(2);
  expect(stderr).toMatch(text);
});
