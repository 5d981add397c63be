#!/usr/bin/env node
// npm run bench: sets up, then runs the benchmark in a private network namespace. Arguments go to bench/main.ts.
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { privateNet } from './private-net.mjs';
import { BENCH_STEPS } from './setup/bench.mjs';
import { ROOT } from './setup/run.mjs';
import { STEPS, trySetup } from './setup.mjs';

function bench(args) {
  const { prefix, net } = privateNet();
  const main = [process.execPath, '--import', 'tsx', join(ROOT, 'bench/main.ts'), ...args];
  const [command, ...rest] = [...prefix, ...main];
  const child = spawn(command, rest, { cwd: ROOT, env: { ...process.env, WASM_ROCE_NET: net }, stdio: 'inherit' });
  // Ctrl-C reaches the child directly; this process waits until the child has cleaned up.
  for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => signal === 'SIGTERM' && child.kill(signal));
  return new Promise((resolve) => child.on('close', (status) => resolve(status ?? 1)));
}

process.exitCode = (await trySetup([...STEPS, ...BENCH_STEPS])) ? await bench(process.argv.slice(2)) : 1;
