// A vitest reporter: why tests were skipped, and the sums of the whole run for scripts/test.mjs to print last.
import { writeFileSync } from 'node:fs';

/** describeIf and testIf of test/kit/privileges.ts put the reason into the name; ctx.skip has it as a note. */
function reasonOf(test) {
  return test.result().note ?? /\[skipped: (.*?)\]/.exec(test.fullName)?.[1] ?? 'no reason given';
}

export default class CountsReporter {
  /** @param errors thrown outside of any test */
  onTestRunEnd(modules, errors) {
    const sums = { passed: 0, failed: errors.length, skipped: 0 };
    const reasons = new Map();
    for (const module of modules) {
      let counted = 0;
      for (const test of module.children.allTests()) {
        const { state } = test.result();
        // A test that never got to run, because a hook before it failed, has not been skipped by anybody's choice.
        const sum = state === 'pending' ? 'failed' : state;
        sums[sum]++;
        if (sum === 'failed') counted++;
        if (sum === 'skipped') reasons.set(reasonOf(test), (reasons.get(reasonOf(test)) ?? 0) + 1);
      }
      if (module.state() === 'failed' && counted === 0) sums.failed++;
    }
    for (const [reason, count] of reasons) console.log(`skipped ${count}: ${reason}`);
    const { passed, failed, skipped } = sums;
    writeFileSync(process.env.WASM_ROCE_COUNTS, `${passed} passed, ${failed} failed, ${skipped} skipped\n`);
  }
}
