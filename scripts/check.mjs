#!/usr/bin/env node
// npm run check: lint, format and types of all parts. Runs all of them, then fails if one did.
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { ROOT } from './setup/run.mjs';
import { trySetup } from './setup.mjs';

const CHECKS = [
  ['biome', 'check', '--error-on-warnings', '.'],
  ['tsc', '-p', '.'],
  ['asc', '--config', 'asconfig.json', '--noEmit'],
];

let failed = !(await trySetup());
for (const [name, ...args] of CHECKS) {
  const { status } = spawnSync(join(ROOT, 'node_modules/.bin', name), args, { cwd: ROOT, stdio: 'inherit' });
  console.log(`check: ${name} ${status === 0 ? 'ok' : 'FAILED'}`);
  failed ||= status !== 0;
}
process.exitCode = failed ? 1 : 0;
