#!/usr/bin/env node
// Builds the addon: prebuilds/linux-ARCH/wasm_roce.node. As a program it builds for this processor, also from an
// installed package. It needs g++ with C++17, the headers of Linux (Debian: g++, Alpine: g++ linux-headers), and
// those of Node-API (the packages HEADERS).
//
// One file serves glibc and musl: the C++ runtime is linked in, and the C library is not named. Its symbols are without
// a version, and bind to the C library of the process that loads the addon. test/repo/prebuilds.test.ts checks that
// each of them exists in glibc 2.28 and in musl.
import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, realpathSync, renameSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { availableParallelism } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const NATIVE = dirname(fileURLToPath(import.meta.url));
const ROOT = dirname(NATIVE);

/** The compilers for other processors, by Node's names. */
const CROSS = { x64: 'x86_64-linux-gnu-g++', arm64: 'aarch64-linux-gnu-g++' };
/** Without calls of libgcc that look for instructions in a way that is glibc's own. */
const OF_PROCESSOR = { arm64: ['-mno-outline-atomics'] };

const COMPILE = [
  ...['-std=c++17', '-O2', '-fPIC', '-Wall', '-Wextra'],
  ...['-fvisibility=hidden', '-fno-exceptions', '-fno-gnu-unique', '-ffunction-sections', '-fdata-sections'],
  // these would call functions that only glibc has; some distributions switch them on by default
  ...['-U_FORTIFY_SOURCE', '-fno-stack-protector'],
  ...['-D_GNU_SOURCE', '-DNDEBUG', '-DNAPI_VERSION=8', '-DNODE_ADDON_API_DISABLE_CPP_EXCEPTIONS'],
  // A worker thread that is terminated during a call cannot take an exception; by default that aborts the process.
  '-DNODE_API_SWALLOW_UNTHROWABLE_EXCEPTIONS',
];
const LINK = [
  ...['-shared', '-nodefaultlibs', '-s', '-Wl,--gc-sections', '-Wl,-z,now', '-Wl,-z,relro', '-Wl,-z,noexecstack'],
  // signal handlers of core/lastframes.cc may outlive the thread that loaded the file
  '-Wl,-z,nodelete',
  `-Wl,--version-script=${join(NATIVE, 'node/exports.map')}`,
];
const RUNTIME = ['-Wl,-Bstatic', '-lstdc++', '-lgcc', '-lgcc_eh'];

/** Instead of LINK and RUNTIME, and in addition to COMPILE: for `npm run fuzz -- --asan`, in a process with libasan. */
const SANITIZERS = ['-fsanitize=address,undefined', '-fno-sanitize-recover=all', '-g', '-fno-omit-frame-pointer'];

/** Returns the command that compiles for a processor, by Node's name of it. */
export function compilerFor(arch) {
  return arch === process.arch ? (process.env.CXX ?? 'g++') : (CROSS[arch] ?? `${arch}-linux-gnu-g++`);
}

/** Returns the path of the addon for a processor, relative to the package's folder. */
export function addonPath(arch) {
  return `prebuilds/linux-${arch}/wasm_roce.node`;
}

/** The packages with the headers of Node-API. Only a build needs them, so the package does not depend on them. */
const HEADERS = ['node-addon-api', 'node-api-headers'];

function headers() {
  const { resolve } = createRequire(import.meta.url);
  const folder = (name) => {
    try {
      return dirname(resolve(`${name}/package.json`, { paths: [NATIVE, process.cwd()] }));
    } catch (cause) {
      throw new Error(`${name} is not installed: npm install ${HEADERS.join(' ')}`, { cause });
    }
  };
  return ['-I', NATIVE, '-isystem', folder('node-addon-api'), '-isystem', join(folder('node-api-headers'), 'include')];
}

function run(command, args) {
  return new Promise((resolve, reject) => {
    const printed = [];
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => printed.push(chunk));
    child.on('error', (cause) => reject(new Error(`${command} cannot be run: ${cause.message}`)));
    child.on('close', (status, signal) => {
      if (status === 0) return resolve();
      const text = Buffer.concat(printed).toString().trimEnd();
      reject(new Error(`${command} fails (${signal ?? `exit status ${status}`}) at ${args.at(-1)}:\n${text}`));
    });
  });
}

/**
 * Builds the addon for a processor.
 * @param path of the addon, relative to the package's folder
 * @param sanitized with the address sanitizer and the undefined behaviour sanitizer
 * @throws Error with the compiler's messages
 */
export async function buildAddon(arch = process.arch, { path = addonPath(arch), sanitized = false } = {}) {
  const compiler = compilerFor(arch);
  const options = [...COMPILE, ...(OF_PROCESSOR[arch] ?? []), ...(sanitized ? SANITIZERS : []), ...headers()];
  const [link, runtime] = sanitized ? [['-shared', ...SANITIZERS], []] : [LINK, RUNTIME];
  const target = join(ROOT, path);
  mkdirSync(dirname(target), { recursive: true });
  const objects = mkdtempSync(join(dirname(target), 'objects-'));
  try {
    const sources = readdirSync(NATIVE, { recursive: true }).filter((name) => name.endsWith('.cc'));
    const objectOf = (name) => join(objects, `${name.replaceAll('/', '-')}.o`);
    const left = sources.values();
    const compileRest = async () => {
      for (const name of left) await run(compiler, [...options, '-o', objectOf(name), '-c', join(NATIVE, name)]);
    };
    await Promise.all(Array.from({ length: availableParallelism() }, compileRest));
    const linked = join(objects, 'linked');
    await run(compiler, [...link, '-o', linked, ...sources.map(objectOf), ...runtime]);
    // replaced as a whole: a running process has the old file mapped
    renameSync(linked, target);
  } finally {
    rmSync(objects, { recursive: true, force: true });
  }
}

if (process.argv[1] && import.meta.filename === realpathSync(process.argv[1])) {
  try {
    await buildAddon();
    console.log(`built ${join(ROOT, addonPath(process.arch))}`);
  } catch (error) {
    console.error(error.message);
    process.exitCode = 1;
  }
}
