/**
 * The tests of the native code in C++ (doctest), and its fuzzer, each built with sanitizers, and for an emulated arm64
 * processor: see CMakeLists.txt.
 */
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { all, describeIf, netPrivilege, programPrivilege } from '../kit/privileges.js';
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

/** The thread sanitizer of older compilers knows no randomized mappings. */
const NATIVELY = ['setarch', '-R'];
const ON_ARM64 = ['qemu-aarch64', '-L', '/usr/aarch64-linux-gnu'];
/** Tests of what QEMU's user mode does otherwise: it does not translate IPV6_JOIN_GROUP, and has its own name. */
const UNLIKE_QEMU = [
  'datagrams to a group reach its members until they leave',
  'a queue pair leaves its groups when it is destroyed',
  'other paths stay as they are',
];

/** @throws Error with the command, its status or signal, and the output of the program */
function run(words: readonly string[]): string {
  const [command, ...args] = words as [string];
  const { status, signal, error, stdout, stderr } = spawnSync(command, args, { env: ENV, encoding: 'utf8' });
  if (status !== 0) throw new Error(`${words.join(' ')}: ${error ?? signal ?? status}\n${stderr}${stdout}`);
  return stdout;
}

/** Returns the titles of a program's tests. */
function titlesOf(program: string, before: readonly string[]): string[] {
  if (!existsSync(program)) return [];
  return run([...before, program, '--list-test-cases', '--no-colors'])
    .split('\n')
    .filter((line) => line !== '' && !/^(\[doctest\]|=+$)/.test(line));
}

/** A build of the tests, with the words that run its programs. */
const BUILDS = [
  { name: 'address', kind: 'with the address sanitizer', before: NATIVELY, libraries: ['core', 'verbs'] },
  // the thread sanitizer does not start with a library that stands in front of libc's functions
  { name: 'thread', kind: 'with the thread sanitizer', before: NATIVELY, libraries: ['core'] },
  { name: 'arm64', kind: 'on an emulated arm64 processor', before: ON_ARM64, libraries: ['core', 'verbs'] },
];
const folderOf = (name: string) => join(ROOT, `build/cmake/tests-${name}/test/native`);

describe.each(BUILDS)('$kind', ({ name, before, libraries }) => {
  describe.each(libraries)('%s', (library) => {
    const tests = join(folderOf(name), `${library}_tests`);
    const built = { ok: existsSync(tests), reason: `the tests of native/${library} are not built: npm run build` };
    const runs = programPrivilege(before[0] as string);
    describeIf(all(built, netPrivilege(), runs), 'in C++', () => {
      const titles = runs.ok ? titlesOf(tests, before) : [];
      test.each(titles.filter((title) => name !== 'arm64' || !UNLIKE_QEMU.includes(title)))('%s', (title) => {
        // a comma and a star are special in a filter
        const filter = `--test-case=${title.replaceAll(',', '\\,')}`;
        expect(run([...before, tests, '--no-colors', filter])).toMatch(/test cases: +1 \| +1 passed/);
      });
    });
  });
});

const fuzzer = join(folderOf('address'), 'core_fuzzer');
const built = { ok: existsSync(fuzzer), reason: 'the fuzzer of native/core is not built: npm run build' };
describeIf(built, 'the fuzzer of core', () => {
  test('damaged frames and descriptors are no error to the sanitizers', () => {
    expect(run([...NATIVELY, fuzzer, `${FUZZ_INPUTS}`, `${SEED}`])).toContain(`${FUZZ_INPUTS} inputs`);
  });
});
