// What npm test does when one of vitest's processes dies: vitest ends then, with files that it has not run.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { ProcessGroups } from '../../scripts/test-groups.mjs';
import { sum } from '../../scripts/test-summary.mjs';
import { vitest } from '../../scripts/test-vitest.mjs';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'runs-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

/**
 * Runs a folder of three test files, one after the other. The process of the first dies.
 * @param condition under which it dies, in JavaScript
 * @returns the sum of the reports
 */
async function run(condition: string, { retry, isNamed = false }: { retry: number; isNamed?: boolean }) {
  const project = { name: 'some', include: ['*.test.mjs'], globals: true, retry };
  const config = { test: { projects: [{ test: project }], maxWorkers: 1, minWorkers: 1 } };
  writeFileSync(join(folder, 'vitest.config.mjs'), `export default ${JSON.stringify(config)}`);
  for (const name of ['second', 'third']) writeFileSync(join(folder, `${name}.test.mjs`), `test('${name}', () => {});`);
  const deadly = `import { existsSync, writeFileSync, writeSync } from 'node:fs';
    const diedFile = ${JSON.stringify(join(folder, 'died'))};
    test('before', () => {});
    test('deadly', async () => {
      if (!(${condition})) return;
      writeFileSync(diedFile, '');
      process.kill(process.pid, 'SIGKILL');
      await new Promise(() => {});
    });`;
  // vitest begins with the largest file
  writeFileSync(join(folder, 'first.test.mjs'), deadly);
  const reports = await vitest(
    { node: process.execPath, args: ['--root', folder], files: isNamed ? undefined : [] },
    {
      groups: new ProcessGroups({ print: () => {} }),
      report: join(folder, 'report'),
      isAlone: false,
      isEnded: () => false,
    },
  );
  return sum(reports);
}

const ONCE = '!existsSync(diedFile)';
const ALWAYS = 'true';
const place = { project: 'some', file: 'first.test.mjs', error: expect.stringContaining('a process of vitest died') };

test('a process that dies once costs its file an attempt, and other files nothing', async () => {
  expect(await run(ONCE, { retry: 1 })).toMatchObject({ passed: 4, failed: 0, failures: [], repeated: [place] });
});

test('the report has the last words of the process', async () => {
  const dies = `!existsSync(diedFile) && writeSync(2, 'FATAL ERROR: on purpose\\n') > 0`;
  const { repeated } = await run(dies, { retry: 1 });
  expect(repeated.map(({ error }: { error: string }) => error)).toEqual([
    'a process of vitest died; FATAL ERROR: on purpose',
  ]);
});

test('one that dies again fails its file, and the others run', async () => {
  expect(await run(ALWAYS, { retry: 1 })).toMatchObject({ passed: 2, failed: 1, failures: [place], repeated: [] });
});

test('one that dies where nothing is repeated fails its file, and the others run', async () => {
  expect(await run(ONCE, { retry: 0 })).toMatchObject({ passed: 2, failed: 1, failures: [place], repeated: [] });
});

test('a run of files that a person has named does not begin again', async () => {
  const outcome = await run(ALWAYS, { retry: 1, isNamed: true });
  expect(outcome).toMatchObject({ passed: 0, failed: 1, failures: [place], repeated: [] });
});
