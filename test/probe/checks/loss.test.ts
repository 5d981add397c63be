// Checks over a path that loses packets: loss is measured, and is not taken for a defect, nor a defect for loss.
import { describe, expect, test } from 'vitest';
import type { ResponderCheck } from '../../../src/probe/checks/check.js';
import { CHECKS } from '../../../src/probe/checks/checks.js';
import { LOSS_CHECK, lossOf, type PathLoss, showsLoss } from '../../../src/probe/checks/loss.js';
import type { CheckResult, Evidence } from '../../../src/probe/checks/result.js';
import { runCheck, runChecks } from '../../../src/probe/checks/run.js';
import type { Target } from '../../../src/probe/checks/target.js';
import {
  ack,
  encodeFrame,
  flowOf,
  nak,
  type Packet,
  request,
  response,
  reverse,
} from '../../../src/probe/packet/packets.js';
import { CardTarget } from './cardtarget.js';
import { Double } from './double.js';
import type { Bug } from './doublebugs.js';
import type { RequesterBug } from './doublerequester.js';
import { Path } from './path.js';

async function results(target: Target, checks = CHECKS): Promise<CheckResult[]> {
  const found: CheckResult[] = [];
  for await (const result of runChecks(checks, target, { isIntrusive: true })) found.push(result);
  return found;
}

const complaints = (all: readonly CheckResult[]) =>
  all
    .filter(({ verdict }) => verdict === 'fails' || verdict === 'deviates')
    .map(({ name, verdict, text }) => `${verdict}: ${name}: ${text}`);

const of = (all: readonly CheckResult[], name: string) => all.find((one) => one.name === name) as CheckResult;

describe.each([1, 2, 3, 4])('2 %% of the packets of each direction are lost, seed %i', (seed) => {
  test('a correct peer has no complaints, and the loss is measured', async () => {
    const target = new Path(new Double(), { loss: 0.02, seed });
    const all = await results(target);
    expect(complaints(all)).toEqual([]);
    const { text, measurements } = of(all, 'answered-at-once');
    expect(text).toMatch(/^the path loses \d+\.\d % of our packets and \d+\.\d % of the peer's$/);
    const [requests = 0, answers = 0] = ['lost_requests', 'lost_answers'].map((name) => measurements[name]?.[0]);
    expect(requests + answers).toBeGreaterThan(0);
    const passed = all.filter((one) => one.verdict === 'pass').length;
    // what needs hundreds of packets in a row cannot be told
    expect(passed).toBeGreaterThan(all.filter(({ verdict }) => verdict !== 'not reachable').length - 6);
  });

  test('our card has no complaints', async () => {
    expect(complaints(await results(new Path(await CardTarget.open(), { loss: 0.02, seed })))).toEqual([]);
  });
});

/** Bugs, and a check that finds each of them however many packets the path loses. */
const FOUND: readonly (readonly [Bug | RequesterBug, string])[] = [
  ['duplicateExecuted', 'duplicate-write'],
  ['msnStale', 'msn'],
  ['readShort', 'read-responses'],
  ['keyUncheckedRead', 'bad-key-read'],
  ['rnrCodeWrong', 'rnr-nak'],
  ['icrcRare', 'icrc'],
  ['portChanges', 'one-source-port'],
  ['migReqZero', 'migreq'],
  ['longSendCode', 'long-send'],
  ['nakRestartsMessage', 'nak-reaction'],
  ['retryForEver', 'retry-count'],
];

test.each(FOUND)('2 %% of the packets are lost: %s is found', async (bug, name) => {
  const found = of(await results(new Path(new Double(bug), { loss: 0.02, seed: 7 })), name);
  expect(['fails', 'deviates'], found.text).toContain(found.verdict);
});

test('a path without loss is measured as such', async () => {
  const result = await runCheck(LOSS_CHECK, new Double());
  expect([result.verdict, result.text, lossOf(result)]).toEqual([
    ...['pass', ''],
    { sent: 200, requests: 0, answers: 0 },
  ]);
});

test('the loss of each direction is measured', async () => {
  const measured = async (forth: number, back: number) => {
    const result = await runCheck(LOSS_CHECK, new Path(new Double(), { loss: [forth, back], seed: 5 }));
    return lossOf(result) as PathLoss;
  };
  const [forth, back] = [await measured(0.1, 0), await measured(0, 0.1)];
  expect([forth.requests > 8, forth.answers, back.requests, back.answers > 8]).toEqual([true, 0, 0, true]);
});

test('a check that passes in another attempt says so', async () => {
  const { text } = of(
    await results(new Path(new Double(), { loss: 0.1, seed: 3 }), namedAll('psn-gap', 'msn', 'latency')),
    'latency',
  );
  expect(text).toMatch(/^$|^passed in attempt \d, as the path loses /);
});

const namedAll = (...names: string[]) => CHECKS.filter(({ name }) => names.includes(name)) as ResponderCheck[];

describe('loss is recognised in the packets', () => {
  const there = flowOf();
  const out = (packet: Packet): Evidence => ({ at: 0, direction: 'out', frame: encodeFrame(there, packet) });
  const back = (packet: Packet): Evidence => ({ at: 0, direction: 'in', frame: encodeFrame(reverse(there), packet) });
  const write = (psn: number) => out(request.writeOnly({ psn, va: 0n, rkey: 1, payload: new Uint8Array(8) }));
  const data = [
    out(request.read({ psn: 10, va: 0n, rkey: 1, length: 3000 })),
    ...response.read({ psn: 10, payload: new Uint8Array(3000), mtu: 1024, msn: 1 }).map(back),
  ];

  test.each([
    ['a NAK of a PSN that has left', [write(10), write(11), back(nak.sequence({ psn: 10, msn: 0 }))], true],
    ['a NAK of a PSN that was left out', [write(11), back(nak.sequence({ psn: 10, msn: 0 }))], false],
    ['an ACK', [write(10), back(ack({ psn: 10, msn: 1 }))], false],
    ['a whole READ', data, false],
    ['a READ without its second response', data.filter((_, i) => i !== 2), true],
  ] as const)('%s: %o', (_, evidence, isLoss) => {
    expect(showsLoss(evidence)).toBe(isLoss);
  });
});
