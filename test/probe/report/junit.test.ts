// A run as JUnit XML.
import { expect, test } from 'vitest';
import type { CheckResult } from '../../../src/probe/checks/result.js';
import { junitReport } from '../../../src/probe/report/junit.js';
import { cardRun, doubleRun, REPORTED } from './runs.js';

const attribute = (xml: string, element: string, name: string) =>
  new RegExp(`<${element} [^>]*\\b${name}="([^"]*)"`).exec(xml)?.[1];

test('a test case for each check, with those that did not run as skipped', async () => {
  const run = await cardRun();
  const xml = junitReport(run);
  const skipped = REPORTED.filter(({ isIntrusive }) => isIntrusive).length;
  for (const element of ['testsuites', 'testsuite']) {
    expect(attribute(xml, element, 'tests')).toBe(String(REPORTED.length));
    expect(attribute(xml, element, 'failures')).toBe('0');
    expect(attribute(xml, element, 'skipped')).toBe(String(skipped));
  }
  expect(attribute(xml, 'testsuite', 'timestamp')).toBe('2026-01-02T03:04:05');
  expect(xml.match(/<testcase /g)).toHaveLength(REPORTED.length);
  expect(xml.match(/<skipped message="not applicable: intrusive: /g)).toHaveLength(skipped);
  expect(xml).not.toContain('<failure');
});

test('a failure has its clause and what was sent, expected and found; a known deviation is no failure', async () => {
  const fails = junitReport(await doubleRun('cnpFlood'));
  expect(attribute(fails, 'testsuite', 'failures')).toBe('1');
  expect(fails).toMatch(
    /<failure message="20 CNPs for 20 marked packets" type="IBTA annex A17 \(RoCEv2\): congestion management">clause: .*\nsends: .*\nexpects: .*\nfound: fails: 20 CNPs[^<]*<\/failure>/,
  );
  const deviates = junitReport(await doubleRun('migReqZero'));
  expect(attribute(deviates, 'testsuite', 'failures')).toBe('0');
  expect(deviates).toMatch(
    /found: deviates: \d+ of \d+ packets have MigReq 0, or [^\n]*\nknown of rxe, E810: [^<]*<\/system-out>/,
  );
});

test('a run that ended early has an error with the reason beside its test cases', async () => {
  const xml = junitReport({ ...(await cardRun()), ended: 'stopped by <SIGINT>' });
  expect([attribute(xml, 'testsuite', 'tests'), attribute(xml, 'testsuite', 'errors')]).toEqual([
    ...[String(REPORTED.length + 1), '1'],
  ]);
  expect(xml).toMatch(
    /<testcase name="the run ends after its last check" [^>]*>\s*<error message="stopped by &lt;SIGINT>" type="ended early"\/>/,
  );
});

test('text of any kind gives well-formed XML', () => {
  const [check] = REPORTED as [(typeof REPORTED)[number]];
  const text = '"<&>]]>\u0001\ud800ü\n';
  const result: CheckResult = {
    ...{ number: check.number, name: check.name, verdict: 'fails', text },
    ...{ measurements: { t: [1500, 2500] }, evidence: [] },
  };
  const run = { peer: '<&"\u0000', version: '1', date: new Date(0), links: [], checks: REPORTED, results: [result] };
  const xml = junitReport(run);
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what must not be there
  expect(xml).not.toMatch(/[\u0000-\u0008\ud800-\udfff]|&(?!(amp|lt|gt|quot|#xA|#xD|#x9);)/);
  expect(attribute(xml, 'failure', 'message')).toBe('&quot;&lt;&amp;>]]>\ufffd\ufffdü&#xA;');
  expect(xml).toContain('found: fails: "&lt;&amp;&gt;]]&gt;\ufffd\ufffdü\n');
  expect(xml).toContain('t: 2 values: min 1.5 µs, median 2 µs, p99 2.5 µs, max 2.5 µs');
});
