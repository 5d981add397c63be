// Our perftest commands and the stock programs of perftest 25.01, each as client and as server of the other.
import { Writable } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { Output } from '../../src/cli/output.js';
import { KINDS, type PerftestOptions } from '../../src/cli/perftest/kinds.js';
import type { PerftestReport } from '../../src/cli/perftest/report.js';
import { runClient, runServer } from '../../src/cli/perftest/roles.js';
import type { LinkKind } from './card.js';
import { CARD, GUEST } from './guest/network.js';
import { describeWithRxe } from './world.js';

const PORT = 18515;

/** What a case has beside the defaults: ours as the program knows it. */
type Changes = Partial<PerftestOptions> & { readonly family?: 'IPv4' | 'IPv6'; readonly link?: LinkKind };

interface Case {
  readonly name: string;
  readonly kind: string;
  /** More words for the stock program. */
  readonly words?: readonly string[];
  readonly changes?: Changes;
  readonly roles?: readonly Role[];
}

type Role = 'client' | 'server';
const BOTH: readonly Role[] = ['client', 'server'];

const ALL = { name: '-a', words: ['-a'], changes: { all: true, size: 2 ** 23, iters: 5 } };

/** Repeatable as far as the peer is. */
const LOSS = { seed: 3, both: { drop: 0.04 } };

const CASES: readonly Case[] = [
  ...KINDS.map(({ name }) => ({ name: 'defaults', kind: name })),
  { name: '-c UC', kind: 'send-bw', words: ['-c', 'UC'], changes: { transport: 'UC' } },
  { name: '-c UD', kind: 'send-bw', words: ['-c', 'UD'], changes: { transport: 'UD' } },
  { name: '-c UC', kind: 'send-lat', words: ['-c', 'UC'], changes: { transport: 'UC' } },
  { name: '-c UD', kind: 'send-lat', words: ['-c', 'UD'], changes: { transport: 'UD' } },
  { name: '-c UC', kind: 'write-bw', words: ['-c', 'UC'], changes: { transport: 'UC' } },
  { name: '-c UC', kind: 'write-lat', words: ['-c', 'UC'], changes: { transport: 'UC' } },
  ...['send-bw', 'write-bw', 'read-bw', 'atomic-bw'].flatMap((kind) => [
    { name: '-b', kind, words: ['-b'], changes: { bidirectional: true } },
    { name: '-q 8', kind, words: ['-q', '8'], changes: { qps: 8 } },
  ]),
  { name: '-b -q 4', kind: 'write-bw', words: ['-b', '-q', '4'], changes: { bidirectional: true, qps: 4 } },
  {
    name: '-A CMP_AND_SWAP',
    kind: 'atomic-bw',
    words: ['-A', 'CMP_AND_SWAP'],
    changes: { atomic: 'CMP_AND_SWAP' },
  },
  { name: '--write_with_imm', kind: 'write-bw', words: ['--write_with_imm'], changes: { immediate: true } },
  { name: '--write_with_imm', kind: 'write-lat', words: ['--write_with_imm'], changes: { immediate: true } },
  ...[256, 512, 1024, 2048].map((mtu) => ({
    ...{ name: `-m ${mtu}`, kind: 'read-bw', words: ['-m', String(mtu)], changes: { mtu } },
  })),
  // the virtual machine is slow with the largest sizes, so those go one way only
  { ...ALL, kind: 'write-bw', roles: ['client'] },
  { ...ALL, kind: 'read-bw', roles: ['client'] },
  ...['send-bw', 'send-lat'].map((kind) => ({
    ...{ name: '-a -c UD', kind, words: ['-a', '-c', 'UD'], changes: { ...ALL.changes, transport: 'UD' as const } },
  })),
  { name: 'IPv6', kind: 'send-bw', changes: { family: 'IPv6' } },
  { name: 'IPv6', kind: 'read-bw', changes: { family: 'IPv6' } },
  { name: 'IPv6', kind: 'write-lat', changes: { family: 'IPv6' } },
  { name: 'IPv6 -c UD', kind: 'send-lat', words: ['-c', 'UD'], changes: { family: 'IPv6', transport: 'UD' } },
  ...['send-bw', 'write-bw', 'write-lat', 'read-bw', 'atomic-bw'].map((kind) => ({
    ...{
      name: 'with 4 % lost either way',
      kind,
      changes: { timeout: 14, iters: 100, open: { memoryBytes: 2 ** 26, fault: LOSS } },
    },
  })),
  { name: 'over the udp link', kind: 'send-bw', changes: { link: 'udp' } },
  { name: 'over the udp link', kind: 'write-lat', changes: { link: 'udp' } },
];

const ROWS = CASES.flatMap((row) => (row.roles ?? BOTH).map((role) => [row.kind, row.name, role, row] as const));

describeWithRxe('perftest', 9000, (world) => {
  describe('with the stock programs', () => {
    test.each(ROWS)('%s %s, we are the %s', async (kindName, _name, role, { words = [], changes = {} }) => {
      const { family = 'IPv4', ...more } = changes;
      const options = optionsOf(kindName, more);
      const { kind, all, iters, size } = options;
      const stock = [
        ...[kind.stock, '-d', 'rxe0', '-F', '-x', family === 'IPv4' ? '1' : '2', '-n', String(iters)],
        ...(family === 'IPv6' ? ['--ipv6-addr'] : []),
        ...(kind.verb === 'ATOMIC' || all ? [] : ['-s', String(size)]),
        ...(kind.measures === 'bw' ? ['-t', String(options.txDepth)] : []),
        ...words,
      ];
      const [ours, theirs] = family === 'IPv4' ? [CARD.ipv4, GUEST.ipv4] : [CARD.ipv6, GUEST.ipv6];
      const printed = new Text();
      const output = new Output(true, printed, new Text() as unknown as NodeJS.WriteStream);
      const tool = role === 'server' ? undefined : world.guest.spawn(stock);
      let stdout: string;
      try {
        if (tool) {
          await world.guest.listening(PORT);
          await runClient(theirs, options, output).catch((error) => {
            throw tool.error(String(error));
          });
          const ended = await tool.exited;
          if (ended.status !== 0) throw tool.error(`status ${ended.status}`);
          stdout = ended.stdout;
        } else {
          const serving = runServer(options, output);
          const asking = world.guest.run([...stock, ours], { timeout: 30_000 });
          const [served, asked] = await Promise.allSettled([serving, asking]);
          if (served.status === 'rejected') throw served.reason;
          if (asked.status === 'rejected') throw asked.reason;
          stdout = asked.value;
        }
      } finally {
        await tool?.kill();
      }
      const report = JSON.parse(printed.text) as PerftestReport;
      expect(report).toMatchObject({ ok: true, test: kindName, role, peerVersion: '6.24' });
      const largest = all && options.transport === 'UD' ? report.mtu : size;
      const results = report.bandwidth ?? report.latency;
      const isIdle = kindName === 'read-lat' && role === 'server';
      if (isIdle) expect(results).toEqual([]);
      else expect(results?.at(-1)).toMatchObject({ size: largest, iters: iters * options.qps });
      // The stock program has the same numbers in its table, unless it was the idle one.
      if (kindName !== 'read-lat' || role === 'server')
        expect(stdout).toMatch(new RegExp(`^ *${largest} +${iters * options.qps} +\\d`, 'm'));
      expect(report.mtu).toBe(options.mtu ?? 4096);
      expect(Object.keys(report.faults).length > 0).toBe(options.open.fault !== undefined);
    });
  });
});

function optionsOf(name: string, changes: Partial<PerftestOptions>): PerftestOptions {
  const kind = KINDS.find((one) => one.name === name);
  if (kind === undefined) throw new Error(`there is no ${name}`);
  const iters = changes.iters ?? 20;
  const size = kind.verb === 'ATOMIC' ? 8 : kind.measures === 'bw' ? 2000 : 64;
  return {
    ...{ kind, port: PORT, interface: CARD.interface, link: 'packet', transport: 'RC', size, all: false, iters },
    ...{ durationMs: 0, txDepth: kind.measures === 'bw' ? Math.min(10, iters) : 1, rxDepth: iters, qps: 1 },
    ...{ bidirectional: false, immediate: false, atomic: 'FETCH_AND_ADD', timeout: 18, retryCnt: 7, gigabits: false },
    ...{ idleMs: 10_000, spinMs: 0.2, open: { memoryBytes: 2 ** 26 } },
    ...changes,
  };
}

class Text extends Writable {
  text = '';

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.text += chunk.toString();
    done();
  }
}
