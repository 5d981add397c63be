/** The programs of docs/write-a-check.md run as they are printed there. */
import { execFile } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { programsOf } from './programs.js';
import { ROOT } from './sources.js';

const run = promisify(execFile);
// within the package folder Node resolves the package's own name
const folder = join(ROOT, 'build', `write-a-check-${process.pid}`);
const command = (...args: string[]) => run(process.execPath, [join(ROOT, 'dist/cli/main.js'), 'probe', ...args]);

beforeAll(() => {
  mkdirSync(folder, { recursive: true });
  for (const { program } of programsOf('docs/write-a-check.md')) {
    const [, name = ''] = /^\/\/ (\S+)\n/.exec(program) ?? [];
    writeFileSync(join(folder, name), program);
  }
});
afterAll(() => rmSync(folder, { recursive: true }));

test('the checks, by the API', async () => {
  const { stdout } = await run(process.execPath, [join(folder, 'run-checks.mjs')], { timeout: 20_000 });
  expect(stdout).toBe('second-gap: pass \nack-of-ten: pass \n');
}, 30_000);

test('the checks, by the command', async () => {
  const load = ['--load', join(folder, 'my-checks.mjs'), '--dry-run'];
  const { stdout } = await command('192.0.2.7', ...load, '--check', 'second-gap', '--check', '1001');
  expect(stdout).toBe(
    '1000  second-gap: A second gap is answered by a NAK of its own\n' +
      '      sends: a WRITE beyond a gap and the missing one, twice\n' +
      '1001  ack-of-ten: One ACK completes ten messages\n' +
      '      sends: one ACK for ten requests\n',
  );
  const all = await command('192.0.2.7', ...load);
  expect(all.stdout).toMatch(/ psn-gap: [\s\S]* second-gap: /);
});

test('a rule, by the command', async () => {
  const load = ['--load', join(folder, 'my-rule.mjs'), '--check', 'hop-limit', '--dry-run'];
  const { stdout } = await command('192.0.2.7', ...load);
  expect(stdout).toBe('1002  hop-limit: Packets of the peer leave with a TTL of 64 or more\n      sends: nothing\n');
});

test.each([
  ['export default 5', /its default export must be a check, or an array of checks/],
  ['export const check = {}', /its default export must be a check/],
  ['export default {}', /the name of a check is undefined, must be lower-case words/],
  ["import { CHECKS } from 'wasm-roce/probe'; export default CHECKS[0]", /there is a check \S+ already/],
  ["export default { name: 'own', number: 1000 }", /check own: title is undefined, must be a text/],
  ["throw new Error('broken')", /--load \S+: broken/],
])('a module that is wrong: %s', async (program, message) => {
  const path = join(folder, 'wrong.mjs');
  writeFileSync(path, program);
  const { code, stderr } = await command('192.0.2.7', '--dry-run', '--load', path).catch((failed) => failed);
  expect(stderr).toMatch(message);
  expect(code).toBe(2);
});
