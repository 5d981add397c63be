// Writes build/codes.js and build/codes.d.ts: the card's enums and constants, read from the compiled card itself. So
// programs that need a code compile no WebAssembly, and no code is declared twice.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { ROOT } from './run.mjs';

/** Number of BTH opcodes. */
const OPCODES = 256;

/** Returns the enums and constants among the exports of the card, and its opcode table, each with its type. */
async function codesOf(card, binary) {
  const { instantiate } = await import(pathToFileURL(card));
  const memory = new WebAssembly.Memory({ initial: 16, maximum: 16, shared: true });
  // for its constants alone: it accesses no memory
  const [fetch, place, atomic] = Array(3).fill(() => 0);
  const env = { memory, fetch, place, atomic };
  const exported = await instantiate(new WebAssembly.Module(readFileSync(binary)), { env });
  const names = Object.keys(exported).filter((name) => typeof exported[name] === 'object' && name !== 'memory');
  const codes = names.map((name) => {
    // asc exports a constant as { value, valueOf }, an enum as names and values of both directions.
    return Object.hasOwn(exported[name], 'valueOf')
      ? { name, value: exported[name].value, type: 'number' }
      : { name, value: exported[name], type: `typeof __AdaptedExports.${name}` };
  });
  const flags = Array.from({ length: OPCODES }, (_, opcode) => exported.opcodeFlags(opcode));
  return [...codes, { name: 'opcodeFlags', value: flags, type: 'readonly number[]' }];
}

/**
 * Writes build/codes.js and build/codes.d.ts, which takes its types from build/card.d.ts. Removes from the latter the
 * namespace WebAssembly, which programs without the DOM library do not have.
 */
export async function writeCodes() {
  const build = join(ROOT, 'build');
  const declarations = readFileSync(join(build, 'card.d.ts'), 'utf8')
    .replaceAll('WebAssembly.Memory', '{ readonly buffer: SharedArrayBuffer | ArrayBuffer }')
    .replaceAll('WebAssembly.Module', 'object');
  writeFileSync(join(build, 'card.d.ts'), declarations);
  const codes = await codesOf(join(build, 'card.js'), join(build, 'card.wasm'));
  const values = codes.map(({ name, value }) => `export const ${name} = ${JSON.stringify(value, null, 2)};`);
  const types = codes.map(({ name, type }) => `export declare const ${name}: ${type};`);
  writeFileSync(join(build, 'codes.js'), `${values.join('\n')}\n`);
  writeFileSync(
    join(build, 'codes.d.ts'),
    `import type { __AdaptedExports } from './card.js';\n\n${types.join('\n')}\n`,
  );
}
