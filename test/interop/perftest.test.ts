// Our perftest commands and the stock programs of two versions of perftest, each as client and as server of the other.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { KINDS, type PerftestOptions } from '../../src/cli/perftest/parameters.js';
import { readCapture } from '../../src/probe/capture/read.js';
import { decode, isRoce } from '../../src/probe/packet/decode.js';
import type { LinkKind } from './card.js';
import { corners, describeWithRxe } from './environment.js';
import { GUEST_IS } from './guest/differences.js';
import { FAMILIES, type Family } from './pair.js';
import { optionsOf, PORT, type Role, stockRow, withStock } from './perftest.js';

/** Options of our command that differ from the defaults. */
type Changes = Partial<PerftestOptions> & { readonly family?: Family; readonly link?: LinkKind };

interface Case {
  readonly name: string;
  readonly kind: string;
  /** Further arguments of the stock program. */
  readonly words?: readonly string[];
  readonly changes?: Changes;
  readonly roles?: readonly Role[];
  /** The guest is slow with the largest sizes, and measures its clock for every one. */
  readonly isSlow?: true;
}

const BOTH: readonly Role[] = ['client', 'server'];

/** One second instead of a number of messages: the shortest time that the stock programs accept. */
const SECOND = { words: ['-D', '1'], changes: { durationMs: 1000, iters: Number.POSITIVE_INFINITY } };
/** The fewest iterations that the stock programs allow, because the largest messages are 8 MiB. */
const ALL = { words: ['-a'], changes: { all: true, size: 2 ** 23, iters: 5 } };

/** Losses from a seed. */
const LOSS = { seed: 3, both: { drop: 0.04 } };

const DEFAULTS: readonly Case[] = KINDS.map(({ name }) => ({ name: 'defaults', kind: name }));

const TRANSPORTS: readonly Case[] = [
  ...['send-bw', 'send-lat', 'write-bw', 'write-lat'].map(
    (kind): Case => ({ name: '-c UC', kind, words: ['-c', 'UC'], changes: { transport: 'UC' } }),
  ),
  ...['send-bw', 'send-lat'].map(
    (kind): Case => ({ name: '-c UD', kind, words: ['-c', 'UD'], changes: { transport: 'UD' } }),
  ),
];

const CASES: readonly Case[] = [
  { ...ALL, name: '-a', kind: 'send-bw', roles: ['client'], isSlow: true },
  { ...ALL, name: '-a', kind: 'write-bw', roles: ['server'], isSlow: true },
  { ...ALL, name: '-a', kind: 'read-bw', roles: ['client'] },
  {
    ...{ name: '-a -c UD', kind: 'send-bw', words: ['-a', '-c', 'UD'], roles: ['server'] },
    changes: { ...ALL.changes, transport: 'UD' },
  },
  {
    ...{ name: '-a -c UD', kind: 'send-lat', words: ['-a', '-c', 'UD'], roles: ['client'], isSlow: true },
    changes: { ...ALL.changes, transport: 'UD' },
  },
  ...DEFAULTS,
  ...TRANSPORTS,
  ...['send-bw', 'write-bw', 'read-bw', 'atomic-bw'].flatMap((kind) => [
    { name: '-b', kind, words: ['-b'], changes: { bidirectional: true } },
    { name: '-q 8', kind, words: ['-q', '8'], changes: { qps: 8 } },
    { name: '-l 4', kind, words: ['-l', '4'], changes: { postList: 4 } },
  ]),
  ...['send-bw', 'send-lat', 'read-bw', 'read-lat', 'atomic-bw', 'atomic-lat'].map((kind) => ({
    ...{ name: '-e', kind, words: ['-e'], changes: { spinMs: 0 } },
  })),
  { name: '-b -q 4', kind: 'write-bw', words: ['-b', '-q', '4'], changes: { bidirectional: true, qps: 4 } },
  {
    ...{ name: '-b -q 2 -l 5 -e -c UD', kind: 'send-bw', words: ['-b', '-q', '2', '-l', '5', '-e', '-c', 'UD'] },
    changes: { bidirectional: true, qps: 2, postList: 5, spinMs: 0, transport: 'UD' },
  },
  {
    ...{ name: '-b -c UC', kind: 'send-bw', words: ['-b', '-c', 'UC'] },
    changes: { bidirectional: true, transport: 'UC' },
  },
  ...['atomic-bw', 'atomic-lat'].map((kind) => ({
    ...{ name: '-A CMP_AND_SWAP', kind, words: ['-A', 'CMP_AND_SWAP'] },
    changes: { atomic: 'CMP_AND_SWAP' as const },
  })),
  ...['write-bw', 'write-lat'].flatMap((kind) => [
    { name: '--write_with_imm', kind, words: ['--write_with_imm'], changes: { immediate: true } },
    {
      ...{ name: '--write_with_imm -c UC', kind, words: ['--write_with_imm', '-c', 'UC'] },
      changes: { immediate: true, transport: 'UC' as const },
    },
  ]),
  // each path MTU with another operation, transport and family; 4096 is the default
  ...(
    [
      [256, 'read-bw', 'RC', 'IPv4'],
      [256, 'send-bw', 'UC', 'IPv6'],
      [512, 'read-bw', 'RC', 'IPv6'],
      [512, 'write-bw', 'UC', 'IPv4'],
      [1024, 'read-bw', 'RC', 'IPv4'],
      [1024, 'send-lat', 'UD', 'IPv4'],
      [2048, 'read-bw', 'RC', 'IPv4'],
      [2048, 'write-lat', 'RC', 'IPv6'],
    ] as const
  ).map(([mtu, kind, transport, family]) => ({
    ...{ name: `-m ${mtu} -c ${transport} ${family}`, kind, words: ['-m', String(mtu), '-c', transport] },
    changes: { mtu, transport, family },
  })),
  ...['send-bw', 'read-bw'].map((kind) => ({
    ...{ name: '-Q 7', kind, words: ['-Q', '7'], changes: { cqMod: 7 }, roles: ['client'] as const },
  })),
  { name: '-I 64', kind: 'send-lat', words: ['-I', '64'], changes: { inline: 64 } },
  ...[
    { kind: 'send-bw', words: ['-q', '4'], changes: { qps: 4 } },
    { kind: 'send-lat', words: ['-c', 'UD'], changes: { transport: 'UD' as const } },
  ].map(({ kind, words, changes }) => ({
    ...{ name: `--use-srq ${words.join(' ')}`, kind, words: [...words, '--use-srq'] },
    changes: { ...changes, useSrq: true },
  })),
  { name: '-o 4', kind: 'read-bw', words: ['-o', '4'], changes: { outs: 4 } },
  { name: '-o 1', kind: 'atomic-bw', words: ['-o', '1'], changes: { outs: 1 } },
  { ...SECOND, name: '-D 1', kind: 'send-bw' },
  { ...SECOND, name: '-D 1', kind: 'send-lat' },
  { ...SECOND, name: '-D 1', kind: 'write-bw', roles: ['client'] },
  { ...SECOND, name: '-D 1', kind: 'write-lat', roles: ['server'] },
  {
    ...{ name: '-D 1 -b', kind: 'send-bw', words: [...SECOND.words, '-b'] },
    changes: { ...SECOND.changes, bidirectional: true },
  },
  { name: 'IPv6', kind: 'send-bw', changes: { family: 'IPv6' } },
  { name: 'IPv6', kind: 'read-bw', changes: { family: 'IPv6' } },
  { name: 'IPv6', kind: 'write-lat', changes: { family: 'IPv6' } },
  { name: 'IPv6 -c UD', kind: 'send-lat', words: ['-c', 'UD'], changes: { family: 'IPv6', transport: 'UD' } },
  ...['send-bw', 'write-bw', 'write-lat', 'read-bw', 'atomic-bw'].map((kind) => ({
    ...{ name: 'with 4 % lost either way', kind },
    changes: { timeout: 14, iters: 100, open: { memoryBytes: 2 ** 26, fault: LOSS } },
  })),
  { name: 'over the udp link', kind: 'send-bw', changes: { link: 'udp' } },
  { name: 'over the udp link', kind: 'write-lat', changes: { link: 'udp' } },
];

/** The older version has fewer options. */
const OLDER = [...DEFAULTS, ...TRANSPORTS, ...CASES.filter(({ name }) => name === '-b')];
const VERSIONS = GUEST_IS.perftest.map((known) => ({ ...known, cases: known.version === '4.5' ? OLDER : CASES }));

type Row = readonly [string, string, Role, Case, number];

/** Whether a case must run alone: the udp link owns UDP port 4791, and recovery from losses depends on timing. */
const isAlone = ({ changes = {} }: Case) => changes.link === 'udp' || changes.open?.fault !== undefined;

/** Each case in one role, and what is slow in none. */
const isCorner = ({ isSlow, roles = BOTH }: Case, role: Role, index: number) =>
  !isSlow && role === roles[index % roles.length];

describeWithRxe('perftest', 9000, (environment) => {
  describe.each(VERSIONS)('with the stock programs of $version', ({ folder, says, cases }) => {
    // Cases run concurrently, because the stock programs spend most of their time on measuring their clock. Each has
    // its own port.
    const rows = cases
      .flatMap((row, index) =>
        corners(row.roles ?? BOTH, (role) => isCorner(row, role, index)).map(
          (role) => [row.kind, row.name, role, row] as const,
        ),
      )
      .map((row, i): Row => [...row, PORT + 1 + i]);
    const name = '%s %s, we are the %s';
    test.concurrent.each(rows.filter(([, , , row]) => !isAlone(row)))(name, runCase);
    test.each(rows.filter(([, , , row]) => isAlone(row)))(name, runCase);

    async function runCase(...[kindName, , role, { words = [], changes = {} }, port]: Row) {
      const { family = 'IPv4', ...more } = changes;
      const options = { ...optionsOf(kindName, more), port };
      const { kind, all, iters, size, transport } = options;
      const stock = [
        ...[`${folder}/${kind.stock}`, '-d', 'rxe0', '-F', '-x', String(FAMILIES[family].gid)],
        ...(Number.isFinite(iters) ? ['-n', String(iters)] : []),
        ...(family === 'IPv6' ? ['--ipv6-addr'] : []),
        ...(kind.verb === 'ATOMIC' || all ? [] : ['-s', String(size)]),
        ...(kind.measures === 'bw' ? ['-t', String(options.txDepth)] : []),
        ...words,
      ];
      const { report, stdout } = await withStock(environment, stock, role, family, options);
      expect(report).toMatchObject({ ok: true, test: kindName, role, peerVersion: says });
      const largest = all && transport === 'UD' ? report.mtu : size;
      const count = Number.isFinite(iters) ? iters * options.qps : expect.any(Number);
      const results = report.bandwidth ?? report.latency;
      const oneWorks = ['read-lat', 'atomic-lat'].includes(kindName);
      if (oneWorks && role === 'server') expect(results).toEqual([]);
      else expect(results?.at(-1)).toMatchObject({ size: largest, iters: count });
      if (!oneWorks || role === 'client') expect(results?.at(-1)?.iters).toBeGreaterThan(1);
      // The table of the stock program has the same numbers, unless it was the passive end.
      if (!oneWorks || role === 'server')
        expect(stdout).toMatch(stockRow(largest, typeof count === 'number' ? count : /\d+/));
      expect(report.mtu).toBe(options.mtu ?? 4096);
      expect(Object.keys(report.faults).length > 0).toBe(options.open.fault !== undefined);
    }
  });

  describe('--run_infinitely', () => {
    const words = (kind: string) => [`ib_${kind}_bw`, '-d', 'rxe0', '-F', '-x', '1', '-s', '2000', '--run_infinitely'];
    const endless = (stop: (stop: () => void) => void) => ({
      ...{ iters: Number.POSITIVE_INFINITY, txDepth: 10, rxDepth: 512 },
      runInfinitely: { intervalMs: 100, onStop: stop },
    });

    test.each(['write', 'read', 'atomic'])('%s, we are the client, until we are stopped', async (verb) => {
      const options = optionsOf(
        `${verb}-bw`,
        endless((stop) => void setTimeout(stop, 200)),
      );
      const stock = words(verb).filter((word) => verb !== 'atomic' || !['-s', '2000'].includes(word));
      const { report } = await withStock(environment, stock, 'client', 'IPv4', options);
      expect(report.bandwidth).toHaveLength(1);
      expect(report.bandwidth?.[0]?.iters).toBeGreaterThan(10);
    });

    test('WRITE, we are the server, until the client is stopped', async () => {
      const options = optionsOf(
        'write-bw',
        endless(() => {}),
      );
      const serving = withStock(environment, words('write'), 'server', 'IPv4', options, 600);
      if (!GUEST_IS.saysGoodbye) {
        await expect(serving).rejects.toThrow('the peer closed the TCP connection');
        return;
      }
      const { report, stdout } = await serving;
      expect(report).toMatchObject({ ok: true, bandwidth: [] });
      expect(report.counters.qp.rx_write_requests).toBeGreaterThan(10);
      expect(stdout).toContain('User stopped traffic');
    });

    test('SEND, in either role, until one of them ends', async () => {
      const client = optionsOf(
        'send-bw',
        endless((stop) => void setTimeout(stop, 200)),
      );
      const asked = await withStock(environment, words('send'), 'client', 'IPv4', client, 0);
      expect(asked.report.bandwidth?.[0]?.iters).toBeGreaterThan(10);
      const server = optionsOf(
        'send-bw',
        endless(() => {}),
      );
      const served = await withStock(environment, [...words('send'), '-t', '10'], 'server', 'IPv4', server, 600);
      expect(served.report.bandwidth?.[0]?.iters).toBeGreaterThan(10);
    });
  });

  test.each(GUEST_IS.tclass)('--tclass: %s, every packet of both ends has it', async (family) => {
    const folder = mkdtempSync(join(tmpdir(), 'wasm-roce-'));
    const pcap = join(folder, 'tclass.pcapng');
    const [ours, theirs] = [4 * 26, 4 * 10];
    for (const role of BOTH) {
      const open = { memoryBytes: 2 ** 26, pcap };
      const options = optionsOf('read-bw', { trafficClass: ours, open });
      const stock = ['ib_read_bw', '-d', 'rxe0', '-F', '-x', String(FAMILIES[family].gid), '-n', '20', '-s', '2000'];
      const more = ['--tclass', String(theirs), '-S', '3', '-t', '10', ...(family === 'IPv6' ? ['--ipv6-addr'] : [])];
      await withStock(environment, [...stock, ...more], role, family, options);
      const seen = readCapture(pcap).packets.filter(({ data }) => isRoce(data));
      const classes = (direction: number) =>
        new Set(
          seen
            .filter((packet) => packet.direction === direction)
            .map(({ data }) => decode(data).ip)
            .map((ip) => (ip.version === 4 ? ip.tos : ip.trafficClass) & ~ECN),
        );
      expect([...classes(1)]).toEqual([theirs]);
      expect([...classes(2)]).toEqual([ours]);
    }
    rmSync(folder, { recursive: true });
  });
});

const ECN = 3;
