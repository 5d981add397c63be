// The report of a run as JSON.
import { expect, test } from 'vitest';
import type { Evidence } from '../../../src/probe/checks/result.js';
import {
  ack,
  CNP,
  datagram,
  encodeFrame,
  flowOf,
  nak,
  type Packet,
  request,
  response,
  reverse,
} from '../../../src/probe/packet/packets.js';
import { compareReports, comparisonText } from '../../../src/probe/report/compare.js';
import { distribution } from '../../../src/probe/report/distribution.js';
import { cmFigures, flowFigures, ladderOf } from '../../../src/probe/report/figures.js';
import { parseProbeReport, probeReport } from '../../../src/probe/report/report.js';
import { cardRun, doubleRun, REPORTED } from './runs.js';

test('a report has every check in the order of their numbers, with its description', async () => {
  const report = probeReport(await cardRun());
  expect(report).toMatchObject({
    schema: 'wasm-roce probe report',
    schema_version: 1,
    generator: { name: 'wasm-roce', version: '1.2.3' },
    peer: '10.0.0.2',
    date: '2026-01-02T03:04:05.678Z',
    links: [{ kind: 'packet', interface: 'eth0', address: '10.0.0.1', mtu: 1024 }],
    fingerprint: { probably: 'wasm-roce' },
  });
  expect(report.checks.map(({ name }) => name)).toEqual(REPORTED.map(({ name }) => name));
  const intrusive = REPORTED.filter(({ isIntrusive }) => isIntrusive).length;
  expect(report.summary).toEqual({
    pass: REPORTED.length - intrusive,
    deviates: 0,
    fails: 0,
    'not applicable': intrusive,
    'not reachable': 0,
  });
  const { name: first, title, clause, sends, expects } = REPORTED[0] as (typeof REPORTED)[number];
  expect(report.checks.find(({ name }) => name === first)).toMatchObject({
    ...{ title, clause, sends, expects, verdict: 'pass', text: '' },
  });
  expect(report).not.toHaveProperty('ended');
  expect(report.checks.find(({ name }) => name === 'damaged-icrc')).toMatchObject({
    verdict: 'not applicable',
    text: expect.stringContaining('intrusive'),
    flows: [],
  });
});

test('messages of a check of a connection manager are in the counts, in the ladder and in its figures', async () => {
  const run = await doubleRun();
  const report = probeReport(run);
  const { connect_request_tx, connect_reply_rx, disconnect_reply_rx, reject_rx } = report.connection_manager;
  expect(Math.min(connect_request_tx, connect_reply_rx, disconnect_reply_rx)).toBeGreaterThan(50);
  expect(reject_rx).toBeGreaterThan(3);
  const of = (name: string) => report.checks.find((check) => check.name === name);
  expect(of('rep-fields')?.measurements.target_ack_delay).toMatchObject({ unit: 'count', median: 15 });
  expect(of('rep-repeated')?.measurements.rep_interval).toMatchObject({ unit: 'ns', count: 3, median: 134_217_728 });
  const evidence = run.results.find(({ name }) => name === 'unknown-service')?.evidence ?? [];
  const labels = ladderOf(evidence).packets.map(({ kind, label }) => `${kind} ${label}`);
  expect(labels).toEqual([
    expect.stringMatching(/^CM REQ, id 0x[0-9a-f]+, qp 0x700, psn \d+, service 0x1061d31$/),
    expect.stringMatching(/^CM REJ, reason 8 \(invalid service id\), id 0x0, peer 0x[0-9a-f]+$/),
  ]);
});

test('a report of a run that ended early has the reason', async () => {
  expect(probeReport({ ...(await cardRun()), ended: 'stopped by SIGINT' }).ended).toBe('stopped by SIGINT');
});

test('a deviation is named, and a failure has its reason', async () => {
  const deviates = probeReport(await doubleRun('migReqZero'));
  expect(deviates.summary).toMatchObject({ deviates: 1, fails: 0 });
  expect(deviates.checks.find(({ verdict }) => verdict === 'deviates')).toMatchObject({
    name: 'migreq',
    text: expect.stringMatching(/^\d+ of \d+ packets have MigReq 0, .*; the first one in check 1 icrc: MigReq is 0$/),
    deviation: { of: 'rxe, E810' },
  });
  const fails = probeReport(await doubleRun('cnpFlood'));
  expect(fails.checks.find(({ verdict }) => verdict === 'fails')).toMatchObject({ name: 'cnp' });
  expect(fails.checks.find(({ verdict }) => verdict === 'fails')?.text).toMatch(/CNPs for 20 marked packets/);
});

test('a measurement is a time, or a count if the check says so', async () => {
  const { checks } = probeReport(await cardRun(true));
  const found = Object.assign({}, ...checks.map(({ measurements }) => measurements));
  expect(found.ack_generation).toEqual({ unit: 'ns', count: 10, min: 0, median: 0, p99: 0, max: 0 });
  expect(found.credit_code).toMatchObject({ unit: 'count', count: 4 });
  for (const { name, counts = [] } of REPORTED)
    expect(Object.keys(checks.find((each) => each.name === name)?.measurements ?? {})).toEqual(
      expect.arrayContaining([...counts]),
    );
});

test('distributions have the median and the 99th percentile', () => {
  expect(distribution([], 'ns')).toBeUndefined();
  expect(distribution([7], 'ns')).toEqual({ unit: 'ns', count: 1, min: 7, median: 7, p99: 7, max: 7 });
  expect(distribution([10, 9, 1, 2], 'count')).toMatchObject({ min: 1, median: 5.5, p99: 10, max: 10 });
  const thousand = Array.from({ length: 1000 }, (_, i) => 1000 - i);
  expect(distribution(thousand, 'ns')).toMatchObject({ min: 1, median: 500.5, p99: 990, max: 1000 });
});

const there = flowOf({ srcQp: 0x11, destQp: 0x22 });
const back = reverse(there);

test('figures count packets by their purpose, in each direction', () => {
  const out = (...packets: Packet[]) =>
    packets.map((one): Omit<Evidence, 'at'> => ({ direction: 'out', frame: encodeFrame(there, one) }));
  const into = (one: Packet, trafficClass?: number): Omit<Evidence, 'at'> => ({
    direction: 'in',
    frame: encodeFrame(trafficClass === undefined ? back : { ...back, trafficClass }, one),
  });
  const payload = new Uint8Array(2500);
  const [first, middle, last] = request.send({ psn: 5, payload, mtu: 1024 }) as [Packet, Packet, Packet];
  const evidence = [
    ...out(first, middle, last),
    into(ack({ psn: 5, msn: 0 })),
    into(nak.sequence({ psn: 6 })),
    ...out(middle, last),
    into(ack({ psn: 7, msn: 1 }), 3),
    ...out(request.read({ psn: 8, va: 0n, rkey: 1, length: 4 })),
    into(response.readOnly({ psn: 8, msn: 2, payload: new Uint8Array(4) })),
    into({ bth: { opcode: CNP, psn: 0, ackReq: false, solicited: false }, payload: new Uint8Array(16) }),
    into(nak.remoteAccess({ psn: 9, msn: 2 })),
  ].map((one, i) => ({ ...one, at: 500 + i * 10 }));
  const [only, ...others] = flowFigures(evidence);
  expect(others).toEqual([]);
  expect(only).toMatchObject({ src_qp: 0x11, dest_qp: 0x22, src_ipv4: there.srcIp, dest_ipv4: there.dstIp });
  expect(only).toMatchObject({ data_frames_tx: 6, data_frames_rx: 1, data_frames_retransmitted: 2 });
  expect(only).toMatchObject({ message_tx: 2, message_complete_rx: 1, message_fail: 1 });
  expect(only).toMatchObject({ ack_tx: 0, ack_rx: 2, nak_tx: 0, nak_rx: 2, cnp_tx: 0, cnp_rx: 1, ecn_ce_rx: 1 });
  expect(only).toMatchObject({ first_timestamp: 0, last_timestamp: 10 * (evidence.length - 1) });
  const bytes = evidence
    .filter(({ direction }) => direction === 'out')
    .reduce((sum, { frame }) => sum + frame.length, 0);
  expect(only?.tx_bytes).toBe(bytes);
});

test('the addresses of a flow are those of IPv4 or of IPv6', () => {
  const six = flowOf({ srcIp: 'fd00::1', dstIp: 'fd00::2' });
  const [only] = flowFigures([{ at: 0, direction: 'out', frame: encodeFrame(six, request.sendOnly({ psn: 1 })) }]);
  expect(only).toMatchObject({ src_ipv6: 'fd00::1', dest_ipv6: 'fd00::2' });
  expect(Object.keys(only ?? {}).filter((name) => /_(ipv4|qp)$/.test(name))).toEqual(['dest_qp']);
});

test('messages of rdma_cm are counted by their kind, in each direction', () => {
  const mad = (attribute: number) => {
    const payload = new Uint8Array(256);
    payload[1] = 7;
    payload[17] = attribute;
    return datagram.sendOnly({ psn: 0, payload, qkey: 0x80010000, srcQp: 1 });
  };
  const at = (direction: 'in' | 'out', attribute: number): Evidence => ({
    at: 0,
    direction,
    frame: encodeFrame(direction === 'out' ? { ...there, destQp: 1 } : { ...back, destQp: 1 }, mad(attribute)),
  });
  const evidence = [
    at('out', 16),
    at('out', 16),
    at('in', 19),
    at('out', 20),
    at('in', 21),
    at('out', 22),
    at('in', 99),
  ];
  expect(cmFigures(evidence)).toMatchObject({
    ...{ connect_request_tx: 2, connect_request_rx: 0, connect_reply_rx: 1, ready_tx: 1 },
    ...{ disconnect_request_rx: 1, disconnect_reply_tx: 1, reject_rx: 0, unknown_msg_rx: 1 },
  });
  expect(flowFigures(evidence)).toEqual([]);
});

test('a report is read back from its text', async () => {
  const report = probeReport(await doubleRun('icrcWrong'));
  expect(parseProbeReport(JSON.stringify(report))).toEqual(report);
});

test.each([
  ['{', /^the report is not JSON: /],
  ['null', /^schema is undefined, must be "wasm-roce probe report"$/],
  ['{"schema":"other"}', /^schema is "other", must be "wasm-roce probe report"$/],
  ['{"schema":"wasm-roce probe report","schema_version":2}', /^schema_version is 2, must be 1$/],
  ['{"schema":"wasm-roce probe report","schema_version":1}', /^peer is undefined, must be a string$/],
  [
    '{"schema":"wasm-roce probe report","schema_version":1,"peer":"","date":""}',
    /^checks is undefined, must be an array$/,
  ],
])('text that is no report is refused: %s', (text, message) => {
  expect(() => parseProbeReport(text)).toThrow(message);
});

test('checks of a report are validated before they are compared', async () => {
  const report = probeReport(await cardRun());
  const changed = (change: object) => JSON.stringify({ ...report, checks: [{ ...report.checks[0], ...change }] });
  expect(() => parseProbeReport(changed({ name: 1 }))).toThrow('checks[0].name is number, must be a string');
  expect(() => parseProbeReport(changed({ verdict: 'good' }))).toThrow('checks[0].verdict is "good", must be one of');
  expect(() => parseProbeReport(changed({ measurements: { x: { median: '' } } }))).toThrow(
    'checks[0].measurements.x.median is string, must be a number',
  );
});

test('a report with any change is refused with the field’s name, or can be compared', async () => {
  const report = probeReport(await cardRun());
  // a few checks have all that there is
  const small = JSON.stringify({ ...report, checks: report.checks.slice(0, 2).concat(report.checks.slice(13, 15)) });
  const paths: (string | number)[][] = [];
  const walk = (value: unknown, path: (string | number)[]): void => {
    if (path.length > 0) paths.push(path);
    if (typeof value === 'object' && value !== null)
      for (const key of Object.keys(value)) walk(value[key as keyof typeof value], [...path, key]);
  };
  walk(JSON.parse(small), []);
  for (const path of paths)
    for (const other of [null, 1, 'x', {}, [null]]) {
      const changed = JSON.parse(small);
      const parent = path.slice(0, -1).reduce((of, key) => of[key], changed);
      parent[path.at(-1) as string] = other;
      try {
        comparisonText(compareReports(parseProbeReport(JSON.stringify(changed)), report));
      } catch (error) {
        expect(error, path.join('.')).toBeInstanceOf(RangeError);
      }
    }
});

test('a result of a check that is not given is an error', async () => {
  const run = await cardRun();
  expect(() => probeReport({ ...run, checks: REPORTED.slice(1) })).toThrow(
    new RangeError('there is a result of icrc, which is none of the checks'),
  );
});
