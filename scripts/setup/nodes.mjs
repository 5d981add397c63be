// The step that installs other versions of Node for test/versions, in a folder of their own: as packages of the project
// they would put a `node` into node_modules/.bin, which npm's scripts would then run instead of the user's.
import { copyFileSync, existsSync, mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT, run } from './run.mjs';
import { Stamp } from './stamp.mjs';

const WANTED = 'scripts/setup/nodes';
const FOLDER = 'build/nodes';

/** Returns the versions as { major, path of the program below the project's folder }, for this processor. */
function versions() {
  const { optionalDependencies } = JSON.parse(readFileSync(join(ROOT, WANTED, 'package.json'), 'utf8'));
  const names = Object.keys(optionalDependencies).filter((name) => name.endsWith(`-${process.arch}`));
  return names.map((name) => ({ major: name.split('-')[1], path: `${FOLDER}/node_modules/${name}/bin/node` }));
}

/** Copies the lock file and installs what it names for this processor. The packages hold programs and no scripts. */
async function install() {
  mkdirSync(join(ROOT, FOLDER), { recursive: true });
  for (const file of ['package.json', 'package-lock.json']) {
    copyFileSync(join(ROOT, WANTED, file), join(ROOT, FOLDER, file));
  }
  await run('npm', ['ci', '--prefix', FOLDER, '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error']);
}

const made = new Stamp('nodes', { inputs: [WANTED], outputs: versions().map(({ path }) => path) });

export const nodeVersions = {
  name: 'other versions of Node',
  optional: 'the tests with them are skipped',
  pending: () => (made.isFresh() ? undefined : { doing: 'installing', make: () => made.make(install) }),
};

/** Returns the installed programs by the major version of Node. */
export function installedNodes() {
  const installed = versions().filter(({ path }) => existsSync(join(ROOT, path)));
  return Object.fromEntries(installed.map(({ major, path }) => [major, join(ROOT, path)]));
}
