// Runs vitest on all files of a list, also when one of its processes dies: vitest then ends at once, without a word on
// the files that it has not run.
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { privateNet } from './private-net.mjs';
import { ROOT } from './setup/run.mjs';
import { emptyReport } from './test-reporter.mjs';

const VITEST = join(ROOT, 'node_modules/vitest/vitest.mjs');
const REPORTER = join(ROOT, 'scripts/test-reporter.mjs');

const isSame = (one, other) => one.file === other.file && one.project === other.project;

/** Returns the command line of a run, as people would write it. */
export const titleOf = ({ node, args, files = [] }) => [node, 'vitest', ...args, ...files].join(' ');

/** Returns the test files that the arguments of a run name, as { project, file }. */
export function listFiles({ args, files = [] }) {
  const list = [VITEST, 'list', '--filesOnly', ...args, ...files];
  const { stdout } = spawnSync(process.execPath, list, { cwd: ROOT, encoding: 'utf8' });
  return [...stdout.matchAll(/^\[(.*?)\] (\S+)$/gm)].map(([, project, file]) => ({ project, file }));
}

/** The first words of V8, libc and libstdc++ when they end a process. */
const LAST_WORDS =
  /FATAL ERROR|Fatal (Java|process|error)|Check failed|Assertion .* failed|terminate called|free\(\)|corrupt/;

/** Returns the kernel's lines about processes that it has ended; none if this process may not read them. */
function kernelDeaths() {
  const { stdout } = spawnSync('dmesg', { encoding: 'utf8' });
  const lines = (stdout ?? '').split('\n');
  return lines.filter((line) => /segfault|general protection|trap |oom-kill|Killed process/.test(line));
}

/**
 * Runs vitest once.
 * @param run { node, args, files, env }
 * @param options `groups` that its process joins, `report`: where its report goes, `isAlone`: it has the terminal
 * @returns its exit status or signal, the report of test-reporter.mjs, and what was said of processes that died
 */
async function once({ node, args, files = [], env: more }, { groups, report, isAlone }) {
  const { prefix, net } = privateNet();
  const words = [node, VITEST, 'run', '--reporter=default', `--reporter=${REPORTER}`, ...args, ...files];
  const [command, ...rest] = [...prefix, ...words];
  const env = { ...process.env, ...more, WASM_ROCE_NET: net, WASM_ROCE_REPORT: report };
  const known = kernelDeaths();
  const lastWords = [];
  const onLine = (line) => LAST_WORDS.test(line) && lastWords.push(line.trim());
  const status = await groups.run(command, rest, { cwd: ROOT, env, isAlone, onLine });
  // The kernel's lines begin with a time.
  const kernels = kernelDeaths().filter((line) => !known.includes(line));
  lastWords.push(...kernels.map((line) => line.replace(/^\[.*?\] /, '')));
  return { status, lastWords, report: existsSync(report) ? JSON.parse(readFileSync(report, 'utf8')) : emptyReport() };
}

/** Returns the place of a death: the files that were running, as one entry of a report. */
const placeOf = (running) => ({ project: running[0].project, file: running.map(({ file }) => file).join(' ') });

/**
 * Runs vitest. If one of its processes dies, another run has the files that had not ended. The death counts as a failed
 * attempt of the files that were running if their project repeats tests, else as a failure. It is a failure, too, of
 * files during which a process has died before, and these do not run again.
 * @param run { node, args, files, env }. Without `files`, `args` may name files, and there is one run only.
 * @param options `groups` and `isAlone` as of `once`, `report`: the path of reports, `isEnded`: whether runs were ended
 * @returns the reports, one of each run
 */
export async function vitest(run, { groups, isAlone, report: path, isEnded }) {
  const title = titleOf(run);
  const reports = [];
  /** Files that have ended, or do not run again. */
  const done = [];
  const suspects = [];
  for (let files = run.files ?? []; ; ) {
    const { status, lastWords, report } = await once(
      { ...run, files },
      { groups, isAlone, report: `${path}-${reports.length}.json` },
    );
    reports.push(report);
    const fail = (failure) => {
      report.failed++;
      report.failures.push(failure);
    };
    if (isEnded()) return reports;
    if (report.isWhole) {
      if (status !== 0 && report.failed === 0 && report.hiccups.length === 0)
        fail({ error: `${title}: ended with ${status}` });
      return reports;
    }
    const error = ['a process of vitest died', ...lastWords.slice(0, 3)].join('; ');
    const { running } = report;
    if (running.length === 0) {
      fail({ error: `${title}: ${error}` });
      return reports;
    }
    const again = running.filter((file) => suspects.some((other) => isSame(other, file)));
    const mayRepeat = run.files !== undefined && again.length === 0 && running.every((file) => file.mayRepeat);
    const blamed = again.length > 0 ? again : running;
    if (mayRepeat) report.repeated.push({ ...placeOf(blamed), error });
    else fail({ ...placeOf(blamed), error });
    if (run.files === undefined) return reports;
    suspects.push(...running);
    done.push(...report.files, ...(mayRepeat ? [] : blamed));
    const left = listFiles(run).filter((file) => !done.some((other) => isSame(other, file)));
    if (left.length === 0) return reports;
    console.log(`\n${placeOf(blamed).file}: ${error}. ${left.length} files have not ended; starts again with these`);
    files = left.map(({ file }) => file);
  }
}
