/** The report of a run as JUnit XML, for CI. */
import xml from 'xmlbuilder';
import { distributions } from './report.js';
import { type Outcome, outcomes, type ProbeRun } from './run.js';
import { distributionText } from './values.js';

/** Stands for characters that XML does not allow. */
const REPLACEMENT = '\ufffd';

/**
 * Returns JUnit XML with a test case for each check. A check that fails is a failure. One that passes or deviates in a
 * known way is passed. One that is not applicable, or that the peer does not offer, is skipped with its reason. A run
 * that ended early has one more test case, which is an error with the reason.
 * @throws RangeError when a result is of none of the checks
 */
export function junitReport(run: ProbeRun): string {
  const all = outcomes(run);
  const errors = run.ended === undefined ? 0 : 1;
  const counts = {
    tests: all.length + errors,
    failures: all.filter(({ result }) => result.verdict === 'fails').length,
    errors,
    skipped: all.filter(isSkipped).length,
    time: seconds(all.reduce((sum, { result }) => sum + duration(result), 0)),
  };
  const root = xml.create('testsuites', { encoding: 'UTF-8', invalidCharReplacement: REPLACEMENT });
  root.att({ name: 'wasm-roce probe', ...counts });
  const suite = root.ele('testsuite', { name: `wasm-roce probe ${run.peer}`, ...counts });
  suite.att('timestamp', run.date.toISOString().replace(/\.\d+Z$/, ''));
  suite.ele('properties').ele('property', { name: 'wasm-roce', value: run.version });
  for (const outcome of all) {
    const { check, result } = outcome;
    const name = `${check.number} ${check.name}: ${check.title}`;
    const test = suite.ele('testcase', { name, classname: 'wasm-roce.probe', time: seconds(duration(result)) });
    if (isSkipped(outcome)) test.ele('skipped', { message: `${result.verdict}: ${result.text}` });
    if (result.verdict === 'fails')
      test.ele('failure', { message: result.text, type: check.clause }, outcomeText(outcome));
    else test.ele('system-out', {}, outcomeText(outcome));
  }
  if (run.ended !== undefined) {
    const test = suite.ele('testcase', { name: 'the run ends after its last check', classname: 'wasm-roce.probe' });
    test.ele('error', { message: run.ended, type: 'ended early' });
  }
  return `${root.end({ pretty: true })}\n`;
}

const isSkipped = ({ result }: Outcome) => result.verdict === 'not applicable' || result.verdict === 'not reachable';

/** Nanoseconds from the first packet of a check to its last. */
const duration = ({ evidence }: Outcome['result']) => (evidence.at(-1)?.at ?? 0) - (evidence[0]?.at ?? 0);

const seconds = (ns: number) => (ns / 1e9).toFixed(6);

/** Returns what a check sent, expected and found, in lines. */
function outcomeText(outcome: Outcome): string {
  const { check, result } = outcome;
  const { deviation, verdict, text } = result;
  const measured = Object.entries(distributions(outcome)).map(([name, of]) => `${name}: ${distributionText(of)}`);
  return [
    `clause: ${check.clause}`,
    `sends: ${check.sends}`,
    `expects: ${check.expects}`,
    `found: ${verdict}${text === '' ? '' : `: ${text}`}`,
    ...(deviation ? [`known of ${deviation.of}: ${deviation.what}`] : []),
    ...measured,
  ].join('\n');
}
