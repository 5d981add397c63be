import { describe, expect, test } from 'vitest';
import { ICRC_BY_CARD } from '../../bench/contenders/ours.js';
import { plots } from '../../bench/report/plots.js';
import { withPart } from '../../bench/report/readme.js';
import { asMarkdown, asText, bytes, digits, ratio } from '../../bench/report/sheet.js';
import { summarySheet } from '../../bench/report/summary.js';
import { chart } from '../../bench/report/svg.js';
import { targetsSheet } from '../../bench/report/targets.js';
import type { Row } from '../../bench/rig/rounds.js';
import { adapter } from '../../bench/tables/adapter.js';
import { bulk } from '../../bench/tables/bulk.js';
import { latency } from '../../bench/tables/latency.js';
import { offload } from '../../bench/tables/offload.js';
import { type Results, verdicts } from '../../bench/tables/subjects.js';
import type { Work } from '../../bench/work.js';
import { WORK } from './work.js';

const BULK_WORK: Work = { ...WORK, size: 2 ** 20, mtu: 9000 };

function row(contender: string, kind: Row['kind'], values: readonly number[], work: Partial<Work> = {}): Row {
  const samples = values.map((gbps) => ({
    ...{ gbps, messagesPerSecond: gbps, cpuPerByte: 1, cpuPerMessage: 1 },
    latency: { count: 9, min: gbps, median: gbps, p90: gbps, p99: 1.5 * gbps, p999: 3 * gbps, max: 4 * gbps },
  }));
  return { contender, kind, work: { ...BULK_WORK, ...work }, samples };
}

const NET = { operation: 'SEND', waiting: 'sleep' } as const;
const BULK = [
  row('udp, inline', 'ours', [30, 10, 20]),
  row('packet, inline', 'ours', [24, 26]),
  { ...row('xdp, inline', 'ours', []), skipped: 'no such link' },
  row('Node net', 'beside', [20, 10, 40], NET),
];

describe('figures', () => {
  test('have three digits, ratios and sizes', () => {
    expect([digits(1234.5), digits(12.345), digits(1.2345), digits(undefined)]).toEqual(['1235', '12.3', '1.23', '']);
    expect([ratio(3, 2), ratio(3, undefined)]).toEqual(['1.50×', '']);
    expect([bytes(64), bytes(65536), bytes(1048576)]).toEqual(['64 B', '64 KiB', '1 MiB']);
  });

  test('of targets are ratios of medians; the best of our links counts', () => {
    const [jumbo, standard] = verdicts({ bulk: BULK });
    expect(jumbo).toEqual({
      target: 'bulk WRITE 1 MiB, MTU 9000, relative to Node net: at least 1.2',
      figure: '1.25 (packet, inline)',
      isReached: true,
    });
    expect(standard).toMatchObject({ figure: '', isReached: undefined });
  });

  test('of another build are in tables, and neither in targets nor in plots', () => {
    const rows = [...BULK, row('udp, inline, before', 'before', [99])];
    expect(verdicts({ bulk: rows })).toEqual(verdicts({ bulk: BULK }));
    expect(plots({ bulk: rows }, '')).toEqual(plots({ bulk: BULK }, ''));
    const [sheet] = bulk.sheets(rows);
    expect(sheet?.rows.find(([name]) => name === 'udp, inline, before')?.[1]).toBe('WRITE');
  });

  test('of latency targets compare round trips, not rates', () => {
    const ping = { kind: 'pingpong', operation: 'SEND', size: 64, mtu: 1500 } as const;
    const rows = [
      row('udp, inline', 'ours', [10], ping),
      row('udp, inline', 'ours', [60], { ...ping, waiting: 'sleep' }),
      row('Node net', 'beside', [80], { ...ping, waiting: 'sleep' }),
    ];
    const reached = verdicts({ latency: rows }).filter(({ isReached }) => isReached !== undefined);
    expect(reached.map(({ figure, isReached }) => [figure, isReached])).toEqual([
      ['8.00 (udp, inline)', false],
      ['1.50 (udp, inline)', true],
      ['1.33 (udp, inline)', true],
      ['0.75 (udp, inline)', true],
      ['1.50 (udp, inline)', true],
    ]);
  });

  test('are of the slowest round, and compared with the bare link of the same kind', () => {
    const bare = { kind: 'bare', link: 'udp' } as const;
    const rows: Row[] = [
      { ...row('udp, inline', 'ours', [30, 10, 20]), link: 'udp' },
      { ...row('C, bare udp, GSO', 'bare', [40], { operation: 'SEND' }), ...bare },
    ];
    const figures = new Map(verdicts({ bulk: rows }).map((verdict) => [verdict.target, verdict.figure]));
    expect(figures.get('bulk WRITE 1 MiB, path MTU 4096, relative to the bare link with GSO: at least 0.7')).toBe(
      '0.50 (udp, inline)',
    );
    expect(
      figures.get('bulk of any operation and size, MTU 9000: slowest round relative to its median: at least 0.5'),
    ).toBe('0.50 (udp, inline, WRITE 1 MiB)');
  });

  test('of an adapter’s packets are compared with the best C program', () => {
    const rows = [
      row('packet, inline', 'ours', [8, 9, 10]),
      row('udp, inline', 'ours', [6]),
      row('C, recvmmsg', 'bare', [7]),
      row('C, TPACKET_V3', 'bare', [12, 9, 10]),
      row('packet, inline', 'ours', [2], { mtu: 1500 }),
      row('C, TPACKET_V3', 'bare', [4], { mtu: 1500 }),
    ];
    const reached = verdicts({ adapter: rows }).filter(({ isReached }) => isReached !== undefined);
    expect(reached.map(({ figure, isReached }) => [figure, isReached])).toEqual([
      ['0.90 (packet, inline)', true],
      ['0.50 (packet, inline)', false],
    ]);
    const [sheet] = adapter.sheets(rows);
    expect(sheet?.rows[0]?.slice(0, 4)).toEqual(['packet, inline', '2.00', '', '0.50×']);
    expect(summarySheet({ adapter: rows }).rows[1]?.slice(1)).toEqual([
      '9.00 Gbit/s (packet, inline)',
      '10.0 Gbit/s (C, TPACKET_V3)',
    ]);
  });

  test('of connections and footprint have their own verdicts', () => {
    const times = (inTurn: number, atOnce: number) => [{ inTurn, atOnce }];
    const results: Results = {
      connect: {
        count: 100,
        host: [
          { contender: 'udp, ids', times: times(0.02, 0.005) },
          { contender: 'udp, connect', times: times(0.05, 0.02) },
          { contender: 'Node net', times: times(0.01, 0.004) },
        ],
        guest: [
          { contender: 'udp, ids', times: times(1, 0.5) },
          { contender: 'rxe, cmtime', times: [{ atOnce: 0.2 }] },
        ],
        machine: 'a guest',
      },
      footprint: {
        starts: [{ importMs: 20, deviceMs: 30 }],
        idle: { card: 8192, heap: 4096, resident: 20_000 },
      },
    };
    const reached = verdicts(results).filter(({ isReached }) => isReached !== undefined);
    expect(reached.map(({ figure, isReached }) => [figure, isReached])).toEqual([
      ['2000 (udp, connect)', false],
      ['5000 (udp, connect)', false],
      ['5000 (udp, ids)', true],
      ['20000 (udp, ids)', true],
      ['5.00 (udp, connect)', true],
      ['0.40 (udp, ids)', false],
      ['50.0 ms', true],
      ['12.0 KiB', true],
    ]);
  });

  test('are missing without results, and there is no verdict', () => {
    const none = verdicts({});
    expect(none.every(({ figure, isReached }) => figure === '' && isReached === undefined)).toBe(true);
    expect(targetsSheet(none).rows.every(([, figure]) => figure === 'not measured')).toBe(true);
  });

  test('of card, scale and loss have their own verdicts', () => {
    const ofCard = { packets: 2, messagesPerSecond: 1 };
    const results: Results = {
      card: {
        rows: [
          { operation: 'WRITE', size: 2 ** 20, pathMtu: 4096, requesterNs: 256_000, responderNs: 128_000, ...ofCard },
          { operation: 'WRITE', size: 8, pathMtu: 1024, requesterNs: 250, responderNs: 200, ...ofCard },
        ],
        limits: [{ bytes: 4096, span: 2 ** 20, ns: { copyAndSum: 500 } }],
      },
      scale: {
        rows: [
          { qps: 10, messageNs: 100 },
          { qps: 10_000, messageNs: 150 },
        ],
        idle: { bytes: 5000, bytesWithoutRings: 3000 },
      },
      loss: [0, 0.01].map((loss) => ({ ...row('udp, inline', 'ours', [loss === 0 ? 10 : 6]), loss })),
    };
    const reached = verdicts(results).filter(({ isReached }) => isReached !== undefined);
    expect(reached.map(({ figure, isReached }) => [figure, isReached])).toEqual([
      ['4.00 (WRITE)', false],
      ['1.50', false],
      ['1.50', false],
      ['3000 bytes', true],
      ['0.60 (udp, inline)', true],
    ]);
  });
});

test('of the ICRC offload are compared with the same link without it, and with copy and CRC', () => {
  const rows = [
    row('udp, inline', 'ours', [20, 30, 25]),
    row(`udp, inline${ICRC_BY_CARD}`, 'ours', [16, 40, 20]),
    row('xdp, inline', 'ours', [6]),
    row(`xdp, inline${ICRC_BY_CARD}`, 'ours', [8]),
  ];
  const data = { rows, limits: [{ bytes: 4096, span: 2 ** 20, ns: { cCopyAndOffload: 131.072 } }] };
  const reached = verdicts({ offload: data }).filter(({ isReached }) => isReached !== undefined);
  expect(reached.map(({ figure, isReached }) => [figure, isReached])).toEqual([
    ['1.25 (udp, inline, WRITE 1 MiB, MTU 9000)', true],
    ['0.75 (xdp, inline, WRITE 1 MiB, MTU 9000)', false],
  ]);
  const [all, packets] = offload.sheets(data);
  expect(all?.rows[0]?.slice(-4)).toEqual(['25.0', '1.25×', '1024', '1.00×']);
  expect(all?.rows.every(({ length }) => length === all.head.length)).toBe(true);
  expect(packets?.rows[0]).toEqual(['udp, inline', 'WRITE', '1311', '10.0×', '1638', '12.5×']);
});

describe('tables', () => {
  const [sheet] = bulk.sheets(BULK);

  test('have rows as wide as their head, or with the reason why not', () => {
    expect(sheet?.rows.map((cells) => cells.length)).toEqual([10, 10, 2, 10]);
    expect(sheet?.rows[2]).toEqual(['xdp, inline', 'skipped: no such link']);
    expect(sheet?.rows[1]?.slice(7)).toEqual(['25.0', '1.25×', '1024']);
    expect(latency.sheets(BULK)[0]?.rows[3]?.slice(0, 4)).toEqual(['Node net', '', 'in the event loop', '20.0']);
  });

  test('show a wide range', () => {
    expect(sheet?.rows[0]?.[7]).toBe('20.0 (10.0–30.0)');
  });

  test('have notes below them on the terminal, and in the row in a README', () => {
    const short = {
      title: 't',
      head: ['a', 'b', 'c'],
      rows: [
        ['x', '1', '2'],
        ['y', 'skipped: why'],
      ],
    };
    expect(asText(short)).toMatch(/│ x │ 1 │ 2 │[\s\S]*\ny: skipped: why$/);
    expect(asMarkdown(short)).toBe(
      '**t**\n\n| a | b | c |\n| --- | ---: | ---: |\n| x | 1 | 2 |\n| y | skipped: why |',
    );
  });
});

describe('plots', () => {
  test('have bars in proportion and escaped texts', () => {
    const bars = [
      { label: 'a & b', value: 10, kind: 'ours' },
      { label: '<c>', value: 5, kind: 'bare' },
    ] as const;
    const svg = chart({ title: 'T', subtitle: 'S', unit: 'U', groups: [{ label: 'G', bars }] });
    const widths = [...svg.matchAll(/<rect class="(\w+)"[^>]* width="([\d.]+)"/g)].map(([, kind, width]) => [
      kind,
      Number(width),
    ]);
    expect(widths).toEqual([
      ['ours', 540],
      ['bare', 270],
    ]);
    expect(svg).toContain('a &amp; b');
    expect(svg).not.toContain('<c>');
    expect(() => chart({ title: 'T', subtitle: 'S', unit: 'U', groups: [] })).toThrow(RangeError);
  });

  test('are made of the tables that exist', () => {
    expect(Object.keys(plots({ bulk: BULK }, ''))).toEqual(['bulk.svg']);
    expect(plots({}, '')).toEqual({});
  });
});

test('name the best link and the figures of Node in the README', () => {
  const ping = { kind: 'pingpong', operation: 'SEND', size: 64, mtu: 1500 } as const;
  const latency = [
    row('udp, inline', 'ours', [10], { ...ping, waiting: 'spin' }),
    row('xdp, inline', 'ours', [5], { ...ping, waiting: 'spin' }),
    row('udp, worker', 'ours', [1], { ...ping, waiting: 'sleep' }),
    row('Node net', 'beside', [60], { ...ping, waiting: 'sleep' }),
  ];
  expect(summarySheet({ bulk: BULK, latency }).rows.map(([, ours, node]) => [ours, node])).toEqual([
    ['25.0 Gbit/s (packet, inline)', '20.0 Gbit/s (Node net)'],
    ['not measured', 'not measured'],
    ['5.00 µs (xdp, inline)', '60.0 µs (Node net)'],
    ['not measured', 'not measured'],
  ]);
});

test('replace the text between their marks', () => {
  const text = 'A\n<!-- x -->\nold\n<!-- /x -->\nB';
  expect(withPart(text, 'x', 'new')).toBe('A\n<!-- x -->\nnew\n<!-- /x -->\nB');
  expect(() => withPart(text, 'y', 'new')).toThrow(RangeError);
});
