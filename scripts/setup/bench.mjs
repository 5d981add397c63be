// What `npm run bench` needs beyond the project itself: programs to measure beside, and its own, compiled.
import { spawnSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { benchPackages } from './debian.mjs';
import { onPath, ROOT, run, tool } from './run.mjs';
import { Stamp } from './stamp.mjs';

const OUT = 'build/bench';
const NATIVE = 'bench/native';

/** Programs of bench/native, each of its own files. */
const PROGRAMS = {
  tcp: { files: ['tcp.c', 'common.c'] },
  rawlink: { files: ['rawlink.c', 'sockets.c', 'xdp.c', 'common.c'] },
  sums: { files: ['sums.c', 'common.c', 'offload.cc', '../../native/icrc.cc'], libraries: ['-lz', '-lstdc++'] },
};

function hasHeader(name) {
  return spawnSync('cc', ['-E', '-'], { input: `#include <${name}>\n` }).status === 0;
}

async function compileNative() {
  mkdirSync(join(ROOT, OUT), { recursive: true });
  for (const [name, { files, libraries = [] }] of Object.entries(PROGRAMS)) {
    const isal = name === 'sums' && hasHeader('isa-l/crc.h') ? ['-DHAVE_ISAL', '-lisal'] : [];
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

/** @param step its name, stamp, inputs, outputs and how it is made */
function compiled({ name, stamp, inputs, outputs, make, optional, blocked = () => undefined }) {
  const made = new Stamp(stamp, { inputs, outputs });
  return {
    name,
    optional,
    pending() {
      if (made.isFresh()) return undefined;
      const reason = blocked();
      return reason ? { blocked: reason } : { doing: 'compiling', make: () => made.make(make) };
    },
  };
}

export const BENCH_STEPS = [
  benchPackages,
  compiled({
    name: 'ends of the benchmark',
    stamp: 'bench-ends',
    inputs: ['bench/party', 'bench/rig/stats.ts', 'bench/work.ts', 'tsconfig.json', 'dist/index.d.ts'],
    outputs: [`${OUT}/js/party/main.js`],
    make: () => tool('tsc', '-p', 'bench/party'),
  }),
  compiled({
    name: 'sums of the card alone',
    stamp: 'bench-sums',
    inputs: ['bench/assembly', 'assembly'],
    outputs: [`${OUT}/sums.wasm`],
    make: () => tool('asc', '--config', 'bench/assembly/asconfig.json'),
  }),
  compiled({
    name: 'programs in C',
    stamp: 'bench-native',
    inputs: [NATIVE, 'native/icrc.cc', 'native/icrc.h'],
    outputs: Object.keys(PROGRAMS).map((name) => join(OUT, name)),
    optional: 'the rows of plain C are skipped',
    blocked: () => (onPath('cc') ? undefined : 'cc not found: the rows of plain C are skipped'),
    make: compileNative,
  }),
];
