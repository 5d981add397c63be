#!/usr/bin/env node
// npm run picture: sets up, then runs test/probe/report/picture.ts in a private network namespace.
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { privateNet } from './private-net.mjs';
import { ROOT } from './setup/run.mjs';
import { trySetup } from './setup.mjs';

if (await trySetup()) {
  const { prefix, net } = privateNet();
  const [command, ...args] = [
    ...prefix,
    process.execPath,
    '--import',
    'tsx',
    join(ROOT, 'test/probe/report/picture.ts'),
  ];
  const { status } = spawnSync(command, args, {
    cwd: ROOT,
    env: { ...process.env, WASM_ROCE_NET: net },
    stdio: 'inherit',
  });
  process.exitCode = status ?? 1;
} else {
  process.exitCode = 1;
}
