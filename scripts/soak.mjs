#!/usr/bin/env node
// npm run soak: sets up, then runs test/soak in a private network namespace: an endpoint (option --minutes N, 60), or
// with the word `sockets` many sockets, and clients that are killed or stopped, or with the word `broker` programs that
// share an address.
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { privateNet } from './private-net.mjs';
import { ROOT } from './setup/run.mjs';
import { trySetup } from './setup.mjs';

function soak(args) {
  const { prefix, net } = privateNet();
  const isNamed = ['sockets', 'broker'].includes(args[0]);
  const [program, rest] = isNamed ? [`${args[0]}.ts`, args.slice(1)] : ['main.ts', args];
  const main = [process.execPath, '--expose-gc', '--import', 'tsx', join(ROOT, 'test/soak', program), ...rest];
  const [command, ...words] = [...prefix, ...main];
  const child = spawn(command, words, { cwd: ROOT, env: { ...process.env, WASM_ROCE_NET: net }, stdio: 'inherit' });
  // a terminal sends SIGINT to the child as well; this process waits until the child has cleaned up
  for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => signal === 'SIGTERM' && child.kill(signal));
  return new Promise((resolve) => child.on('close', (status) => resolve(status ?? 1)));
}

process.exitCode = (await trySetup()) ? await soak(process.argv.slice(2)) : 1;
