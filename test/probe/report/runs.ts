/** Runs of all checks for reports: against our own card, and against the double with a bug. */
import type { Check } from '../../../src/probe/checks/check.js';
import { CHECKS } from '../../../src/probe/checks/checks.js';
import { runChecks } from '../../../src/probe/checks/run.js';
import type { Target } from '../../../src/probe/checks/target.js';
import type { ProbeRun } from '../../../src/probe/report/run.js';
import { CardTarget } from '../checks/cardtarget.js';
import { Double } from '../checks/double.js';
import type { Bug } from '../checks/doublebugs.js';

/** Every check but those that only measure, by thousands of packets. */
export const REPORTED: readonly Check[] = CHECKS.filter(({ number }) => number !== 56);

const LINK = { kind: 'packet', interface: 'eth0', address: '10.0.0.1', mtu: 1024, timeError: 50 };

async function run(target: Target, peer: string, isIntrusive: boolean): Promise<ProbeRun> {
  const results = [];
  for await (const result of runChecks(REPORTED, target, { isIntrusive })) results.push(result);
  return {
    peer,
    version: '1.2.3',
    date: new Date('2026-01-02T03:04:05.678Z'),
    links: [LINK],
    checks: REPORTED,
    results,
  };
}

/** Runs the checks against our own card. Intrusive checks do not run, unless they are asked for. */
export const cardRun = async (isIntrusive = false): Promise<ProbeRun> =>
  run(await CardTarget.open(), '10.0.0.2', isIntrusive);

/** Runs all checks against a double with a bug. */
export const doubleRun = (bug?: Bug): Promise<ProbeRun> => run(new Double(bug), 'double', true);
