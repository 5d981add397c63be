// Additions of npm test to vitest. When one of vitest's processes dies, vitest ends with files that it has not run. It
// repeats no hooks. Its processes would share the network of the host.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { ProcessGroups } from '../../scripts/test-groups.mjs';
import { sum, summary } from '../../scripts/test-summary.mjs';
import { vitest } from '../../scripts/test-vitest.mjs';
import { netPrivilege, testIf } from '../kit/privileges.js';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'runs-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

const pathOf = (name: string) => join(folder, name);

/**
 * Runs test files.
 * @param files their names without `.test.mjs`, and their texts
 * @param atOnce number of files that run side by side
 * @returns the sum of the reports
 */
async function runFiles(
  files: Readonly<Record<string, string>>,
  { retry, isNamed = false, atOnce = 1 }: { retry: number; isNamed?: boolean; atOnce?: number },
) {
  const project = { name: 'some', include: ['*.test.mjs'], globals: true, retry };
  const config = { test: { projects: [{ test: project }], maxWorkers: atOnce, minWorkers: atOnce } };
  writeFileSync(pathOf('vitest.config.mjs'), `export default ${JSON.stringify(config)}`);
  for (const [name, text] of Object.entries(files)) writeFileSync(pathOf(`${name}.test.mjs`), text);
  const reports = await vitest(
    { node: process.execPath, args: ['--root', folder], files: isNamed ? undefined : [] },
    {
      groups: new ProcessGroups({ print: () => {} }),
      report: pathOf('report'),
      isAlone: false,
      isEnded: () => false,
    },
  );
  return sum(reports);
}

/**
 * Runs three test files, one after the other. The process of the first dies.
 * @param condition under which it dies, in JavaScript
 * @returns the sum of the reports
 */
function run(condition: string, options: { retry: number; isNamed?: boolean }) {
  // vitest begins with the largest file
  const first = `import { existsSync, writeFileSync, writeSync } from 'node:fs';
    const diedFile = ${JSON.stringify(pathOf('died'))};
    test('before', () => {});
    test('deadly', async () => {
      if (!(${condition})) return;
      writeFileSync(diedFile, '');
      process.kill(process.pid, 'SIGKILL');
      await new Promise(() => {});
    });`;
  return runFiles({ first, second: `test('second', () => {});`, third: `test('third', () => {});` }, options);
}

const ONCE = '!existsSync(diedFile)';
const ALWAYS = 'true';
const place = { project: 'some', file: 'first.test.mjs', error: expect.stringContaining('a process of vitest died') };

test('a process that dies once costs its file an attempt, and other files nothing', async () => {
  expect(await run(ONCE, { retry: 1 })).toMatchObject({ passed: 4, failed: 0, failures: [], repeated: [place] });
});

test('the report has the last output of the process', async () => {
  const dies = `!existsSync(diedFile) && writeSync(2, 'FATAL ERROR: on purpose\\n') > 0`;
  const { repeated } = await run(dies, { retry: 1 });
  // the kernel's lines about programs of other test files may follow
  expect(repeated).toMatchObject([
    { error: expect.stringMatching(/^a process of vitest died; FATAL ERROR: on purpose/) },
  ]);
});

test('a file whose process dies again fails, and the others run', async () => {
  expect(await run(ALWAYS, { retry: 1 })).toMatchObject({ passed: 2, failed: 1, failures: [place], repeated: [] });
});

test('a file whose process dies fails where nothing is repeated, and the others run', async () => {
  expect(await run(ONCE, { retry: 0 })).toMatchObject({ passed: 2, failed: 1, failures: [place], repeated: [] });
});

test('a run of named files is not repeated', async () => {
  const outcome = await run(ALWAYS, { retry: 1, isNamed: true });
  expect(outcome).toMatchObject({ passed: 0, failed: 1, failures: [place], repeated: [] });
});

/** Runs a file of three tests. The hook before two of them fails under a condition. */
function runHook(condition: string, options: { retry: number; isNamed?: boolean }) {
  const first = `import { existsSync, writeFileSync } from 'node:fs';
    const failedFile = ${JSON.stringify(pathOf('failed'))};
    test('before', () => {});
    describe('with a hook', () => {
      beforeAll(() => {
        if (!(${condition})) return;
        writeFileSync(failedFile, '');
        throw new Error('the hook failed');
      });
      test('one', () => {});
      test('two', () => {});
    });`;
  return runFiles({ first, second: `test('second', () => {});` }, options);
}

const FAILED_ONCE = '!existsSync(failedFile)';
const hookPlace = { project: 'some', file: 'first.test.mjs', error: 'the hook failed' };

test('a hook that fails once costs its file an attempt', async () => {
  const outcome = await runHook(FAILED_ONCE, { retry: 1 });
  expect(outcome).toMatchObject({ passed: 4, failed: 0, skipped: 0, repeated: [hookPlace] });
});

test('a hook that fails again is a failure', async () => {
  const outcome = await runHook(ALWAYS, { retry: 1 });
  expect(outcome).toMatchObject({ passed: 1, failed: 1, failures: [hookPlace], repeated: [] });
});

test('a hook that fails where nothing is repeated is a failure', async () => {
  const outcome = await runHook(FAILED_ONCE, { retry: 0 });
  expect(outcome).toMatchObject({ passed: 2, failed: 1, skipped: 2, failures: [hookPlace], repeated: [] });
});

test('a file that cannot be imported is a failure with its error', async () => {
  const error = expect.stringContaining('./missing.mjs');
  const files = { first: `import './missing.mjs';`, second: `test('second', () => {});` };
  const failures = [{ project: 'some', file: 'first.test.mjs', error }];
  expect(await runFiles(files, { retry: 0 })).toMatchObject({ passed: 1, failed: 1, failures, repeated: [] });
});

test('the summary has the lines of an error, each cut to a width', async () => {
  const message = ['the program failed: 99', 'its output', 'long '.repeat(100)].join('\n');
  const first = `test('fails', () => { throw new Error(${JSON.stringify(message)}); });`;
  const total = await runFiles({ first }, { retry: 0 });
  const lines = summary({ ...total, failures: total.failures.map((each: object) => ({ ...each, how: ['', ''] })) }, '');
  const text = lines.join('\n');
  expect(text).toContain('> fails: the program failed: 99\n    its output\n    long long');
  expect(Math.max(...text.split('\n').map(({ length }) => length))).toBeLessThan(250);
});

test('the variables of the library for C programs are not set', async () => {
  const first = `test('one', () => expect(Object.keys(process.env)).not.toContain('WASM_ROCE_REPORT'));`;
  expect(await runFiles({ first }, { retry: 0 })).toMatchObject({ passed: 1, failed: 0 });
});

testIf(netPrivilege(), 'files that run side by side may use the same names, addresses and ports', async () => {
  const text = (own: string, other: string) => `import { execFileSync } from 'node:child_process';
    import { createSocket } from 'node:dgram';
    import { once } from 'node:events';
    import { existsSync, writeFileSync } from 'node:fs';
    test('in use by both', async () => {
      execFileSync('ip', 'link add same0 type veth peer name same1'.split(' '), { stdio: 'ignore' });
      execFileSync('ip', 'addr add 10.1.0.1/24 dev same0'.split(' '));
      const socket = createSocket('udp4').bind(4791, '10.1.0.1');
      await once(socket, 'listening');
      writeFileSync(${JSON.stringify(own)}, '');
      while (!existsSync(${JSON.stringify(other)})) await new Promise((resolve) => setTimeout(resolve, 5));
      socket.close();
    });`;
  const [one, other] = [pathOf('one'), pathOf('other')];
  const files = { first: text(one, other), second: text(other, one) };
  expect(await runFiles(files, { retry: 0, atOnce: 2 })).toMatchObject({ passed: 2, failed: 0, failures: [] });
});
