// A vitest reporter. Prints why tests were skipped, and writes the counts of the whole run, the failed tests, and those
// that passed in a second run (STOCK_RACES of test/interop/environment.ts), which scripts/test.mjs prints.
import { appendFileSync, writeFileSync } from 'node:fs';
import { relative } from 'node:path';

/** Start of the line of a test that failed once. */
export const SECOND_RUN = 'passed in a second run';

/**
 * Returns why a test was skipped: describeIf and testIf of test/kit/privileges.ts put the reason into its name,
 * ctx.skip into a note.
 */
function reasonOf(test) {
  return test.result().note ?? /\[skipped: (.*?)\]/.exec(test.fullName)?.[1] ?? 'no reason given';
}

/** Returns one line: what happened, project, file, name and the first line of each error. */
function lineOf(what, module, name, errors) {
  const reasons = errors.map(({ message }) => message.split('\n', 1)[0]);
  return [`${what}: ${module.project.name} ${relative('.', module.moduleId)}`, name, ...reasons]
    .filter(Boolean)
    .join(' > ');
}

export default class CountsReporter {
  /** @param errors errors thrown outside of tests */
  onTestRunEnd(modules, errors) {
    const sums = { passed: 0, failed: errors.length, skipped: 0 };
    const reasons = new Map();
    const secondRuns = [];
    const failures = errors.map(({ message }) => `failed outside of tests: ${message}`);
    for (const module of modules) {
      let counted = 0;
      for (const test of module.children.allTests()) {
        const { state } = test.result();
        // A test that did not run because a hook before it failed counts as failed, not as skipped.
        const sum = state === 'pending' ? 'failed' : state;
        sums[sum]++;
        if (sum === 'failed') {
          counted++;
          failures.push(lineOf('failed', module, test.fullName, test.result().errors ?? []));
        }
        if (sum === 'passed' && test.diagnostic()?.flaky)
          secondRuns.push(lineOf(SECOND_RUN, module, test.fullName, test.result().errors ?? []));
        if (sum === 'skipped') reasons.set(reasonOf(test), (reasons.get(reasonOf(test)) ?? 0) + 1);
      }
      if (module.state() === 'failed' && counted === 0) {
        sums.failed++;
        failures.push(lineOf('failed', module, '', module.errors()));
      }
    }
    for (const [reason, count] of reasons) console.log(`skipped ${count}: ${reason}`);
    const { passed, failed, skipped } = sums;
    writeFileSync(process.env.WASM_ROCE_COUNTS, `${passed} passed, ${failed} failed, ${skipped} skipped\n`);
    for (const line of [...secondRuns, ...failures]) appendFileSync(process.env.WASM_ROCE_REMARKS, `${line}\n`);
  }
}
