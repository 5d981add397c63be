// A vitest reporter. Prints why tests were skipped, and keeps a report of its run in the file WASM_ROCE_REPORT: after
// each test file, so that a run that is ended early has reported what it did. scripts/test.mjs adds the reports up.
import { writeFileSync } from 'node:fs';
import { relative } from 'node:path';

/**
 * Returns why a test was skipped: describeIf and testIf of test/kit/privileges.ts put the reason into its name,
 * ctx.skip into a note.
 */
function reasonOf(test) {
  return test.result().note ?? /\[skipped: (.*?)\]/.exec(test.fullName)?.[1] ?? 'no reason given';
}

const firstLine = (errors) => (errors?.[0]?.message ?? 'no error given').trim().split('\n', 1)[0];
const placeOf = ({ project, moduleId }) => ({ project: project.name, file: relative(project.config.root, moduleId) });

/** Adds the tests of a file to a report. */
function addFile(report, module) {
  const place = placeOf(module);
  report.files.push({ ...place, ms: Math.round(module.diagnostic().duration) });
  let failed = 0;
  for (const test of module.children.allTests()) {
    const { state, errors } = test.result();
    // A test that did not run because a hook before it failed counts as failed, not as skipped.
    const sum = state === 'pending' ? 'failed' : state;
    report[sum]++;
    if (sum === 'failed') {
      failed++;
      report.failures.push({ ...place, name: test.fullName, error: firstLine(errors) });
    } else if (sum === 'passed' && test.diagnostic()?.flaky)
      report.repeated.push({ ...place, name: test.fullName, error: firstLine(errors) });
    else if (sum === 'skipped') report.reasons[reasonOf(test)] = (report.reasons[reasonOf(test)] ?? 0) + 1;
  }
  if (module.state() === 'failed' && failed === 0) {
    report.failed++;
    report.failures.push({ ...place, error: firstLine(module.errors()) });
  }
}

/** Returns the report of a run that has done nothing. */
export const emptyReport = () => ({
  passed: 0,
  failed: 0,
  skipped: 0,
  /** The files that have ended. */
  files: [],
  /** The files that have begun and not ended, with `mayRepeat`: whether their project repeats tests. */
  running: [],
  failures: [],
  repeated: [],
  reasons: {},
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

  #write() {
    if (process.env.WASM_ROCE_REPORT) writeFileSync(process.env.WASM_ROCE_REPORT, JSON.stringify(this.#report));
  }

  onTestModuleQueued(module) {
    this.#report.running.push({ ...placeOf(module), mayRepeat: module.project.config.retry > 0 });
    this.#write();
  }

  onTestModuleEnd(module) {
    const { project, file } = placeOf(module);
    this.#report.running = this.#report.running.filter((other) => other.file !== file || other.project !== project);
    addFile(this.#report, module);
    this.#write();
  }

  /** @param errors errors thrown outside of tests */
  onTestRunEnd(_modules, errors) {
    for (const error of errors) {
      if (HICCUP.test(error.message)) {
        this.#report.hiccups.push({ error: firstLine([error]) });
      } else {
        this.#report.failed++;
        this.#report.failures.push({ error: `outside of tests: ${firstLine([error])}` });
      }
    }
    this.#report.isWhole = this.#report.running.length === 0;
    this.#write();
    for (const [reason, count] of Object.entries(this.#report.reasons)) console.log(`skipped ${count}: ${reason}`);
  }
}
