// The summary of all runs of vitest, as text: enough to act on.
import { readFileSync } from 'node:fs';
import { availableParallelism, loadavg } from 'node:os';

const SLOWEST = 10;
/** Repetition is there for hiccups of the machine. More tests than this have another cause. */
export const MOST_REPEATED = 20;
/** Characters of an error or a title. */
const WIDTH = 160;

/** Returns the sum of the reports of test-reporter.mjs, each with `how` it was run: words before and in a command. */
export function sum(reports) {
  const total = { passed: 0, failed: 0, skipped: 0, files: [], failures: [], repeated: [], hiccups: [] };
  for (const { how, files, ...others } of reports) {
    for (const results of [...files, others]) {
      const { project, file, passed = 0, skipped = 0, failures, repeated } = results;
      total.passed += passed;
      total.skipped += skipped;
      const placed = (entry) => ({ project, file, ...entry, how });
      total.failures.push(...failures.map(placed));
      total.repeated.push(...repeated.map(placed));
    }
    total.files.push(...files);
    total.hiccups.push(...others.hiccups);
  }
  total.failed = total.failures.length;
  const hasFailed = ({ file, name }) => total.failures.some((test) => test.file === file && test.name === name);
  total.repeated = total.repeated.filter((test) => !hasFailed(test));
  return total;
}

/** Returns the processor times of the machine so far, in ticks: { busy, steal, all }. */
function processorTimes() {
  const [user, nice, system, idle, iowait, irq, softirq, steal] = readFileSync('/proc/stat', 'utf8')
    .split('\n', 1)[0]
    .match(/\d+/g)
    .map(Number);
  const busy = user + nice + system + irq + softirq;
  return { busy, steal, all: busy + steal + idle + iowait };
}

/** Measures how busy the machine is from now on. @returns a function that tells it as text */
export function watchMachine() {
  const before = processorTimes();
  return () => {
    const now = processorTimes();
    const percent = (name) =>
      `${((100 * (now[name] - before[name])) / Math.max(1, now.all - before.all)).toFixed(1)} %`;
    const load = loadavg()
      .map((value) => value.toFixed(1))
      .join(' ');
    return `machine: ${availableParallelism()} processors, busy ${percent('busy')}, steal ${percent('steal')}, load ${load}`;
  };
}

const cutLine = (text) => (text.length > WIDTH ? `${text.slice(0, WIDTH)}…` : text);
/** Cuts each line of a text, and indents all but the first. */
const cut = (text) => text.split('\n').map(cutLine).join('\n    ');
const placeOf = ({ project, file, name }) => cut([`${project} ${file}`, name].filter(Boolean).join(' > '));

/** Returns the command that runs a failed test alone. vitest takes the title as a regular expression. */
function commandOf({ project, file, name, how: [before, after] }) {
  const pattern = name?.replace(/ > /g, ' ').replace(/[\\^$.*+?()[\]{}|']/g, '.');
  return `${before}npm test -- ${after}--project ${project} ${file}${pattern ? ` -t '${pattern}'` : ''}`;
}

/**
 * Returns the lines of the summary without the counts.
 * @param total a sum of reports
 * @param machine the load of the machine
 */
export function summary(total, machine) {
  const slowest = total.files.toSorted((a, b) => b.ms - a.ms).slice(0, SLOWEST);
  const lines = [
    'slowest files:',
    ...slowest.map((file) => `  ${(file.ms / 1000).toFixed(1)} s: ${placeOf(file)}`),
    machine,
  ];
  for (const { error } of total.hiccups) lines.push(`not a failure of a test: ${cut(error)}`);
  if (total.repeated.length > 0) {
    lines.push(`passed when repeated: ${total.repeated.length}`);
    lines.push(...total.repeated.map((test) => `  ${placeOf(test)}: ${cut(test.error)}`));
  }
  if (total.repeated.length > MOST_REPEATED)
    lines.push(`failed: ${total.repeated.length} tests passed only when repeated, must be at most ${MOST_REPEATED}`);
  for (const test of total.failures) {
    lines.push(`failed: ${test.file ? `${placeOf(test)}: ` : ''}${cut(test.error)}`);
    if (test.file) lines.push(`  ${commandOf(test)}`);
  }
  return lines;
}

/** Returns the last line of a run. */
export const countsOf = ({ passed, failed, skipped }) => `${passed} passed, ${failed} failed, ${skipped} skipped`;
