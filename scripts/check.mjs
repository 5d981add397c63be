#!/usr/bin/env node
// npm run check: checks lint rules, format and types. Runs all checks, then fails if one has failed.
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from './setup/run.mjs';
import { trySetup } from './setup.mjs';

const { name, version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
/** The package, for the checks of what users get. */
const TARBALL = join('build', `${name}-${version}.tgz`);
const CHECKS = [
  ['biome', 'check', '--error-on-warnings', '.'],
  ['tsc', '-p', '.'],
  ['asc', 'assembly/index.ts', '--config', 'asconfig.json', '--noEmit'],
  ['typedoc', '--emit', 'none'],
  ['publint', 'run', '--strict', TARBALL],
  // TypeScript's profile for packages of ES modules: it does not know yet that require loads them.
  ['attw', '--profile', 'esm-only', '--no-emoji', TARBALL],
];

let failed = !(await trySetup());
spawnSync('npm', ['pack', '--ignore-scripts', '--silent', '--pack-destination', 'build'], { cwd: ROOT });
for (const [tool, ...args] of CHECKS) {
  const { status } = spawnSync(join(ROOT, 'node_modules/.bin', tool), args, { cwd: ROOT, stdio: 'inherit' });
  console.log(`check: ${tool} ${status === 0 ? 'ok' : 'FAILED'}`);
  failed ||= status !== 0;
}
process.exitCode = failed ? 1 : 0;
