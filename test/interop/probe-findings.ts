/** Findings of checks of a peer. */
import { expect } from 'vitest';
import { LinkTarget } from '../../src/cli/probe/target.js';
import { describe } from '../../src/probe/packet/describe.js';
import { type Check, type CheckResult, runChecks, type Target } from '../../src/probe.js';

/** Runs the checks. @returns the results without passes, and their packets in words, for an assertion that fails */
export async function findings(target: Target, checks: readonly Check[]) {
  const results: CheckResult[] = [];
  for await (const result of runChecks(checks, target, { isIntrusive: true })) results.push(result);
  const others = results.filter(({ verdict }) => verdict !== 'pass');
  const packets = others.flatMap(({ name, evidence }) => [
    name,
    ...evidence.map(({ direction, frame }) => `  ${direction} ${describe(frame)}`),
  ]);
  if (target instanceof LinkTarget) expect(target.missing).toEqual([]);
  return {
    found: others.map(({ name, verdict, text }) => `${verdict}: ${name}: ${text}`),
    packets: packets.join('\n'),
  };
}

/** Returns what differs from the known findings, then the packets: the summary of a run shows the first line. */
export function difference(found: readonly string[], known: readonly Known[], packets: string): string {
  const isEqual = (each: Known, line: string) =>
    typeof each === 'string' ? each === line : each.asymmetricMatch(line);
  const unexpected = found.filter((line) => !known.some((each) => isEqual(each, line)));
  const missing = known.filter((each) => !found.some((line) => isEqual(each, line)));
  return [
    ...unexpected,
    ...missing.map((each) => `missing: ${typeof each === 'string' ? each : each.sample}`),
    packets,
  ].join('\n');
}

/** A finding, or a matcher such as `expect.stringMatching` returns. */
type Known = string | { readonly sample: RegExp; asymmetricMatch(line: string): boolean };
