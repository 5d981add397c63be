/**
 * The addons that are packed load where the package promises: glibc 2.28 or later, and musl. They name no library, so
 * what they need are symbols of the process: of Node, and of whichever C library it has. The library for C programs
 * loads with glibc 2.35 or later.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { all, describeIf, programPrivilege, testIf } from '../kit/privileges.js';
import { ROOT } from './sources.js';

const MUSL = '/lib/ld-musl-x86_64.so.1';
/** Folders of Debian's C library: of this machine, and of the cross-compiler. */
const GLIBC: Readonly<Record<string, readonly string[]>> = {
  x64: ['/lib/x86_64-linux-gnu', '/usr/x86_64-linux-gnu/lib'],
  arm64: ['/lib/aarch64-linux-gnu', '/usr/aarch64-linux-gnu/lib'],
};
const LIBRARIES = ['libc.so.6', 'libm.so.6', 'ld-linux-x86-64.so.2', 'ld-linux-aarch64.so.1'];
const OLDEST = '2.28';
/**
 * Later versions of a symbol whose behaviour is the older one's: those of glibc 2.34, which moved functions to libc
 * from other libraries, and of 2.17, which moved the clock; and memcpy, which moved overlapping memory before.
 */
const SAME = (name: string, version: string) => version === '2.34' || version === '2.17' || name === 'memcpy';

interface Symbol {
  readonly name: string;
  readonly version: string | undefined;
  readonly binding: string;
  readonly isDefined: boolean;
}

const readelf = (...args: string[]) => execFileSync('readelf', ['-W', ...args], { encoding: 'utf8' });

function symbolsOf(path: string): Symbol[] {
  const lines = readelf('--dyn-syms', path).matchAll(/^ *\d+: \S+ +\d+ \S+ +(\S+) +\S+ +(\S+) +(\S+)(?: \(\d+\))?$/gm);
  return Array.from(lines, ([, binding = '', section, full = '']) => {
    const [name = '', version] = full.split(/@+/);
    return { name, version, binding, isDefined: section !== 'UND' };
  });
}

/** The versions of each symbol of glibc, the oldest first. */
function glibcOf(folder: string): Map<string, string[]> {
  const found = new Map<string, string[]>();
  const files = LIBRARIES.map((name) => join(folder, name)).filter((path) => existsSync(path));
  for (const { name, version, isDefined } of files.flatMap(symbolsOf)) {
    const number = version?.match(/^GLIBC_(.*)$/)?.[1];
    if (isDefined && number) found.set(name, [...(found.get(name) ?? []), number].sort(byNumber));
  }
  return found;
}

function byNumber(a: string, b: string): number {
  return a.localeCompare(b, 'en', { numeric: true });
}

describe.each(['x64', 'arm64'])('the addon for %s', (arch) => {
  const path = join(ROOT, `prebuilds/linux-${arch}/wasm_roce.node`);
  const folder = GLIBC[arch]?.find((each) => existsSync(join(each, 'libc.so.6')));
  const built = { ok: existsSync(path), reason: `the addon for ${arch} is not built: npm run build` };
  const readable = all(built, programPrivilege('readelf'));
  const outside = () => symbolsOf(path).filter(({ isDefined, binding }) => !isDefined && binding === 'GLOBAL');
  const isOfNode = ({ name }: Symbol) => /^(napi_|node_api_|uv_)/.test(name);
  const ofLibc = () => outside().filter((symbol) => !isOfNode(symbol));

  testIf(readable, 'needs no library and no version of one, and exports what Node calls', () => {
    expect(readelf('-d', path)).not.toMatch(/NEEDED|RUNPATH|RPATH|VERNEED/);
    const exported = symbolsOf(path).filter(({ isDefined, binding }) => isDefined && binding !== 'LOCAL');
    expect(exported.map(({ name }) => name).sort()).toEqual([
      'napi_register_module_v1',
      'node_api_module_get_api_version_v1',
    ]);
  });

  testIf(readable, 'uses Node-API 8 and no more', () => {
    const { v8 } = createRequire(import.meta.url)('node-api-headers').symbols;
    const known = new Set([...v8.js_native_api_symbols, ...v8.node_api_symbols]);
    const used = outside().filter(({ name }) => /^(napi_|node_api_)/.test(name));
    expect(used.length).toBeGreaterThan(20);
    expect(used.filter(({ name }) => !known.has(name))).toEqual([]);
  });

  testIf(all(readable, { ok: folder !== undefined, reason: `no glibc for ${arch}` }), `glibc ${OLDEST} has all`, () => {
    const glibc = glibcOf(folder as string);
    expect(ofLibc().length).toBeGreaterThan(20);
    const wrong = ofLibc().flatMap(({ name }) => {
      const [first, ...later] = glibc.get(name) ?? [];
      if (first === undefined) return [`${name} is unknown`];
      if (byNumber(first, OLDEST) > 0) return [`${name} is of ${first}`];
      return later.filter((version) => !SAME(name, version)).map((version) => `${name} differs since ${version}`);
    });
    expect(wrong).toEqual([]);
  });

  testIf(all(readable, { ok: existsSync(MUSL), reason: 'musl is not installed' }), 'musl has all', () => {
    const musl = new Set(symbolsOf(MUSL).map(({ name }) => name));
    expect(musl.size).toBeGreaterThan(1000);
    expect(ofLibc().filter(({ name }) => !musl.has(name))).toEqual([]);
  });
});

/** Of the library: that of Ubuntu 22.04; Debian 12 has a later one. */
const OLDEST_OF_LIBRARY = '2.35';
const STOCK = GLIBC[process.arch]?.map((folder) => join(folder, 'libibverbs.so.1')).find((path) => existsSync(path));
/** Of providers, as long as they were public: rdma-core has it for old ones alone. */
const OF_PROVIDERS = 'ibv_register_driver';

function publicSymbols(path: string): Record<string, string> {
  const defined = symbolsOf(path).filter(({ name, version, isDefined }) => {
    return isDefined && /^IBVERBS_1\./.test(version ?? '') && !name.startsWith('IBVERBS_') && name !== OF_PROVIDERS;
  });
  const sorted = defined.sort((a, b) => byNumber(a.version as string, b.version as string));
  return Object.fromEntries(sorted.map(({ name, version }) => [name, version as string]));
}

describe.each(['x64', 'arm64'])('the library for C programs on %s', (arch) => {
  const folder = join(ROOT, `prebuilds/linux-${arch}`);
  const [preload, file] = [join(folder, 'libwasmroce.so'), join(folder, 'libibverbs.so.1')];
  const built = { ok: existsSync(preload), reason: `the library for ${arch} is not built: npm run build` };
  const readable = all(built, programPrivilege('readelf'));

  testIf(readable, `needs no library but glibc ${OLDEST_OF_LIBRARY}, and shows no symbol of C++`, () => {
    for (const path of [preload, file]) {
      const needed = Array.from(readelf('-d', path).matchAll(/NEEDED.*\[(.*)\]/g), ([, name]) => name);
      expect(needed.filter((name) => !LIBRARIES.includes(name as string))).toEqual([]);
      const symbols = symbolsOf(path);
      const versions = symbols.flatMap(({ version }) => version?.match(/^GLIBC_(2.*)$/)?.[1] ?? []);
      expect(versions.length).toBeGreaterThan(20);
      expect(versions.filter((version) => byNumber(version, OLDEST_OF_LIBRARY) > 0)).toEqual([]);
      expect(
        symbols.filter(({ name, isDefined, binding }) => isDefined && binding !== 'LOCAL' && name.startsWith('_Z')),
      ).toEqual([]);
    }
  });

  testIf(readable, 'has no versions as a preload: it stands for all versions of a symbol', () => {
    const versions = symbolsOf(preload).flatMap(({ version, isDefined }) => (isDefined && version) || []);
    expect(versions).toEqual([]);
  });

  const installed = { ok: STOCK !== undefined, reason: 'libibverbs is not installed' };
  testIf(
    all(readable, installed),
    'has the public symbols of libibverbs in libibverbs.so.1, with their versions',
    () => {
      const [stock, ours] = [publicSymbols(STOCK as string), publicSymbols(file)];
      expect(Object.keys(stock).length).toBeGreaterThan(60);
      expect(Object.fromEntries(Object.keys(stock).map((name) => [name, ours[name]]))).toEqual(stock);
    },
  );
});

const own = join(ROOT, `prebuilds/linux-${process.arch}/wasm_roce.node`);
describeIf(
  all({ ok: existsSync(own), reason: 'the addon is not built' }, programPrivilege('musl-gcc')),
  'a process with musl',
  () => {
    test('loads the addon: its constructors run, and every symbol is found', () => {
      const folder = mkdtempSync(join(tmpdir(), 'wasm-roce-musl-'));
      const program = join(folder, 'program');
      const provided = symbolsOf(own).filter(({ name, isDefined }) => !isDefined && /^(napi_|uv_)/.test(name));
      const list = provided.map(({ name }) => `X(${name})`).join(' ');
      try {
        execFileSync('musl-gcc', ['-rdynamic', `-DNAPI=${list}`, '-o', program, join(ROOT, 'test/repo/musl.c')]);
        expect(execFileSync(program, [own], { encoding: 'utf8' })).toBe('loaded\n');
      } finally {
        rmSync(folder, { recursive: true });
      }
    });
  },
);
