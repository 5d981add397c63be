#!/usr/bin/env node
// npm run attack: sets up, then runs the security bench in a private network namespace. Arguments go to
// bench/attack/main.ts.
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { privateNet } from './private-net.mjs';
import { ROOT } from './setup/run.mjs';
import { trySetup } from './setup.mjs';

function attack(args) {
  const { prefix, net } = privateNet();
  const main = [process.execPath, '--import', 'tsx', join(ROOT, 'bench/attack/main.ts'), ...args];
  const [command, ...rest] = [...prefix, ...main];
  const child = spawn(command, rest, { cwd: ROOT, env: { ...process.env, WASM_ROCE_NET: net }, stdio: 'inherit' });
  // Ctrl-C reaches the child directly; this process waits until the child has cleaned up.
  for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => signal === 'SIGTERM' && child.kill(signal));
  return new Promise((resolve) => child.on('close', (status) => resolve(status ?? 1)));
}

process.exitCode = (await trySetup()) ? await attack(process.argv.slice(2)) : 1;
