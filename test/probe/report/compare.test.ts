// The comparison of two reports.
import { expect, test } from 'vitest';
import { compareReports, comparisonText, isUnchanged } from '../../../src/probe/report/compare.js';
import { type CheckReport, type ProbeReport, probeReport } from '../../../src/probe/report/report.js';
import { cardRun, doubleRun } from './runs.js';

/** A report with other members in some of its checks. */
const changed = (report: ProbeReport, changes: Readonly<Record<string, Partial<CheckReport>>>): ProbeReport => ({
  ...report,
  checks: report.checks.map((check) => ({ ...check, ...changes[check.name] })),
});

test('two runs against the same peer do not differ', async () => {
  const comparison = compareReports(probeReport(await cardRun()), probeReport(await cardRun()));
  expect(isUnchanged(comparison)).toBe(true);
  expect(comparisonText(comparison)).toBe(
    'Compared with the report of 10.0.0.2 of 2026-01-02T03:04:05.678Z:\nno difference',
  );
});

test('verdicts that got worse, and better, are named with both verdicts and the reason', async () => {
  const [good, bad] = [probeReport(await doubleRun()), probeReport(await doubleRun('cnpFlood'))];
  const worse = compareReports(good, bad);
  const text = '20 CNPs for 20 marked packets';
  expect(worse).toMatchObject({ worse: [{ name: 'cnp', before: 'pass', after: 'fails', text }], better: [] });
  expect(comparisonText(worse)).toContain(`worse: cnp: pass → fails: ${text}\n`);
  const better = compareReports(bad, good);
  expect(better).toMatchObject({ better: [{ name: 'cnp', before: 'fails', after: 'pass', text: '' }], worse: [] });
  expect(comparisonText(better)).toContain('better: cnp: fails → pass\n');
});

test('checks of one run alone are named, as new or as gone', async () => {
  const report = probeReport(await cardRun());
  const later = changed(report, { msn: { verdict: 'not reachable', text: 'start rping -s' } });
  expect(compareReports(report, later)).toMatchObject({
    worse: [],
    changed: [{ name: 'msn', before: 'pass', after: 'not reachable', text: 'start rping -s' }],
  });
  const [first, ...others] = report.checks as [CheckReport, ...CheckReport[]];
  const less = { ...report, checks: others };
  expect(compareReports(report, less)).toMatchObject({ removed: [first.name], added: [] });
  expect(comparisonText(compareReports(report, less))).toContain(`gone: ${first.name}`);
  expect(compareReports(less, report)).toMatchObject({ removed: [], added: [first.name] });
  expect(comparisonText(compareReports(less, report))).toContain(`new: ${first.name}`);
});

test('another deviation than before is a change', async () => {
  const report = probeReport(await doubleRun('migReqZero'));
  const later = changed(report, { migreq: { deviation: { of: 'x', what: 'MigReq changes' } } });
  expect(compareReports(report, later)).toMatchObject({ changed: [{ name: 'migreq', after: 'deviates' }] });
});

test('a median has changed from the factor on, up and down, and from and to zero', async () => {
  const report = probeReport(await cardRun());
  const median = (value: number) => {
    const ack_generation = { unit: 'ns', count: 1, min: value, median: value, p99: value, max: value } as const;
    return changed(report, { 'ack-request': { measurements: { ack_generation } } });
  };
  const moved = (before: number, after: number, factor?: number) =>
    compareReports(median(before), median(after), factor).moved.length;
  expect([moved(1000, 2000), moved(1000, 2001), moved(2001, 1000)]).toEqual([0, 1, 1]);
  expect([moved(1000, 1100, 1.05), moved(0, 0), moved(0, 1), moved(1, 0)]).toEqual([1, 0, 1, 1]);
  expect(comparisonText(compareReports(median(1000), median(5000)))).toContain(
    'moved: ack-request: median of ack_generation 1 µs → 5 µs',
  );
  expect(() => moved(1, 1, 0.5)).toThrow(new RangeError('factor is 0.5, must be at least 1'));
});
