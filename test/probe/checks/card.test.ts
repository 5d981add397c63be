// Every check against our own card, in virtual time.
import { describe, expect, test } from 'vitest';
import type { RequesterCheck } from '../../../src/probe/checks/check.js';
import { CHECKS } from '../../../src/probe/checks/checks.js';
import { runCheck, runChecks } from '../../../src/probe/checks/run.js';
import { describe as packetText } from '../../../src/probe/packet/describe.js';
import { CardTarget } from './cardtarget.js';

/** Checks that send packets; the others judge those. */
const TALKING = CHECKS.filter((check) => 'run' in check);

test.each(TALKING.map((check) => [`${check.number} ${check.name}`, check] as const))('%s', async (_, check) => {
  const result = await runCheck(check, await CardTarget.open());
  const packets = result.evidence.map(({ direction, frame }) => `${direction} ${packetText(frame)}`);
  expect([result.verdict, result.text], packets.join('\n')).toEqual(['pass', '']);
});

/** Checks of a peer that sends requests. */
const ASKING = CHECKS.filter((check) => 'asks' in check);

describe.each(['WRITE', 'SEND', 'READ'] as const)('a card that repeats %ss without end', (opcode) => {
  const fitting = ASKING.filter(({ asks }) => asks.anyOf.includes(opcode));
  test.each(fitting.map((check) => [check.name, check] as const))('%s', async (_, check) => {
    const result = await runCheck(check, await CardTarget.open({ opcode, length: 4096 }));
    const packets = result.evidence.map(({ direction, frame }) => `${direction} ${packetText(frame)}`);
    const isAsked = ['no-credits', 'cnp-rate'].includes(check.name);
    const expected = isAsked ? ['not applicable', 'it sends messages that it is not asked for'] : ['pass', ''];
    expect([result.verdict, result.text], packets.slice(0, 400).join('\n')).toEqual(expected);
  });
});

test('the rules of every packet hold in all checks, and their results come last', async () => {
  const results = [];
  for await (const result of runChecks(CHECKS, await CardTarget.open(), { isIntrusive: true })) results.push(result);
  const rules = CHECKS.filter(({ rule }) => rule !== undefined).map(({ name }) => name);
  expect(results.slice(-rules.length).map(({ name, verdict, text }) => [name, verdict, text])).toEqual(
    rules.map((name) => [name, 'pass', '']),
  );
});

test('intrusive checks do not run unless they are requested', async () => {
  const target = await CardTarget.open();
  const verdicts: Record<string, string> = {};
  for await (const { name, verdict } of runChecks(CHECKS, target)) verdicts[name] = verdict;
  for (const { name, isIntrusive } of CHECKS) expect(verdicts[name]).toBe(isIntrusive ? 'not applicable' : 'pass');
});

test('a check names what to start on a peer without a queue pair', async () => {
  const [check] = CHECKS;
  const result = await runCheck(check as (typeof CHECKS)[number], { responder: async () => 'start rping -s' });
  expect(result).toMatchObject({ verdict: 'not reachable', text: 'start rping -s', evidence: [] });
});

test('a check names what to start on a peer without requests of its kind', async () => {
  const check = CHECKS.find(({ name }) => name === 'nak-reaction') as RequesterCheck;
  const card = await CardTarget.open();
  const text = 'start ib_write_bw or ib_send_bw there as a client of this host';
  const none = { responder: async () => 'start rping -s' };
  const reader = {
    ...none,
    requester: async () => ({ ...(await card.requester(check.asks)), offers: ['READ'] as const }),
  };
  const said = [(await runCheck(check, none)).text, (await runCheck(check, reader)).text];
  expect(said).toEqual([`the peer sends no requests to us: ${text}`, `the peer sends no WRITE or SEND: ${text}`]);
});

test('every check has its own name', () => {
  expect(new Set(CHECKS.map(({ name }) => name)).size).toBe(CHECKS.length);
});
