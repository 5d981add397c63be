/** The output of `wasm-roce probe`. */
import { type Check, type CheckResult, distributions, distributionText, type Verdict } from '../../probe.js';
import { styled } from '../output.js';

const COLOURS = { pass: 'green', deviates: 'yellow', fails: 'red' } as const;

/** Returns the lines of one check: verdict, number, title, what was measured, and why it did not pass. */
export function resultText(check: Check, result: CheckResult): string {
  const { verdict, text, deviation } = result;
  const colour = verdict in COLOURS ? COLOURS[verdict as keyof typeof COLOURS] : undefined;
  const word = verdict.padEnd(14);
  const measured = Object.entries(distributions({ check, result }));
  const details = [
    ...(text === '' ? [] : [text]),
    ...measured.map(([name, values]) => `${name}: ${distributionText(values)}`),
    ...(deviation ? [`known of ${deviation.of}: ${deviation.what}`] : []),
    ...(verdict === 'fails' ? [`expected: ${check.expects} (${check.clause})`] : []),
  ];
  const first = `${colour ? styled(colour, word) : word} ${String(check.number).padStart(2)}  ${check.title}`;
  return [first, ...details.map((line) => `                   ${line}`)].join('\n');
}

/** Returns what a dry run says of a check. */
export function plannedText({ number, name, title, sends, isIntrusive }: Check): string {
  const mark = isIntrusive ? styled('yellow', ' (intrusive)') : '';
  return `${String(number).padStart(2)}  ${name}: ${title}${mark}\n      sends: ${sends}`;
}

/** Returns how many checks have each verdict. */
export function counts(results: readonly CheckResult[]): Record<Verdict, number> {
  const found = { pass: 0, deviates: 0, fails: 0, 'not applicable': 0, 'not reachable': 0 };
  for (const { verdict } of results) found[verdict]++;
  return found;
}
