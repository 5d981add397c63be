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

/** Adds the tests of a file to a report. */
function addFile(report, module) {
  const project = module.project.name;
  const file = relative('.', module.moduleId);
  report.files.push({ project, file, ms: Math.round(module.diagnostic().duration) });
  let failed = 0;
  for (const test of module.children.allTests()) {
    const { state, errors } = test.result();
    // A test that did not run because a hook before it failed counts as failed, not as skipped.
    const sum = state === 'pending' ? 'failed' : state;
    report[sum]++;
    if (sum === 'failed') {
      failed++;
      report.failures.push({ project, file, name: test.fullName, error: firstLine(errors) });
    } else if (sum === 'passed' && test.diagnostic()?.flaky)
      report.repeated.push({ project, file, name: test.fullName, error: firstLine(errors) });
    else if (sum === 'skipped') report.reasons[reasonOf(test)] = (report.reasons[reasonOf(test)] ?? 0) + 1;
  }
  if (module.state() === 'failed' && failed === 0) {
    report.failed++;
    report.failures.push({ project, file, error: firstLine(module.errors()) });
  }
}

export default class TestReporter {
  #report = { passed: 0, failed: 0, skipped: 0, files: [], failures: [], repeated: [], reasons: {} };

  #write() {
    if (process.env.WASM_ROCE_REPORT) writeFileSync(process.env.WASM_ROCE_REPORT, JSON.stringify(this.#report));
  }

  onTestModuleEnd(module) {
    addFile(this.#report, module);
    this.#write();
  }

  /** @param errors errors thrown outside of tests */
  onTestRunEnd(_modules, errors) {
    for (const error of errors) {
      this.#report.failed++;
      this.#report.failures.push({ error: `outside of tests: ${firstLine([error])}` });
    }
    this.#write();
    for (const [reason, count] of Object.entries(this.#report.reasons)) console.log(`skipped ${count}: ${reason}`);
  }
}
