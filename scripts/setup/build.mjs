// The steps that compile: the card (WebAssembly), the native addons, the XDP program, the package's JavaScript.
import { copyFileSync, existsSync, mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import {
  addonPath,
  buildAddon,
  buildLibrary,
  buildTarget,
  buildXdpProgram,
  compilerFor,
  libraryPaths,
  variablesOf,
} from '../../native/build.mjs';
import { CARD_C, MEANINGS, writeCardC } from './cardc.mjs';
import { writeCodes } from './codes.mjs';
import { onPath, ROOT, run, tool } from './run.mjs';
import { Stamp } from './stamp.mjs';

/** The processors, by Node's names, that the package brings the addon for. */
const PROCESSORS = ['x64', 'arm64'];

/**
 * Returns a step.
 * @param optional consequence of a failure of `make`, for its message; undefined: the setup fails
 * @param blocked returns why `make` cannot run here and what is skipped then, or undefined
 * @param files see Stamp
 */
export function compiled({ name, stamp, make, optional, applies = () => true, blocked = () => undefined, ...files }) {
  const made = new Stamp(stamp, files);
  return {
    name,
    optional,
    outputs: files.outputs,
    pending() {
      if (!applies() || made.isFresh()) return undefined;
      const reason = blocked();
      return reason ? { blocked: reason } : { doing: 'compiling', make: () => made.make(make) };
    },
  };
}

/** Compiles an entry to a module that can use the memory of any card. */
const compile = (entry, module, ...options) =>
  tool('asc', entry, '--config', 'asconfig.json', '--outFile', module, ...options);

export const card = compiled({
  name: 'card',
  stamp: 'card',
  inputs: ['assembly', 'asconfig.json', 'scripts/setup/codes.mjs', 'node_modules/assemblyscript/package.json'],
  outputs: ['build/card.wasm', 'build/card.js', 'build/card.d.ts', 'build/codes.js', 'build/codes.d.ts'],
  async make() {
    await compile('assembly/index.ts', 'build/card.wasm', '--bindings', 'raw');
    await writeCodes();
  },
});

/** The card as C, for the native code. */
export const cardC = compiled({
  name: 'card as C',
  stamp: 'card-c',
  inputs: ['build/card.wasm', 'build/codes.js', 'scripts/setup/cardc.mjs', MEANINGS, 'node_modules/wabt/package.json'],
  outputs: ['card.c', 'w2c_card.h', 'exports.inc', 'card_codes.h', 'card_texts.h'].map((file) => `${CARD_C}/${file}`),
  make: writeCardC,
});

/** A module of another entry of assembly/. */
function besideCard(name, stamp) {
  const [entry, module] = [`assembly/${stamp}.ts`, `build/${stamp}.wasm`];
  return compiled({
    name,
    stamp,
    inputs: ['assembly', 'asconfig.json', 'node_modules/assemblyscript/package.json'],
    outputs: [module],
    applies: () => existsSync(join(ROOT, entry)),
    make: () => compile(entry, module),
  });
}

/** The card's second entry, which exports internals to tests. */
export const testingCard = besideCard('card for tests', 'testing');

/** The module that combines arrays in the card's memory, for collectives. */
export const reduceModule = besideCard('sums of arrays', 'reduce');

const SCRIPT_GRAMMAR = 'src/probe/script/grammar.peggy';

export const scriptGrammar = compiled({
  name: 'grammar of scripts',
  stamp: 'scriptgrammar',
  inputs: [SCRIPT_GRAMMAR, 'node_modules/peggy/package.json'],
  outputs: ['build/scriptgrammar.js', 'build/scriptgrammar.d.ts'],
  async make() {
    mkdirSync(join(ROOT, 'build'), { recursive: true });
    const rules = ['--allowed-start-rules', 'Script,FaultRule'];
    await tool('peggy', '--format', 'es', '--dts', ...rules, '--output', 'build/scriptgrammar.js', SCRIPT_GRAMMAR);
  },
});

/** The inputs of the addon. */
const ADDON_INPUTS = [
  ...['CMakeLists.txt', 'native/build.mjs', 'native/core', 'native/card', 'native/node', CARD_C],
  ...['node_modules/cmake-js/package.json', 'node_modules/node-addon-api/package.json'],
];

/** CMake's folder for a processor, and for sanitizers. */
const cmakeFolder = (name) => join(ROOT, 'build/cmake', name);

/** Returns a step that builds an addon. @param consequence if a tool is missing */
export function addonStep({ name, stamp, arch = process.arch, path, sanitize, optional, consequence }) {
  return compiled({
    ...{ name, stamp, optional, inputs: ADDON_INPUTS, tools: [compilerFor(arch), 'cmake'], outputs: [path] },
    blocked: () => lacking(['cmake', compilerFor(arch)], {}, consequence),
    make: () => buildAddon({ arch, path, sanitize, folder: cmakeFolder(stamp) }),
  });
}

function addon(arch) {
  const isOwn = arch === process.arch;
  const consequence = isOwn
    ? 'the links packet, udp and xdp, and all tests that use them, are skipped'
    : 'it is not built';
  return addonStep({
    ...{ name: `native addon for ${arch}`, stamp: `addon-${arch}`, arch, path: addonPath(arch), consequence },
    optional: isOwn ? undefined : consequence,
  });
}

/** Headers, and the Debian packages that have them. */
const DOCTEST = { 'doctest-dev': '/usr/include/doctest/doctest.h' };
const VERBS = {
  'libibverbs-dev': '/usr/include/infiniband/verbs.h',
  'rapidjson-dev': '/usr/include/rapidjson/document.h',
};

/** Returns what is missing of tools and headers, with the consequence; undefined: nothing. */
function lacking(tools, headers, consequence) {
  const packages = Object.keys(headers).filter((name) => !existsSync(headers[name]));
  const absent = [...tools.filter((tool) => !onPath(tool)), ...packages];
  return absent.length === 0 ? undefined : `${absent.join(', ')} not found: ${consequence}`;
}

/** Returns a step that builds the library for C programs. */
function library(arch) {
  const consequence = 'the command run has no library for this processor, and its tests are skipped';
  return compiled({
    ...{ name: `library for C programs on ${arch}`, stamp: `library-${arch}`, optional: consequence },
    inputs: ['CMakeLists.txt', 'native/build.mjs', 'native/core', 'native/card', 'native/verbs', CARD_C],
    tools: [compilerFor(arch), 'cmake'],
    outputs: libraryPaths(arch),
    blocked: () => lacking(['cmake', compilerFor(arch)], VERBS, consequence),
    make: () => buildLibrary({ arch, folder: cmakeFolder(`library-${arch}`) }),
  });
}

/**
 * Returns a step that builds tests of the native code in C++.
 * @param kind of the build, in the step's name @param sanitize the compiler's sanitizers, if any
 * @param targets the programs @param libraries those that the programs load
 */
function doctests(name, { kind, sanitize, arch = process.arch, targets, libraries = [] }) {
  const folder = `build/cmake/tests-${name}`;
  const skipped = `the tests of the native code in C++, ${kind}, are skipped`;
  return compiled({
    name: `tests of the native code, ${kind}`,
    stamp: `tests-${name}`,
    optional: skipped,
    inputs: ['CMakeLists.txt', 'native/core', 'native/card', 'native/verbs', CARD_C, 'test/native'],
    tools: [compilerFor(arch), 'cmake'],
    outputs: [...targets.map((program) => `test/native/${program}`), ...libraries].map((file) => `${folder}/${file}`),
    blocked: () => lacking(['cmake', 'ninja', compilerFor(arch)], { ...DOCTEST, ...VERBS }, skipped),
    async make() {
      const ours = { TESTS: 'ON', VERBS: 'ON', ...(sanitize && { SANITIZE: sanitize }) };
      const prefixed = Object.entries(ours).map(([variable, value]) => [`WASM_ROCE_${variable}`, value]);
      const variables = { ...variablesOf(arch), CMAKE_BUILD_TYPE: 'Release', ...Object.fromEntries(prefixed) };
      const options = Object.entries(variables).map(([variable, value]) => `-D${variable}=${value}`);
      await run('cmake', ['-S', '.', '-B', folder, '-G', 'Ninja', ...options]);
      await run('cmake', ['--build', folder, '--target', ...targets]);
    },
  });
}

/** The card as C in an addon of its own, for tests. */
export const CARD_ADDON = 'build/cmake/card-addon/Release/wasm_roce_card.node';

const cardAddon = compiled({
  name: 'card as C for tests',
  stamp: 'card-addon',
  optional: 'the tests of the card as C are skipped',
  inputs: ['CMakeLists.txt', 'native/build.mjs', 'native/card', 'test/native', CARD_C],
  tools: [compilerFor(process.arch), 'cmake'],
  outputs: [CARD_ADDON],
  make: () => buildTarget('card_addon', { folder: cmakeFolder('card-addon'), variables: { WASM_ROCE_TESTS: 'ON' } }),
});

export const nativeTests = [
  cardAddon,
  doctests('address', {
    kind: 'address sanitizer',
    sanitize: 'address,undefined',
    targets: ['core_tests', 'core_fuzzer', 'verbs_tests'],
    libraries: ['native/verbs/libwasmroce.so'],
  }),
  // the thread sanitizer does not start with a library that stands in front of libc's functions
  doctests('thread', { kind: 'thread sanitizer', sanitize: 'thread', targets: ['core_tests'] }),
  // on an emulated processor
  doctests('arm64', {
    kind: 'arm64',
    arch: 'arm64',
    targets: ['core_tests', 'verbs_tests'],
    libraries: ['native/verbs/libwasmroce.so'],
  }),
];

/** The addons, and the libraries for C programs: of this processor first. */
const ALL = [...new Set([process.arch, ...PROCESSORS])];
export const addons = ALL.map(addon);
export const libraries = ALL.map(library);

const XDP_SOURCE = 'native/node/roce_xdp.bpf.c';
const XDP_OBJECT = 'build/native/roce_xdp.bpf.o';
const BPF = { 'libbpf-dev': '/usr/include/bpf/bpf_helpers.h' };

export const xdpProgram = compiled({
  name: 'XDP program',
  stamp: 'xdp',
  inputs: [XDP_SOURCE, 'native/node/CMakeLists.txt'],
  tools: ['clang'],
  outputs: [XDP_OBJECT],
  applies: () => existsSync(join(ROOT, XDP_SOURCE)),
  blocked: () => lacking(['cmake', 'clang'], BPF, 'the link xdp, and all tests that use it, are skipped'),
  make: () => buildXdpProgram({ path: XDP_OBJECT, folder: cmakeFolder(`addon-${process.arch}`) }),
});

/** The licences of the packages that dist/ contains. */
const LICENCES = 'dist/LICENCES.txt';

export const dist = compiled({
  name: 'package',
  stamp: 'dist',
  inputs: [
    ...['src', 'web/ladder', 'tsconfig.json', 'tsconfig.build.json', 'package.json', 'package-lock.json'],
    ...['scripts/setup/build.mjs', 'scripts/setup/bundle.mjs'],
    ...['build/card.js', 'build/card.d.ts', 'build/codes.js', 'build/codes.d.ts', 'build/scriptgrammar.js'],
    'web/report',
  ],
  outputs: ['dist/index.js', 'dist/index.d.ts', 'dist/cli/main.js', LICENCES, 'man/wasm-roce.1'],
  cached: ['dist', 'man'],
  applies: () => existsSync(join(ROOT, 'src/index.ts')),
  async make() {
    rmSync(join(ROOT, 'dist'), { recursive: true, force: true });
    await tool('tsc', '-p', 'tsconfig.build.json');
    // imported here, because the packages that it needs may have been installed a moment ago
    const { bundle } = await import('./bundle.mjs');
    await bundle({ licences: LICENCES });
    await buildPages();
    await buildReportPage();
    await writeManPages();
  },
});

/** Bundles the programs and styles of the package's HTML pages, beside their text, to dist/web. */
async function buildPages() {
  const web = join(ROOT, 'dist/web');
  await tool(
    'esbuild',
    ...['web/ladder/ladder.ts', 'web/ladder/ladder.css', `--outdir=${web}`],
    ...['--bundle', '--minify', '--format=iife', '--target=es2022', '--legal-comments=none'],
  );
  copyFileSync(join(ROOT, 'web/ladder/ladder.html'), join(web, 'ladder.html'));
}

/** Writes the manual pages in man/, from the definitions of the commands. */
async function writeManPages() {
  // a process of its own, since this one may have loaded an earlier build
  const program = `
    import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
    import { manPages } from './src/cli/manpage.ts';
    import { createProgram } from './src/cli/program.ts';
    rmSync('man', { recursive: true, force: true });
    mkdirSync('man');
    for (const [name, page] of manPages(await createProgram())) writeFileSync('man/' + name, page);`;
  await run(process.execPath, ['--import', 'tsx', '--input-type=module', '--eval', program]);
}

/** Bundles the program and the style of the page of a probe's report, beside its text, to dist/web. */
async function buildReportPage() {
  const web = join(ROOT, 'dist/web');
  await tool(
    'esbuild',
    ...['web/report/report.ts', 'web/report/report.css', `--outdir=${web}`],
    ...['--bundle', '--minify', '--format=iife', '--target=es2022', '--legal-comments=none'],
  );
  copyFileSync(join(ROOT, 'web/report/report.html'), join(web, 'report.html'));
}
