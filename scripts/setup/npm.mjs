// npm packages, exactly those of the lock file.
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT, run, SetupError } from './run.mjs';

/** npm notes in node_modules what it put there; that is compared with what the lock file wants. */
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
 * Not `npm ci`: it refuses a lock file that was written where the registry lacked optional packages of other platforms.
 * What it promises beyond that is checked afterwards.
 */
async function install() {
  await run('npm', ['install', '--no-save', '--no-audit', '--no-fund', '--loglevel=error']);
  if (!isInstalled()) throw new SetupError('npm installed other versions than package-lock.json names');
}

export const npmPackages = {
  name: 'npm packages',
  pending() {
    if (isInstalled()) return undefined;
    return { doing: 'installing what package-lock.json names', make: install };
  },
};
