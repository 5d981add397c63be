// Debian packages: which are wanted, which are missing, and how they come in.
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { onPath, ROOT, run } from './run.mjs';

const GUEST = join(ROOT, 'test/interop/guest/packages.json');
const GUEST_PURPOSE = 'interop tests against a real rxe in a virtual machine';

function json(path) {
  return JSON.parse(readFileSync(path, 'utf8'));
}

function ofProject() {
  const own = json(join(ROOT, 'scripts/setup/debian.json'));
  const guest = existsSync(GUEST) ? json(GUEST).debian : [];
  const known = new Set(own.map((entry) => entry.package));
  const more = guest.filter((name) => !known.has(name)).map((name) => ({ package: name, for: GUEST_PURPOSE }));
  return [...own, ...more];
}

/** What is neither a program on the PATH nor an installed package, as [{package, for}]. */
function missing(wanted) {
  const absent = wanted.filter(({ command }) => !(command && onPath(command)));
  if (absent.length === 0) return absent;
  const names = absent.map((entry) => entry.package);
  // biome-ignore lint/suspicious/noTemplateCurlyInString: the fields are dpkg's
  const format = '${Package} ${db:Status-Status}\\n';
  const found = spawnSync('dpkg-query', ['-W', '-f', format, ...names], {
    encoding: 'utf8',
  });
  const installed = new Set((found.stdout ?? '').split('\n').filter((line) => line.endsWith(' installed')));
  return absent.filter((entry) => !installed.has(`${entry.package} installed`));
}

async function install(names) {
  const env = { DEBIAN_FRONTEND: 'noninteractive' };
  const get = ['-y', '--no-install-recommends', '-o', 'DPkg::Lock::Timeout=120', 'install', ...names];
  try {
    await run('apt-get', get, env);
  } catch {
    // Lists that were never fetched, or are too old to name a file that the mirror still has.
    await run('apt-get', ['update'], env);
    await run('apt-get', get, env);
  }
}

function explain(reason, absent) {
  const width = Math.max(...absent.map((entry) => entry.package.length));
  const lines = absent.map((entry) => `  ${entry.package.padEnd(width)}  skipped without it: ${entry.for}`);
  return `${reason}, so these Debian packages are missing:\n${lines.join('\n')}`;
}

/** @param wanted answers what is to be there, as [{package, command, for}] */
function packages(name, wanted) {
  return {
    name,
    optional: 'what needs them is skipped',
    /** Undefined when nothing is to do; `blocked` when it cannot be done. */
    pending() {
      const absent = missing(wanted());
      if (absent.length === 0) return undefined;
      if (!onPath('apt-get')) return { blocked: explain('There is no apt', absent) };
      if (process.getuid?.() !== 0) return { blocked: explain('Not root', absent) };
      const names = absent.map((entry) => entry.package);
      return { doing: `installing ${names.join(' ')}`, make: () => install(names) };
    },
  };
}

export const debianPackages = packages('Debian packages', ofProject);
/** What `npm run bench` sets beside us. */
export const benchPackages = packages('Debian packages of others to measure', () =>
  json(join(ROOT, 'bench/packages.json')),
);
