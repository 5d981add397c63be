/** The tests of the native code in C++ (doctest), and its fuzzer, each built with sanitizers: see CMakeLists.txt. */
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { all, describeIf, netPrivilege } from '../kit/privileges.js';
import { ROOT } from '../repo/sources.js';

const FUZZ_INPUTS = 3000;
const SEED = 42;

/** Options of the sanitizers: each report ends the process with a status of its own. */
const ENV = {
  ...process.env,
  ASAN_OPTIONS: 'exitcode=99:abort_on_error=0',
  UBSAN_OPTIONS: 'print_stacktrace=1',
  TSAN_OPTIONS: 'exitcode=99:halt_on_error=1',
};

/** @throws Error with the command, its status or signal, and the output of the program */
function run(program: string, ...args: string[]): string {
  // the thread sanitizer of older compilers knows no randomized mappings
  const words = ['-R', program, ...args];
  const { status, signal, error, stdout, stderr } = spawnSync('setarch', words, { env: ENV, encoding: 'utf8' });
  if (status !== 0) throw new Error(`setarch ${words.join(' ')}: ${error ?? signal ?? status}\n${stderr}${stdout}`);
  return stdout;
}

/** Returns the titles of a program's tests. */
function titlesOf(program: string): string[] {
  if (!existsSync(program)) return [];
  return run(program, '--list-test-cases', '--no-colors')
    .split('\n')
    .filter((line) => line !== '' && !/^(\[doctest\]|=+$)/.test(line));
}

describe.each(['address', 'thread'])('with the %s sanitizer', (sanitizer) => {
  const folder = join(ROOT, `build/cmake/tests-${sanitizer}/test/native`);

  // the thread sanitizer does not start with a library that stands in front of libc's functions
  describe.each(sanitizer === 'thread' ? ['core'] : ['core', 'verbs'])('%s', (library) => {
    const tests = join(folder, `${library}_tests`);
    const built = { ok: existsSync(tests), reason: `the tests of native/${library} are not built: npm run build` };
    describeIf(all(built, netPrivilege()), 'in C++', () => {
      test.each(titlesOf(tests))('%s', (title) => {
        // a comma and a star are special in a filter
        expect(run(tests, '--no-colors', `--test-case=${title.replaceAll(',', '\\,')}`)).toMatch(
          /test cases: +1 \| +1 passed/,
        );
      });
    });
  });

  if (sanitizer === 'thread') return;
  const fuzzer = join(folder, 'core_fuzzer');
  const built = { ok: existsSync(fuzzer), reason: 'the fuzzer of native/core is not built: npm run build' };
  describeIf(built, 'the fuzzer of core', () => {
    test('damaged frames and descriptors are no error to the sanitizers', () => {
      expect(run(fuzzer, `${FUZZ_INPUTS}`, `${SEED}`)).toContain(`${FUZZ_INPUTS} inputs`);
    });
  });
});
