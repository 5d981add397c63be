// Our perftest commands and the stock programs with -R, where rdma_cm connects the queue pairs, and with -z, where
// rdma_cm only exchanges their parameters.
import { describe, expect, test } from 'vitest';
import type { PerftestOptions } from '../../src/cli/perftest/parameters.js';
import { corners, describeWithRxe } from './environment.js';
import { GUEST_IS } from './guest/differences.js';
import { FAMILIES, type Family } from './pair.js';
import { optionsOf, type Role, stockRow, withStock } from './perftest.js';

/** The fewest iterations that include an exchange in the middle of a run. */
const ITERS = 5;

interface Case {
  readonly kind: string;
  /** Our roles. The stock programs are slow, so few cases run in both roles. */
  readonly roles: readonly Role[];
  /** Further arguments of the stock program. */
  readonly words?: readonly string[];
  readonly changes?: Partial<PerftestOptions>;
  readonly family?: Family;
  /** -z instead of -R. */
  readonly connectsItself?: boolean;
}

const BOTH = ['client', 'server'] as const;

const CASES: readonly Case[] = [
  ...['send-bw', 'write-lat', 'read-bw', 'atomic-bw'].map((kind): Case => ({ kind, roles: BOTH })),
  ...['send-lat', 'read-lat'].map((kind): Case => ({ kind, roles: ['client'] })),
  ...['write-bw', 'atomic-lat'].map((kind): Case => ({ kind, roles: ['server'] })),
  { kind: 'read-bw', roles: ['client'], words: ['-q', '4'], changes: { qps: 4 } },
  { kind: 'write-bw', roles: ['server'], words: ['-b', '-q', '4'], changes: { bidirectional: true, qps: 4 } },
  { kind: 'send-bw', roles: ['server'], words: ['-c', 'UD'], changes: { transport: 'UD' } },
  { kind: 'send-bw', roles: ['client'], words: ['-c', 'UD', '-b'], changes: { transport: 'UD', bidirectional: true } },
  { kind: 'send-lat', roles: ['server'], words: ['-c', 'UD'], changes: { transport: 'UD' } },
  { kind: 'read-bw', roles: ['server'], changes: { link: 'udp' } },
  { kind: 'send-bw', roles: BOTH, family: 'IPv6' },
  { kind: 'send-lat', roles: ['client'], words: ['-c', 'UD'], changes: { transport: 'UD' }, family: 'IPv6' },
  { kind: 'write-bw', roles: BOTH, connectsItself: true },
  { kind: 'read-lat', roles: ['client'], connectsItself: true, words: ['-m', '1024'], changes: { mtu: 1024 } },
  { kind: 'send-bw', roles: ['server'], connectsItself: true, words: ['-c', 'UD'], changes: { transport: 'UD' } },
];

/** Cases of the older version, which connects over IPv4 only. */
const OLDER: readonly Case[] = [
  { kind: 'send-bw', roles: BOTH },
  { kind: 'write-lat', roles: ['client'] },
  { kind: 'atomic-bw', roles: ['server'] },
  { kind: 'read-bw', roles: ['server'], words: ['-q', '4'], changes: { qps: 4 } },
  { kind: 'send-bw', roles: ['client'], words: ['-c', 'UD', '-b'], changes: { transport: 'UD', bidirectional: true } },
];

const VERSIONS = GUEST_IS.perftest.map((known) => ({ ...known, cases: known.version === '4.5' ? OLDER : CASES }));

describeWithRxe('perftest -R', 9000, (environment) => {
  describe.each(VERSIONS)('with the stock programs of $version', ({ folder, says, cases }) => {
    const rows = cases.flatMap((row, index) =>
      corners(row.roles, (_, i) => i === index % row.roles.length).map((role) => {
        const { kind, words = [], family, changes, connectsItself } = row;
        return [
          [kind, connectsItself ? '-z' : '-R', ...words, family, changes?.link].filter(Boolean).join(' '),
          role,
          row,
        ] as const;
      }),
    );
    test.each(rows)(
      '%s, we are the %s',
      async (_, role, { kind: name, words = [], changes = {}, family = 'IPv4', connectsItself = false }) => {
        const meets = { rdmaCm: !connectsItself, commRdmaCm: connectsItself };
        const options = optionsOf(name, { iters: ITERS, ...meets, ...changes });
        const { kind, iters, size, qps } = options;
        const stock = [
          ...[
            `${folder}/${kind.stock}`,
            ...(connectsItself ? ['-z', '-x', String(FAMILIES[family].gid)] : ['-R']),
            '-d',
            'rxe0',
            '-F',
            '-n',
            String(iters),
          ],
          ...(family === 'IPv6' ? ['--ipv6-addr'] : []),
          ...(kind.verb === 'ATOMIC' ? [] : ['-s', String(size)]),
          ...(kind.measures === 'bw' ? ['-t', String(options.txDepth)] : []),
          ...words,
        ];
        const { report, stdout } = await withStock(environment, stock, role, family, options);
        expect(report).toMatchObject({ ok: true, test: name, role, peerVersion: says });
        const results = report.bandwidth ?? report.latency;
        const isAlone = ['read-lat', 'atomic-lat'].includes(name);
        if (isAlone && role === 'server') expect(results).toEqual([]);
        else expect(results?.at(-1)).toMatchObject({ size, iters: iters * qps });
        if (!isAlone || role === 'server') expect(stdout).toMatch(stockRow(size, iters * qps));
      },
    );
  });
});
