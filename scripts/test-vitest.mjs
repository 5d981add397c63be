// Runs vitest on all files of a list, also when one of its processes dies (vitest then ends at once, without a word on
// the files that it has not run), and again on a file of which a hook failed.
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { privateNet } from './private-net.mjs';
import { ROOT } from './setup/run.mjs';
import { emptyReport } from './test-reporter.mjs';

const VITEST = join(ROOT, 'node_modules/vitest/vitest.mjs');
const FORKS = join(ROOT, 'scripts/test-forks.mjs');
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
  const { net } = privateNet();
  const forks = net === 'private' ? ['--import', FORKS] : [];
  const words = [...forks, VITEST, 'run', '--reporter=default', `--reporter=${REPORTER}`, ...args, ...files];
  const env = { ...process.env, ...more, WASM_ROCE_NET: net, WASM_ROCE_TEST_REPORT: report };
  const known = kernelDeaths();
  const lastWords = [];
  const onLine = (line) => LAST_WORDS.test(line) && lastWords.push(line.trim());
  const status = await groups.run(node, words, { cwd: ROOT, env, isAlone, onLine });
  // The kernel's lines begin with a time.
  const kernels = kernelDeaths().filter((line) => !known.includes(line));
  lastWords.push(...kernels.map((line) => line.replace(/^\[.*?\] /, '')));
  return { status, lastWords, report: existsSync(report) ? JSON.parse(readFileSync(report, 'utf8')) : emptyReport() };
}

/** Returns the place of a failure of several files, as one entry of a report. */
const placeOf = (files) => ({ project: files[0].project, file: files.map(({ file }) => file).join(' ') });

/**
 * Returns what keeps a run from being whole: `files` that have to run again, and the error. These are files that were
 * running when a process died, else files of which a hook failed.
 */
function breakIn({ files, running, isWhole }, lastWords) {
  if (!isWhole) return { files: running, error: ['a process of vitest died', ...lastWords.slice(0, 3)].join('; ') };
  const failed = files.filter(({ hasFailedHook, mayRepeat }) => hasFailedHook && mayRepeat);
  return failed.length > 0 ? { files: failed, error: failed[0].failures[0].error } : undefined;
}

/**
 * Runs vitest. If one of its processes dies, another run has the files that had not ended. The death counts as a failed
 * attempt of the files that were running if their project repeats tests, else as a failure. It is a failure, too, of
 * files during which a process has died before, and these do not run again. The same holds for files of which a hook
 * failed, which vitest does not repeat.
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
    if (isEnded()) return reports;
    const broken = breakIn(report, lastWords);
    if (!broken) {
      const hasFailed = report.failures.length > 0 || report.files.some(({ failures }) => failures.length > 0);
      if (status !== 0 && !hasFailed && report.hiccups.length === 0)
        report.failures.push({ error: `${title}: ended with ${status}` });
      return reports;
    }
    const { error } = broken;
    if (broken.files.length === 0) {
      report.failures.push({ error: `${title}: ${error}` });
      return reports;
    }
    // A file that runs again has no results yet.
    report.files = report.files.filter((file) => !broken.files.some((other) => isSame(other, file)));
    const again = broken.files.filter((file) => suspects.some((other) => isSame(other, file)));
    const mayRepeat = run.files !== undefined && again.length === 0 && broken.files.every((file) => file.mayRepeat);
    const blamed = again.length > 0 ? again : broken.files;
    report[mayRepeat ? 'repeated' : 'failures'].push({ ...placeOf(blamed), error });
    if (run.files === undefined) return reports;
    suspects.push(...broken.files);
    done.push(...report.files, ...(mayRepeat ? [] : blamed));
    const left = listFiles(run).filter((file) => !done.some((other) => isSame(other, file)));
    if (left.length === 0) return reports;
    console.log(`\n${placeOf(blamed).file}: ${error}. ${left.length} files have not ended; starts again with these`);
    files = left.map(({ file }) => file);
  }
}
