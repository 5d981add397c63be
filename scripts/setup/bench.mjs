// The steps of `npm run bench` besides those of the project: packages to compare with, and programs to compile.
import { spawnSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { compiled } from './build.mjs';
import { benchPackages } from './debian.mjs';
import { onPath, ROOT, run, tool } from './run.mjs';

const OUT = 'build/bench';
const NATIVE = 'bench/native';

/** The CRC of the links. */
const CRC_SOURCES = ['crc.cc', 'crcx64.cc', 'crcarm64.cc'].map((file) => `native/core/${file}`);
const CRC = ['offload.cc', ...CRC_SOURCES.map((file) => `../../${file}`)];
/** The programs of bench/native and their source files. */
const PROGRAMS = {
  tcp: { files: ['tcp.c', 'common.c'] },
  rawlink: {
    files: ['rawlink.c', 'write.c', 'sockets.c', 'ring.c', 'uring.c', 'xdp.c', 'headers.c', 'common.c', ...CRC],
    libraries: ['-lz', '-lstdc++'],
  },
  crc: { files: ['crc.c', 'common.c', ...CRC], libraries: ['-lz', '-lstdc++'] },
};

function hasHeader(name) {
  return spawnSync('cc', ['-E', '-'], { input: `#include <${name}>\n` }).status === 0;
}

async function compileNative() {
  mkdirSync(join(ROOT, OUT), { recursive: true });
  for (const [name, { files, libraries = [] }] of Object.entries(PROGRAMS)) {
    const isal = name === 'crc' && hasHeader('isa-l/crc.h') ? ['-DHAVE_ISAL', '-lisal'] : [];
    const sources = files.map((file) => join(NATIVE, file));
    await run('cc', [
      '-O2',
      '-march=native',
      '-Wall',
      '-Wextra',
      '-o',
      join(OUT, name),
      ...sources,
      ...libraries,
      ...isal,
    ]);
  }
}

export const BENCH_STEPS = [
  benchPackages,
  compiled({
    name: 'ends of the benchmark',
    stamp: 'bench-ends',
    inputs: [
      'bench/workers',
      'bench/rig/stats.ts',
      'bench/work.ts',
      'src/cli/demo/calls.ts',
      'tsconfig.json',
      'dist/index.d.ts',
    ],
    outputs: [`${OUT}/js/bench/workers/main.js`],
    cached: [`${OUT}/js`],
    make: () => tool('tsc', '-p', 'bench/workers'),
  }),
  compiled({
    name: 'CRC of the card alone',
    stamp: 'bench-crc',
    inputs: ['bench/assembly', 'assembly'],
    outputs: [`${OUT}/crc.wasm`],
    make: () => tool('asc', 'bench/assembly/crc.ts', '--config', 'asconfig.json', '--outFile', `${OUT}/crc.wasm`),
  }),
  compiled({
    name: 'programs in C',
    stamp: 'bench-native',
    inputs: [NATIVE, 'native/core/crc.h', 'native/core/crcpowers.h', ...CRC_SOURCES],
    outputs: Object.keys(PROGRAMS).map((name) => join(OUT, name)),
    optional: 'the rows of plain C are skipped',
    blocked: () => (onPath('cc') ? undefined : 'cc not found: the rows of plain C are skipped'),
    make: compileNative,
  }),
];
