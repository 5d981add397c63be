// The step that installs npm packages: exactly the versions of the lock file.
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT, run, SetupError } from './run.mjs';

/** Returns whether the packages that npm has installed (node_modules/.package-lock.json) are those of the lock file. */
function isInstalled() {
  const note = join(ROOT, 'node_modules/.package-lock.json');
  if (!existsSync(note)) return false;
  const have = JSON.parse(readFileSync(note, 'utf8')).packages;
  const want = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')).packages;
  return Object.entries(want).every(([path, entry]) => {
    if (path === '' || (entry.optional && !have[path])) return true;
    return have[path]?.version === entry.version && existsSync(join(ROOT, path));
  });
}

/**
 * Installs the packages with `npm install`, because `npm ci` refuses a lock file that was written where the registry
 * lacked optional packages of other platforms. Then checks the versions, as `npm ci` would.
 */
async function install() {
  await run('npm', ['install', '--no-save', '--no-audit', '--no-fund', '--loglevel=error']);
  if (!isInstalled()) throw new SetupError('npm has installed versions that differ from package-lock.json');
}

export const npmPackages = {
  name: 'npm packages',
  pending() {
    if (isInstalled()) return undefined;
    return { doing: 'installing the versions of package-lock.json', make: install };
  },
};
