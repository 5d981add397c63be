#!/usr/bin/env node
// npm start: sets up what the demo needs, then runs `wasm-roce demo`. Arguments go to it.
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { ROOT } from './setup/run.mjs';
import { DEMO_STEPS, trySetup } from './setup.mjs';

if (await trySetup(DEMO_STEPS)) {
  const main = join(ROOT, 'dist/cli/main.js');
  const child = spawn(process.execPath, [main, 'demo', ...process.argv.slice(2)], { stdio: 'inherit' });
  // Ctrl-C reaches the child directly; this process waits until the child has cleaned up.
  for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => signal === 'SIGTERM' && child.kill(signal));
  child.on('close', (status) => {
    process.exitCode = status ?? 1;
  });
} else {
  process.exitCode = 1;
}
