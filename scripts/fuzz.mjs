#!/usr/bin/env node
// npm run fuzz: sets up, then runs test/fuzz/main.ts in a private network namespace. Its options: --target NAME,
// --seconds N, --seed N, --replay FILE. With --asan, the addon is built with sanitizers, into build/.
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { privateNet } from './private-net.mjs';
import { addonStep } from './setup/build.mjs';
import { ROOT } from './setup/run.mjs';
import { STEPS, trySetup } from './setup.mjs';

const ADDON = 'build/asan/wasm_roce.node';

const sanitizedAddon = addonStep({
  name: 'native addon with sanitizers',
  stamp: 'addon-asan',
  path: ADDON,
  sanitize: 'address,undefined',
  consequence: 'nothing is fuzzed',
});

function fuzz(args, env) {
  const { prefix, net } = privateNet();
  const main = [process.execPath, '--import', 'tsx', join(ROOT, 'test/fuzz/main.ts'), ...args];
  const [command, ...rest] = [...prefix, ...main];
  const child = spawn(command, rest, {
    cwd: ROOT,
    env: { ...process.env, WASM_ROCE_NET: net, ...env },
    stdio: 'inherit',
  });
  // a terminal sends SIGINT to the child as well; this process waits until the child has cleaned up
  for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => signal === 'SIGTERM' && child.kill(signal));
  return new Promise((resolve) => child.on('close', (status) => resolve(status ?? 1)));
}

const given = process.argv.slice(2);
const isSanitized = given.includes('--asan');
const isSetUp = await trySetup(isSanitized ? [...STEPS, sanitizedAddon] : STEPS);
process.exitCode = isSetUp ? await fuzz(given, isSanitized ? { WASM_ROCE_FUZZ_ADDON: join(ROOT, ADDON) } : {}) : 1;
