#!/usr/bin/env node
// Builds the native code (CMakeLists.txt): addons by cmake-js, the rest by CMake alone. As a program it builds the
// addon for this processor, prebuilds/linux-ARCH/wasm_roce.node, also from an installed package.
import { spawn } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, realpathSync, renameSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { availableParallelism, tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const NATIVE = dirname(fileURLToPath(import.meta.url));
const ROOT = dirname(NATIVE);

/** The compilers for other processors, by Node's names, and CMake's names of the processors. */
const CROSS = {
  x64: { triplet: 'x86_64-linux-gnu', processor: 'x86_64' },
  arm64: { triplet: 'aarch64-linux-gnu', processor: 'aarch64' },
};

const tripletOf = (arch) => CROSS[arch]?.triplet ?? `${arch}-linux-gnu`;

/** Returns the command that compiles for a processor, by Node's name of it. */
export function compilerFor(arch) {
  return arch === process.arch ? (process.env.CXX ?? 'g++') : `${tripletOf(arch)}-g++`;
}

/** Returns the path of the addon for a processor, relative to the package's folder. */
export function addonPath(arch) {
  return `prebuilds/linux-${arch}/wasm_roce.node`;
}

/** The library for C programs: the preload, and the file that stands in for libibverbs. Names of CMakeLists.txt. */
const LIBRARIES = ['libwasmroce.so', 'libibverbs.so.1'];

/** Returns the paths of the library for C programs, relative to the package's folder. */
export function libraryPaths(arch) {
  return LIBRARIES.map((name) => `prebuilds/linux-${arch}/${name}`);
}

/** Only a build needs these packages, so the package does not depend on them. */
const PACKAGES = 'cmake-js node-addon-api';

function cmakeJs() {
  const { resolve } = createRequire(import.meta.url);
  try {
    return join(dirname(resolve('cmake-js/package.json', { paths: [NATIVE, process.cwd()] })), 'bin/cmake-js');
  } catch (cause) {
    throw new Error(`cmake-js is not installed: npm install ${PACKAGES}`, { cause });
  }
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
      reject(new Error(`${basename(command === process.execPath ? args[0] : command)} fails (${signal ?? `exit status ${status}`}):\n${text}`));
    });
  });
}

/** CMake's variables for a processor. */
/** Returns CMake's variables for a processor, by Node's name of it. */
export function variablesOf(arch) {
  if (arch === process.arch) return {};
  const system = { CMAKE_SYSTEM_NAME: 'Linux', CMAKE_SYSTEM_PROCESSOR: CROSS[arch]?.processor ?? arch };
  return { ...system, CMAKE_C_COMPILER: `${tripletOf(arch)}-gcc`, CMAKE_CXX_COMPILER: compilerFor(arch) };
}

/**
 * Builds a target of CMakeLists.txt.
 * @param folder CMake's, which a later build of the same processor and variables may use again
 * @param variables of CMakeLists.txt
 * @throws Error with the messages of the tools
 */
export async function buildTarget(target, { folder, arch = process.arch, variables = {} }) {
  const all = Object.entries({ ...variablesOf(arch), ...variables });
  const options = ['--directory', ROOT, '--out', folder, '--target', target, '--parallel', `${availableParallelism()}`];
  await run(process.execPath, [cmakeJs(), 'compile', ...options, ...all.map(([name, value]) => `--CD${name}=${value}`)]);
}

/** Replaces a file of the package as a whole: a running process has the old one mapped. */
function place(file, path) {
  const target = join(ROOT, path);
  mkdirSync(dirname(target), { recursive: true });
  const draft = mkdtempSync(join(dirname(target), 'new-'));
  try {
    copyFileSync(file, join(draft, 'file'));
    renameSync(join(draft, 'file'), target);
  } finally {
    rmSync(draft, { recursive: true, force: true });
  }
}

/**
 * Builds the addon for a processor.
 * @param path of the addon, relative to the package's folder
 * @param folder see buildTarget
 * @param sanitize the compiler's sanitizers, separated by commas
 * @throws Error with the messages of the tools
 */
export async function buildAddon({ arch = process.arch, path = addonPath(arch), folder, sanitize = '' }) {
  await buildTarget('addon', { arch, folder, variables: { WASM_ROCE_SANITIZE: sanitize } });
  place(join(folder, 'Release/wasm_roce.node'), path);
}

/**
 * Builds the library for C programs, with the headers of libibverbs and of RapidJSON.
 * @param folder see buildTarget
 * @throws Error with the messages of the tools
 */
export async function buildLibrary({ arch = process.arch, folder }) {
  const variables = { ...variablesOf(arch), CMAKE_BUILD_TYPE: 'Release', WASM_ROCE_VERBS: 'ON' };
  const options = Object.entries(variables).map(([name, value]) => `-D${name}=${value}`);
  await run('cmake', ['-S', ROOT, '-B', folder, ...options]);
  const targets = ['--target', 'verbs', 'libibverbs'];
  await run('cmake', ['--build', folder, ...targets, '--parallel', `${availableParallelism()}`]);
  for (const path of libraryPaths(arch)) place(join(folder, 'native/verbs', basename(path)), path);
}

/**
 * Builds the XDP program, with clang.
 * @param path of the object file, relative to the package's folder
 */
export async function buildXdpProgram({ path, folder }) {
  await buildTarget('xdp_program', { folder });
  place(join(folder, 'native/node/roce_xdp.bpf.o'), path);
}

if (process.argv[1] && import.meta.filename === realpathSync(process.argv[1])) {
  const folder = mkdtempSync(join(tmpdir(), 'wasm-roce-build-'));
  try {
    await buildAddon({ folder });
    console.log(`built ${join(ROOT, addonPath(process.arch))}`);
  } catch (error) {
    console.error(error.message);
    process.exitCode = 1;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
