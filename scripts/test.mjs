#!/usr/bin/env node
// npm test: setup, then all tests in a private network namespace; arguments go to vitest. The last line is the count.
import { spawn } from 'node:child_process';
import { existsSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { privateNet } from './private-net.mjs';
import { ROOT } from './setup/run.mjs';
import { trySetup } from './setup.mjs';

/** Written by counts-reporter.mjs, read by .ci/run as well. */
const COUNTS = join(ROOT, 'build/test-counts.txt');

function vitest(args) {
  const { prefix, net } = privateNet();
  const reporters = ['--reporter=default', `--reporter=${join(ROOT, 'scripts/counts-reporter.mjs')}`];
  const [command, ...rest] = [
    ...prefix,
    process.execPath,
    join(ROOT, 'node_modules/vitest/vitest.mjs'),
    'run',
    ...reporters,
    ...args,
  ];
  const env = { ...process.env, WASM_ROCE_NET: net, WASM_ROCE_COUNTS: COUNTS };
  return new Promise((resolve) => {
    const child = spawn(command, rest, { cwd: ROOT, env, stdio: 'inherit' });
    for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => signal === 'SIGTERM' && child.kill(signal));
    child.on('close', (status) => resolve(status ?? 1));
  });
}

rmSync(COUNTS, { force: true });
process.exitCode = (await trySetup()) ? await vitest(process.argv.slice(2)) : 1;
if (!existsSync(COUNTS)) process.exitCode ||= 1;
console.log(existsSync(COUNTS) ? readFileSync(COUNTS, 'utf8').trim() : '0 passed, 1 failed, 0 skipped');
