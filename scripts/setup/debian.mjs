// The step that installs Debian packages: which are wanted, which are missing, and how to install them.
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

/** Returns the entries of `wanted` whose command is not on the PATH and whose package is not installed. */
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
    // The package lists are missing, or so old that the mirror no longer has the files that they name.
    await run('apt-get', ['update'], env);
    await run('apt-get', get, env);
  }
}

function explain(reason, absent) {
  const width = Math.max(...absent.map((entry) => entry.package.length));
  const lines = absent.map((entry) => `  ${entry.package.padEnd(width)}  skipped without it: ${entry.for}`);
  return `${reason}, so these Debian packages cannot be installed:\n${lines.join('\n')}`;
}

/** Returns a step. @param wanted returns the wanted packages as [{package, command, for}] */
function packages(name, wanted) {
  return {
    name,
    optional: 'what needs them is skipped',
    /** Returns undefined if nothing is missing, `blocked` if this process cannot install packages. */
    pending() {
      const absent = missing(wanted());
      if (absent.length === 0) return undefined;
      if (!onPath('apt-get')) return { blocked: explain('apt-get not found', absent) };
      if (process.getuid?.() !== 0) return { blocked: explain('Not root', absent) };
      const names = absent.map((entry) => entry.package);
      return { doing: `installing ${names.join(' ')}`, make: () => install(names) };
    },
  };
}

/** Packages of the demo: the tools that build the addon, and network namespaces. */
const OF_DEMO = ['cmake', 'ninja-build', 'g++', 'iproute2', 'util-linux'];

export const debianPackages = packages('Debian packages', ofProject);
export const demoPackages = packages('Debian packages of the demo', () =>
  ofProject().filter((entry) => OF_DEMO.includes(entry.package)),
);
/** The packages that `npm run bench` compares with. */
export const benchPackages = packages('Debian packages of the benchmark', () =>
  json(join(ROOT, 'bench/packages.json')),
);
