// The probable maker of a peer: our card, rxe in captures, and adapters whose packets others have captured.
import { expect, test } from 'vitest';
import { readCapture } from '../../../src/probe/capture/read.js';
import type { CheckResult, Evidence } from '../../../src/probe/checks/result.js';
import { decode, isRoce } from '../../../src/probe/packet/decode.js';
import {
  ack,
  CNP,
  datagram,
  encodeFrame,
  type Flow,
  flowOf,
  type Packet,
  request,
  reverse,
} from '../../../src/probe/packet/packets.js';
import { fingerprint, fingerprintText } from '../../../src/probe/report/fingerprint.js';
import type { ProbeRun } from '../../../src/probe/report/run.js';
import { capturePath } from '../../kit/fixtures.js';
import type { Bug } from '../checks/doublebugs.js';
import { cardRun, doubleRun, REPORTED } from './runs.js';

const LINK = { kind: 'packet', interface: 'eth0', address: '10.0.0.1', mtu: 1024 };
const [CHECK] = REPORTED as [(typeof REPORTED)[number]];

/** A run of one check with these packets. */
function runOf(evidence: readonly Evidence[], kind = 'packet'): ProbeRun {
  const result: CheckResult = {
    ...{ number: CHECK.number, name: CHECK.name, verdict: 'pass', text: '', measurements: {}, evidence },
  };
  return { ...base, links: [{ ...LINK, kind }], results: [result] };
}
const base = { peer: 'x', version: '1', date: new Date(0), checks: REPORTED };

/** A run with a capture as evidence, in which the peer is the one of an address. */
function captured(name: string, peer: string): ProbeRun {
  const packets = readCapture(capturePath(name)).packets.filter(({ data }) => isRoce(data));
  return runOf(
    packets.map(({ data, time }) => ({
      at: Number(time - (packets[0]?.time ?? 0n)),
      direction: decode(data).ip.src === peer ? 'in' : 'out',
      frame: data,
    })),
  );
}

const there = flowOf({ srcQp: 0x11, destQp: 0x48, srcIp: '10.0.0.1', dstIp: '10.0.0.2' });

/** A run in which the peer answers and asks with the habits of an adapter. */
function withHabits(habits: Partial<Flow>, answer: Partial<Packet['bth']>, syndrome: number, kind?: string): ProbeRun {
  const back = { ...reverse(there), ...habits };
  const out = (psn: number): Evidence => ({
    at: psn,
    direction: 'out',
    frame: encodeFrame(there, request.sendOnly({ psn })),
  });
  const into = (packet: Packet, at: number): Evidence => ({ at, direction: 'in', frame: encodeFrame(back, packet) });
  const asked = request.sendOnly({ psn: 500, bth: answer });
  return runOf(
    [
      out(1),
      into(ack({ psn: 1, msn: 1, syndrome }), 1),
      out(2),
      into(ack({ psn: 2, msn: 2, syndrome }), 2),
      into(asked, 3),
    ],
    kind,
  );
}

test('our own card is recognised, with the reasons', async () => {
  const { probably, candidates } = fingerprint(await cardRun(true));
  expect(probably).toBe('wasm-roce');
  expect(candidates[0]?.for).toEqual(expect.arrayContaining(['MigReq: 1', 'ACKs: not ECN-capable']));
  expect(candidates[0]?.against).toEqual([]);
  expect(candidates.find(({ adapter }) => adapter === 'rxe')?.against).toEqual(
    expect.arrayContaining(['MigReq: 1', 'a reserved opcode: refused']),
  );
});

test.each([
  ['ib_write_bw_8192', '10.77.0.3'],
  ['rnr_send_bw', '10.77.0.3'],
  ['rping', '10.77.0.3'],
  ['ib_write_bw_v6_8192', 'fd77::3'],
  ['rxt_ops', '10.77.0.2'],
])('rxe is recognised in the capture %s', (name, peer) => {
  const { probably, candidates } = fingerprint(captured(name, peer));
  expect(probably).toBe('rxe');
  expect(candidates[0]?.against).toEqual([]);
});

test('rxe is recognised by the port of its CM messages, and by the ICRC of FLUSH', () => {
  expect(fingerprint(captured('rping', '10.77.0.3')).candidates[0]?.for).toContain(
    'UDP source port of CM messages: 0xd872',
  );
  expect(fingerprint(captured('rxt_flush_mr', '10.77.0.2')).candidates[0]?.for).toContain(
    'ICRC of FLUSH requests: wrong',
  );
});

test('a peer with the verdicts of rxe is recognised as rxe', async () => {
  const bugs: Readonly<Record<string, Bug>> = {
    migreq: 'migReqZero',
    'reserved-opcode': 'reservedOpcodeSilent',
    'long-send': 'longSendCode',
    'rnr-drops-the-rest': 'rnrThenNak',
    cnp: 'noCnp',
  };
  const correct = await doubleRun();
  const results = await Promise.all(
    Object.entries(bugs).map(async ([name, bug]) => (await doubleRun(bug)).results.filter((one) => one.name === name)),
  );
  expect(fingerprint({ ...correct, results: results.flat() })).toMatchObject({
    probably: 'rxe',
    candidates: expect.arrayContaining([
      // the double shares nothing with rxe but the bugs
      expect.objectContaining({
        adapter: 'rxe',
        against: ['IPv4 identification: always 0', 'credits in ACKs: receives that are posted'],
      }),
    ]),
  });
});

test('a known deviation counts for the adapters that have it, and against our card', async () => {
  const { candidates } = fingerprint({ ...(await doubleRun('rightsCode')), links: [{ ...LINK, kind: 'udp' }] });
  const text = 'no-write-right: NAK 0x61 instead of 0x62';
  expect(candidates.filter((each) => each.for.includes(text)).map(({ adapter }) => adapter)).toEqual(['mlx5']);
  expect(candidates.filter((each) => each.against.includes(text)).map(({ adapter }) => adapter)).toEqual(['wasm-roce']);
});

test('mlx5 is recognised by MigReq, ECN-capable ACKs, credits that count, and an identification that is not 0', () => {
  const { probably, candidates } = fingerprint(withHabits({ trafficClass: 2, ipId: 0x718c, sport: 53025 }, {}, 0));
  expect(probably).toBe('mlx5');
  expect(candidates[0]).toMatchObject({ title: 'ConnectX (mlx5)', against: [] });
});

test('Hi1822 is recognised by its queue pair number as UDP port, identification 0, and a reserved bit in requests', () => {
  const run = withHabits({ trafficClass: 2, ipId: 0, sport: 0x48 }, { reserved6: 0x10 }, 6);
  expect(fingerprint(run)).toMatchObject({ probably: 'hinic', candidates: [{ against: [] }, {}, {}, {}, {}] });
  expect(fingerprintText(fingerprint(run))).toMatch(
    /^The peer is probably Huawei Hi1822\.\nHuawei Hi1822 \(\+\d+\)\n( {2}for: .*\n)*? {2}for: UDP source port: its own queue pair number\n/,
  );
});

test('a link that does not see IP headers gives no evidence of identifications', () => {
  const texts = (kind: string) =>
    fingerprint(withHabits({ ipId: 0 }, {}, 31, kind)).candidates.flatMap((each) => [...each.for, ...each.against]);
  expect(texts('packet')).toContain('IPv4 identification: always 0');
  expect(texts('udp').join()).not.toContain('identification');
});

test('mlx5 is recognised by CNPs from port 0, ECN-capable CM messages, and repetitions after 537 ms', () => {
  const back = { ...reverse(there), trafficClass: 2, sport: 64079 };
  const into = (packet: Packet, at: number, changes: Partial<Flow> = {}): Evidence => ({
    ...{ at, direction: 'in', frame: encodeFrame({ ...back, ...changes }, packet) },
  });
  const cnp: Packet = {
    bth: { opcode: CNP, psn: 0, ackReq: false, solicited: false, becn: true },
    payload: new Uint8Array(16),
  };
  const mad = datagram.sendOnly({ psn: 0, qkey: 0x80010000, srcQp: 1, payload: new Uint8Array(256) });
  const again = request.sendOnly({ psn: 7 });
  const run = runOf([
    into(cnp, 0, { sport: 0 }),
    into(mad, 1, { destQp: 1 }),
    into(again, 2),
    into(again, 536_870_914),
  ]);
  expect(fingerprint(run).candidates[0]).toMatchObject({
    adapter: 'mlx5',
    for: expect.arrayContaining([
      ...['UDP source port of CNPs: 0', 'CM messages: ECN-capable', 'time between retransmissions: about 537 ms'],
    ]),
  });
});

test('a peer without packets is not recognised', () => {
  expect(fingerprint(runOf([]))).toEqual({ candidates: [] });
  expect(fingerprintText({ candidates: [] })).toBe('What the peer is cannot be told.');
});
