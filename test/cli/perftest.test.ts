// The perftest commands against each other, and their handshake against recordings of the stock programs.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import type { Negotiated } from '../../src/cli/perftest/communication/handshake.js';
import { BINARY_KEYS, TEXT_KEYS } from '../../src/cli/perftest/communication/keys.js';
import { KINDS, type PerftestOptions, type TestKind } from '../../src/cli/perftest/parameters.js';
import type { PerftestReport } from '../../src/cli/perftest/report.js';
import { PerftestContext } from '../../src/cli/perftest/resources.js';
import { createMemoryHub, openDevice } from '../../src/index.js';
import { readCapture } from '../../src/probe/capture/read.js';
import { decode, isRoce, Op } from '../../src/probe/packet/packets.js';
import { type Ended, freePort, run, start } from './run.js';

const SERVER = '127.81.0.1';
const CLIENT = '127.81.0.2';

/** Runs both ends with the same options; the client has more of them. */
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
    ...{ outReads: 1, qpNum: 0x30, psn: 0x7c8c52, rkey: 0x1b8d, vaddr: 0x55979c922000n, gid: '::ffff:10.77.0.2' },
  };

  test('are read and written as the stock programs do', () => {
    expect(RECORDED.length).toBe(TEXT_KEYS.bytes);
    expect(TEXT_KEYS.decode(Buffer.from(RECORDED, 'latin1'))).toEqual(KEYS);
    expect(TEXT_KEYS.encode(KEYS).toString('latin1')).toBe(RECORDED);
  });

  test('over rdma_cm are the same in binary', () => {
    const message = BINARY_KEYS.encode(KEYS);
    const numbers = '00000000 00000001 00000030 007c8c52 00001b8d 00000000 000055979c922000';
    expect(message.toString('hex')).toBe(
      `${numbers}00000000000000000000ffff0a4d0002${'0'.repeat(16)}`.replaceAll(' ', ''),
    );
    expect(BINARY_KEYS.decode(message)).toEqual(KEYS);
  });

  test('of another form are refused with their text', () => {
    expect(() => TEXT_KEYS.decode(Buffer.from('0000:0001:000030', 'latin1'))).toThrow(
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
    ['write-lat', ['--mode', 'worker']],
    ['send-bw', ['--mode', 'worker', '--spin', '0', '-s', '5000']],
    ['send-bw', ['-R', '-c', 'UD', '-b']],
    ['write-bw', ['-R', '-q', '4', '-s', '64']],
    ['send-bw', ['--use-srq', '-b', '-q', '3', '-r', '10']],
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

  test('-U and -H print the time of every message, unsorted and sorted', async () => {
    const [{ stdout }] = await pair('send-lat', ['-n', '20', '-U', '-H']);
    const [head, unsorted, sorted, ...more] = stdout
      .split('#, usec\n')
      .map((part) => [...part.matchAll(/^\d+, ([\d.]+)$/gm)]);
    expect([head, more]).toEqual([[], []]);
    const times = unsorted?.map(([, time]) => Number(time)) ?? [];
    expect(times).toHaveLength(19);
    expect(sorted?.map(([, time]) => Number(time))).toEqual(times.sort((a, b) => a - b));
    const [json] = await pair('read-lat', ['-n', '20', '-H', '--json']);
    expect(report(json).latency?.[0]?.times).toHaveLength(20);
  });

  test('-N prints no peak', async () => {
    const [{ stdout }] = await pair('write-bw', ['-n', '100', '-s', '1000', '-N']);
    expect(stdout).toMatch(/^ 1000 +100 +0\.00 +\d+\.\d\d /m);
  });

  test.each([
    ['write-bw', ['-q', '2', '-l', '4', '-t', '10', '-Q', '10']],
    ['send-bw', ['-b', '-Q', '7', '-I', '1000']],
    ['read-bw', ['-Q', '100', '-t', '3']],
  ])('%s %s: every message is counted, though not every one has a completion', async (name, options) => {
    const [client, server] = await pair(name, ['-n', '200', '-s', '1000', '--json', ...options]);
    expect([client.status, server.status, client.stderr]).toEqual([0, 0, '']);
    expect(report(client).bandwidth).toMatchObject([{ iters: 200 * report(client).qps }]);
  });

  test.each([1, 5])('-o %i limits the READs in flight', async (outs) => {
    const folder = mkdtempSync(join(tmpdir(), 'wasm-roce-'));
    const pcap = join(folder, 'reads.pcapng');
    const [client] = await pair('read-bw', ['-n', '100', '-s', '100', '-o', String(outs)], ['--pcap', pcap]);
    expect(client.status).toBe(0);
    const packets = readCapture(pcap)
      .packets.filter(({ data }) => isRoce(data))
      .map(({ data }) => decode(data).bth);
    rmSync(folder, { recursive: true });
    // by PSN: on a busy machine a READ may be retransmitted, and answered twice
    const [onTheWay, answered] = [new Set<number>(), new Set<number>()];
    let most = 0;
    for (const { opcode, psn } of packets) {
      if (opcode !== Op.RDMA_READ_REQUEST) {
        onTheWay.delete(psn);
        answered.add(psn);
      } else if (!answered.has(psn)) onTheWay.add(psn);
      most = Math.max(most, onTheWay.size);
    }
    expect({ onTheWay: onTheWay.size, most }).toEqual({ onTheWay: 0, most: outs });
  });

  test.each([
    ['write-bw', []],
    ['read-bw', ['-b']],
    ['write-bw', ['-b', '--write_with_imm']],
    ['send-bw', []],
    ['send-bw', ['-c', 'UD', '-s', '1000']],
    ['send-bw', ['-b', '-q', '2', '-l', '8']],
  ])('%s %s for a time', async (name, options) => {
    const [client, server] = await pair(name, ['-s', '4096', '-D', '0.3', '--json', ...options]);
    expect([client.status, server.status, client.stderr]).toEqual([0, 0, '']);
    const [ours, theirs] = [client, server].map((ended) => report(ended).bandwidth?.[0]?.iters ?? 0);
    expect(ours).toBeGreaterThan(0);
    // with both directions each end reports what it has measured itself
    if (name === 'send-bw' || options.includes('-b')) expect(theirs).toBeGreaterThan(0);
    else expect(theirs).toBe(ours);
  });

  test('write-lat for a time', async () => {
    const [client, server] = await pair('write-lat', ['-D', '0.3', '--json']);
    expect([client.status, server.status, client.stderr]).toEqual([0, 0, '']);
    expect(report(client).latency?.[0]?.iters).toBeGreaterThan(2);
  });

  test.each([
    ['write-bw', []],
    ['send-bw', []],
    ['read-bw', ['-b']],
  ])('%s %s without end prints a line for each interval, and ends in order at Ctrl-C', async (name, options) => {
    const port = String(await freePort());
    const all = ['--link', 'udp', '-p', port, '--run_infinitely', '-D', '0.1', '-s', '4096', ...options];
    const server = start([name, '--address', SERVER, ...all]);
    try {
      await server.says('waiting for a client');
      const client = start([name, '--address', CLIENT, SERVER, ...all]);
      const lines = (text: string) => text.match(/^ 4096 +\d+ .*$/gm) ?? [];
      await client.prints((stdout) => lines(stdout).length >= 3);
      client.child.kill('SIGINT');
      const [ours, theirs] = [await client.ended, await server.ended];
      expect([ours, theirs].map(({ status, stderr }) => [status, stderr.replace(/^waiting.*\n/, '')])).toEqual([
        [0, ''],
        [0, ''],
      ]);
      const counts = lines(ours.stdout).map((line) => Number(line.trim().split(/ +/)[1]));
      // the last line is that of the whole run
      expect(counts.pop()).toBeGreaterThanOrEqual(counts.reduce((sum, count) => sum + count));
      expect(lines(theirs.stdout).length > 0).toBe(name !== 'write-bw');
    } finally {
      server.child.kill('SIGKILL');
    }
  });

  test.each([
    [['--limit_bw', '1', '-y', '0.000001'], undefined],
    [['-w', '1000000000'], /4096 bytes: [\d.]+ MiB\/sec is less than 1000000000 \(--limit_bw\)/],
    [['-w', '1000000', '--report_gbits'], /4096 bytes: [\d.]+ Gb\/sec is less than 1000000 \(--limit_bw\)/],
    [['-y', '1000'], /4096 bytes: [\d.]+ million messages per second is less than 1000 \(--limit_msgrate\)/],
  ])('%s: the end with this limit fails when it is missed', async (limits, said) => {
    const [client, server] = await pair('write-bw', ['-s', '4096', '-n', '100', '--json'], limits);
    expect([client.status, server.status]).toEqual([said ? 1 : 0, 0]);
    expect(client.stderr).toMatch(said ?? /^$/);
    expect(report(client)).toMatchObject({ ok: said === undefined, bandwidth: [{ iters: 100 }] });
  });

  test.each([
    ['send-bw', ['-s', '4096']],
    ['send-bw', ['-c', 'UD', '-b']],
    ['send-lat', []],
    // without acknowledgements, whose absence would also reveal it
    ['write-lat', ['-c', 'UC']],
  ])('%s %s: a client that leaves in the middle is noticed at once', async (name, options) => {
    const port = String(await freePort());
    const all = ['--link', 'udp', '-p', port, '-D', '60', '--json', ...options];
    const server = start([name, '--address', SERVER, ...all]);
    try {
      await server.says('waiting for a client');
      const client = start([name, '--address', CLIENT, SERVER, ...all.filter((word) => word !== '--json')]);
      await client.prints((stdout) => stdout.includes('#bytes'));
      await sleep(300);
      client.child.kill('SIGINT');
      const { status, stdout, stderr } = await server.ended;
      expect({ status, report: JSON.parse(stdout) }).toMatchObject({ status: 1, report: { ok: false } });
      expect(stderr).toContain('the peer has left in the middle of the test');
    } finally {
      server.child.kill('SIGKILL');
    }
  });

  test('a server does not wait for lost datagrams, and prints how many have come', async () => {
    const faults = ['--drop', '0.1', '--seed', '1'];
    const [client, server] = await pair('send-bw', ['-c', 'UD', '-n', '200', '-s', '100', '--json'], faults);
    expect([client.status, client.stderr, server.status]).toEqual([0, '', 1]);
    const lost = report(client).faults.tx_drop ?? 0;
    expect(lost).toBeGreaterThan(0);
    expect(report(server)).toMatchObject({ ok: false, lost, bandwidth: [{ iters: 200 - lost }] });
    expect(server.stderr).toContain(`${200 - lost} of 200 messages were received: UD does not retransmit`);
  });

  test('with loss on the way, every message arrives by retransmission', async () => {
    const faults = ['--drop', '0.03', '--seed', '5'];
    const [client, server] = await pair('write-lat', ['-n', '100', '-u', '14', '--json'], faults);
    expect([client.status, server.status, client.stderr]).toEqual([0, 0, '']);
    expect(report(client).faults.tx_drop).toBeGreaterThan(0);
    expect(report(client).retransmits + report(server).retransmits).toBeGreaterThan(0);
  });
});

test('--use-srq: all queue pairs have one shared receive queue', async () => {
  await using device = await openDevice({ link: 'memory', hub: createMemoryHub(), memoryBytes: 2 ** 24 });
  const kind = KINDS.find(({ name }) => name === 'send-bw') as TestKind;
  const options = { kind, qps: 3, txDepth: 4, rxDepth: 5, transport: 'RC', size: 100, useSrq: true };
  const terms = { mtu: 1024, version: '', cycleBytes: 4096, cacheLine: 64 };
  const end = await PerftestContext.open(device, options as PerftestOptions, terms as Negotiated);
  const srqs = new Set([0, 1, 2].map((index) => end.qp(index).srq));
  expect([...srqs].map((srq) => srq?.query().maxWr ?? 0)).toEqual([expect.toSatisfy((maxWr) => maxWr >= 15)]);
  await end.close();
});

describe('both ends in one process, on the memory link', () => {
  test.each([
    ['send-bw', ['-c', 'UD', '-a']],
    ['send-lat', ['-c', 'UC', '-s', '5000']],
    ['write-bw', ['-b', '-q', '4', '-s', '64']],
    ['write-bw', ['-b', '-a', '-n', '2']],
    ['write-bw', ['--write_with_imm', '-b', '-q', '2']],
    ['write-lat', ['--write_with_imm', '-c', 'UC']],
    ['read-bw', ['-b', '-m', '1024', '-F']],
    ['atomic-bw', ['-q', '3', '-A', 'CMP_AND_SWAP']],
    ['send-bw', ['-l', '5', '-e', '-q', '2', '-b']],
    ['write-bw', ['-l', '20', '-t', '30', '--write_with_imm']],
    ['read-bw', ['-l', '4', '--tclass', '104', '-S', '3']],
    ['send-bw', ['--use-srq', '-R', '-c', 'UD', '-b']],
    ['write-lat', ['--use-srq', '--write_with_imm']],
  ])('%s %s', async (name, options) => {
    const ended = await run([name, '--link', 'memory', '-n', '20', ...options, '--json']);
    expect(ended).toMatchObject({ status: 0, stderr: '' });
    expect(report(ended)).toMatchObject({ ok: true, test: name });
  });

  test.each([
    ['send-lat', ['-c', 'UC']],
    ['write-lat', ['--write_with_imm']],
    ['read-lat', []],
    ['atomic-lat', []],
  ])('%s %s for a time', async (name, options) => {
    const ended = await run([name, '--link', 'memory', '-D', '0.3', ...options, '--json']);
    expect(ended).toMatchObject({ status: 0, stderr: '' });
    expect(report(ended).latency?.[0]?.iters).toBeGreaterThan(2);
  });
});

test.each([[[]], [['-R', '-T', '104']], [['-z']]])('the memory link, both ends in one process: %j', async (words) => {
  const { status, stdout } = await run(['send-bw', '--link', 'memory', '-n', '100', '--json', ...words]);
  expect(status).toBe(0);
  expect(JSON.parse(stdout)).toMatchObject({ ok: true, link: 'memory', bandwidth: [{ size: 65536, iters: 100 }] });
});

test.each([
  [['-n', '5000'], { mtu: 4096, bandwidth: [{ size: 4096, iters: 5000 }] }],
  [['-n', '5000', '-r', '64', '-s', '100', '-b'], { bandwidth: [{ size: 100, iters: 5000 }] }],
])('the memory link loses no datagrams: %j', async (words, result) => {
  const { status, stdout } = await run(['send-bw', '-c', 'UD', '--link', 'memory', '--idle', '3', '--json', ...words]);
  expect({ status, report: JSON.parse(stdout) }).toMatchObject({ status: 0, report: { ok: true, lost: 0, ...result } });
});

test('losses of the link itself are printed, for all sizes together', async () => {
  const words = ['-c', 'UD', '-a', '-n', '5', '-b', '-m', '256', '--drop', '0.02', '--seed', '1', '--json'];
  const { status, stdout, stderr } = await run(['send-bw', '--link', 'memory', ...words]);
  const { ok, lost, faults, bandwidth } = JSON.parse(stdout) as PerftestReport;
  expect({ status, ok, sizes: bandwidth?.length }).toEqual({ status: 1, ok: false, sizes: 8 });
  expect(lost).toBeGreaterThan(0);
  expect(lost).toBe((faults.tx_drop ?? 0) + (faults.rx_drop ?? 0));
  expect(stderr).toContain(`${80 - lost} of 80 messages were received`);
});

test('the default size is cut to that of a datagram, with a note', async () => {
  const words = ['send-bw', '-c', 'UD', '--link', 'memory', '-n', '10', '-m', '1024'];
  const note = 'message size reduced from 65536 to 1024 bytes: a datagram holds at most the path MTU';
  expect((await run(words)).stdout).toContain(note);
  expect(JSON.parse((await run([...words, '--json'])).stdout).notes).toContain(note);
});

test.each([[[]], [['-R']]])('--run_infinitely on the memory link ends in order at Ctrl-C: %j', async (words) => {
  const both = start(['send-bw', '--link', 'memory', '--run_infinitely', '-D', '0.1', '-s', '4096', ...words]);
  await both.prints((stdout) => /^ 4096 +\d+ /m.test(stdout));
  both.child.kill('SIGINT');
  expect(await both.ended).toMatchObject({ status: 0, stderr: '' });
});

test.each([
  [['read-bw', '-c', 'UD'], /'UD' is invalid.*RC/],
  [['write-bw', '-D', '1', '-a'], /--all needs --iters/],
  [
    ['send-bw', '--run_infinitely', '-b'],
    /--run_infinitely is not for messages that consume receives in both directions/,
  ],
  [['read-bw', '-n', '10', '-l', '4'], /10 messages \(--iters\) are not a multiple of the 4 posted by one call/],
  [['read-bw', '-t', '4', '-l', '8', '-n', '8'], /8 messages posted by one call .* more than the 4 in flight/],
  [['send-bw', '-R', '-c', 'UC'], /--rdma_cm \(-R\) is not for -c UC/],
  [['send-bw', '-R', '-x', '1'], /--rdma_cm \(-R\) chooses the GID by the address: it takes no --gid-index/],
  [['send-bw', '-D', '0'], /It must be more than 0/],
  [
    ['send-bw', '-c', 'UD', '-s', '4097', '--link', 'memory'],
    /a datagram of 4097 bytes \(--size\) is more than the path MTU, 4096/,
  ],
  [['write-lat', '-e'], /unknown option '-e'/],
  [['write-bw', '--use-srq'], /--use-srq is for messages that consume receives/],
  [['send-bw', '--use-srq', '-c', 'UC'], /--use-srq is not for -c UC/],
  [['send-bw', '--use-srq', '-q', '8', '-r', '7'], /7 receives \(--rx-depth\) are too few for 8 queue pairs/],
  [['send-bw', '-T', '8'], /--tos \(-T\) is for --rdma_cm/],
  [['read-bw', '-o', '129'], /from 1 to 128/],
  [['send-bw', '-m', '1000'], /256, 512, 1024, 2048, 4096/],
  [['send-bw', '--link', 'memory', '192.0.2.1'], /takes no HOST/],
])('wrong usage: %s', async (args, text) => {
  const { status, stderr } = await run(args);
  expect(status).toBe(2);
  expect(stderr).toMatch(text);
});
