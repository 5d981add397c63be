// The step that installs other versions of Node for test/repo/versions, once for all clones of a user. As packages of
// the project they would put a `node` into node_modules/.bin, which npm's scripts would then run instead of the user's.
import { createHash } from 'node:crypto';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  utimesSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { cacheFolder, evict } from './cache.mjs';
import { ROOT, run } from './run.mjs';

/** The package that depends on the versions. */
const WANTED = join(ROOT, 'scripts/setup/nodes');
const FILES = ['package.json', 'package-lock.json'];

/** Returns the folder of the versions that the lock file names. */
function folder() {
  const hash = createHash('sha256');
  for (const file of FILES) hash.update(readFileSync(join(WANTED, file)));
  return join(cacheFolder(), 'nodes', hash.digest('hex').slice(0, 32));
}

/** Returns the versions as { major, path of the program below the folder }, for this processor. */
function versions() {
  const { optionalDependencies } = JSON.parse(readFileSync(join(WANTED, 'package.json'), 'utf8'));
  const names = Object.keys(optionalDependencies).filter((name) => name.endsWith(`-${process.arch}`));
  return names.map((name) => ({ major: name.split('-')[1], path: `node_modules/${name}/bin/node` }));
}

/** Installs what the lock file names for this processor. The packages hold programs and no scripts. */
async function install() {
  const made = folder();
  mkdirSync(dirname(made), { recursive: true });
  const draft = mkdtempSync(join(cacheFolder(), 'nodes-unfinished-'));
  try {
    for (const file of FILES) copyFileSync(join(WANTED, file), join(draft, file));
    await run('npm', ['ci', '--prefix', draft, '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error']);
    try {
      renameSync(draft, made);
    } catch (cause) {
      // another clone may have been quicker
      if (!existsSync(made)) throw cause;
    }
  } finally {
    rmSync(draft, { recursive: true, force: true });
  }
  evict(dirname(made));
}

export const nodeVersions = {
  name: 'other versions of Node',
  optional: 'the tests with them are skipped',
  pending() {
    const made = folder();
    if (!existsSync(made)) return { doing: 'installing', make: install };
    const now = new Date();
    utimesSync(made, now, now);
    return undefined;
  },
};

/** Returns the installed programs by the major version of Node. */
export function installedNodes() {
  const made = folder();
  const installed = versions().filter(({ path }) => existsSync(join(made, path)));
  return Object.fromEntries(installed.map(({ major, path }) => [major, join(made, path)]));
}
