// What is compiled: the card (wasm), the native addon, the package's JavaScript.
import { existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { onPath, ROOT, tool } from './run.mjs';
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
    return `${absent.join(', ')} not found: the links packet and udp, and all tests that use them, are skipped`;
  },
  make: () => tool(...ADDON_COMMAND),
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
