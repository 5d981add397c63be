// A vitest reporter. Prints why tests were skipped, and keeps a report of its run in the file WASM_ROCE_TEST_REPORT:
// after each test file, so that a run that is ended early has one. scripts/test.mjs adds the reports up.
import { writeFileSync } from 'node:fs';
import { relative } from 'node:path';

/**
 * Returns why a test was skipped: describeIf and testIf of test/kit/privileges.ts put the reason into its name,
 * ctx.skip into a note.
 */
function reasonOf(test) {
  return test.result().note ?? /\[skipped: (.*?)\]/.exec(test.fullName)?.[1] ?? 'no reason given';
}

/** Lines of an error: a program that failed says why on its stderr, below its command. */
const MOST_LINES = 12;
const firstLines = (errors) => (errors?.[0]?.message ?? 'no error given').trim().split('\n', MOST_LINES).join('\n');
const placeOf = ({ project, moduleId }) => ({ project: project.name, file: relative(project.config.root, moduleId) });

/** Returns the results of a file. A failed hook or import beside no failed test counts as one failure. */
function resultsOf(module) {
  const results = {
    ...placeOf(module),
    ms: Math.round(module.diagnostic().duration),
    ...{ passed: 0, skipped: 0, failures: [], repeated: [] },
  };
  for (const test of module.children.allTests()) {
    const { state, errors } = test.result();
    // A test without a result did not run.
    if (state === 'failed' || state === 'pending')
      results.failures.push({ name: test.fullName, error: firstLines(errors) });
    else results[state]++;
    if (state === 'passed' && test.diagnostic()?.flaky)
      results.repeated.push({ name: test.fullName, error: firstLines(errors) });
  }
  // vitest repeats tests, never hooks: it skips the tests of a suite whose beforeAll failed.
  if (module.state() === 'failed' && results.failures.length === 0) {
    const errors = [module, ...module.children.allSuites()].flatMap((suite) => suite.errors());
    results.failures.push({ error: firstLines(errors) });
    results.hasFailedHook = true;
  }
  return results;
}

/** Returns the report of a run that has done nothing. */
export const emptyReport = () => ({
  /** The results of the files that have ended. `hasFailedHook`: no test failed, but a hook of several, or an import. */
  files: [],
  /** The files that have begun and not ended. */
  running: [],
  /** Failures that are no result of one file. */
  failures: [],
  repeated: [],
  /** Errors of vitest that say nothing of the tests. */
  hiccups: [],
  /** Whether vitest has run all files. It has not if it was ended, or if one of its processes died. */
  isWhole: false,
});

/**
 * vitest waits a minute for the answer to each of its own messages. A machine that stands still, as virtual ones do at
 * times, makes it miss one. A message that was lost leaves tests without a result, which counts as a failure.
 */
const HICCUP = /^\[vitest-worker\]: Timeout calling/;

export default class TestReporter {
  #report = emptyReport();
  /** Number of skipped tests, by reason. */
  #skipped = new Map();

  #write() {
    if (process.env.WASM_ROCE_TEST_REPORT)
      writeFileSync(process.env.WASM_ROCE_TEST_REPORT, JSON.stringify(this.#report));
  }

  onTestModuleQueued(module) {
    this.#report.running.push({ ...placeOf(module), mayRepeat: module.project.config.retry > 0 });
    this.#write();
  }

  onTestModuleEnd(module) {
    const { project, file } = placeOf(module);
    const index = this.#report.running.findIndex((other) => other.file === file && other.project === project);
    if (index < 0) return;
    const [{ mayRepeat }] = this.#report.running.splice(index, 1);
    this.#report.files.push({ ...resultsOf(module), mayRepeat });
    this.#write();
  }

  onTestCaseResult(test) {
    if (test.result().state !== 'skipped') return;
    const reason = reasonOf(test);
    this.#skipped.set(reason, (this.#skipped.get(reason) ?? 0) + 1);
  }

  /** @param errors errors thrown outside of tests */
  onTestRunEnd(modules, errors) {
    // vitest does not say that a file has ended if it could not be imported.
    for (const module of modules) if (module.state() === 'failed') this.onTestModuleEnd(module);
    for (const error of errors) {
      if (HICCUP.test(error.message)) this.#report.hiccups.push({ error: firstLines([error]) });
      else this.#report.failures.push({ error: `outside of tests: ${firstLines([error])}` });
    }
    this.#report.isWhole = this.#report.running.length === 0;
    this.#write();
    for (const [reason, count] of this.#skipped) console.log(`skipped ${count}: ${reason}`);
  }
}
