// What is compiled: the card (wasm), the native addon, the XDP program, the package's JavaScript.
import { existsSync, mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { onPath, ROOT, run, tool } from './run.mjs';
import { Stamp } from './stamp.mjs';

const ADDON = 'build/native/wasm_roce.node';
const ADDON_COMMAND = ['cmake-js', 'compile', '-d', 'native', '-O', 'build/native'];

/** @param blocked answers why it cannot be made here, and what is skipped then */
function compiled({ name, stamp, inputs, outputs, make, applies = () => true, blocked = () => undefined }) {
  const made = new Stamp(stamp, { inputs, outputs });
  return {
    name,
    pending() {
      if (!applies() || made.isFresh()) return undefined;
      const reason = blocked();
      return reason ? { blocked: reason } : { doing: 'compiling', make: () => made.make(make) };
    },
  };
}

export const card = compiled({
  name: 'card',
  stamp: 'card',
  inputs: ['assembly', 'asconfig.json', 'node_modules/assemblyscript/package.json'],
  outputs: ['build/card.wasm', 'build/card.js', 'build/card.d.ts'],
  make: () => tool('asc', '--config', 'asconfig.json'),
});

export const addon = compiled({
  name: 'native addon',
  stamp: 'addon',
  inputs: ['native', 'node_modules/node-addon-api/package.json'],
  outputs: [ADDON],
  applies: () => existsSync(join(ROOT, 'native/CMakeLists.txt')),
  blocked() {
    const generator = onPath('ninja') ? 'ninja' : 'make';
    const absent = ['cmake', generator, 'g++'].filter((command) => !onPath(command));
    if (absent.length === 0) return undefined;
    return `${absent.join(', ')} not found: the links packet, udp and xdp, and all tests that use them, are skipped`;
  },
  make: () => tool(...ADDON_COMMAND),
});

const XDP_SOURCE = 'native/roce_xdp.bpf.c';
const XDP_OBJECT = 'build/native/roce_xdp.bpf.o';
/** Where Debian has the kernel's headers of this processor; those for BPF ask for them. */
const KERNEL_HEADERS = `/usr/include/${{ x64: 'x86_64', arm64: 'aarch64' }[process.arch] ?? process.arch}-linux-gnu`;
const BPF_HEADERS = '/usr/include/bpf/bpf_helpers.h';

export const xdpProgram = compiled({
  name: 'XDP program',
  stamp: 'xdp',
  inputs: [XDP_SOURCE],
  outputs: [XDP_OBJECT],
  applies: () => existsSync(join(ROOT, XDP_SOURCE)),
  blocked() {
    const absent = [...(onPath('clang') ? [] : ['clang']), ...(existsSync(BPF_HEADERS) ? [] : ['libbpf-dev'])];
    if (absent.length === 0) return undefined;
    return `${absent.join(', ')} not found: the link xdp, and all tests that use it, are skipped`;
  },
  make() {
    mkdirSync(join(ROOT, 'build/native'), { recursive: true });
    // -g: libbpf reads the maps from the type information.
    const options = ['-target', 'bpf', '-O2', '-g', '-Wall', '-Wextra', '-Werror', '-fdebug-compilation-dir=.'];
    return run('clang', [...options, `-I${KERNEL_HEADERS}`, '-c', XDP_SOURCE, '-o', XDP_OBJECT]);
  },
});

export const dist = compiled({
  name: 'package',
  stamp: 'dist',
  inputs: ['src', 'tsconfig.json', 'tsconfig.build.json', 'build/card.d.ts'],
  outputs: ['dist/index.js', 'dist/index.d.ts'],
  applies: () => existsSync(join(ROOT, 'src/index.ts')),
  make() {
    rmSync(join(ROOT, 'dist'), { recursive: true, force: true });
    return tool('tsc', '-p', 'tsconfig.build.json');
  },
});
