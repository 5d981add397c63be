// Makes C of the card: build/card.wasm through wasm2c, for the runtime in native/card. The form of wasm2c's output
// changes from version to version, so its version is pinned, and a part in another form is an error.
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { ROOT, tool } from './run.mjs';

/** The folder of the files. */
export const CARD_C = 'build/native/card';
const DRAFT = `${CARD_C}/draft`;

/** The declaration of an import. */
const IMPORT = /^(?:extern )?\S+ w2c_env_\w+\(struct w2c_env\*.*\);$/;
/** The declaration of an export. */
const NAME = /^(?:u32|u64|f64|void) w2c_card_(\w+)\(w2c_card\*(?:, )?(.*)\);$/;

/** Returns a part of wasm2c's output. @throws Error if it has another form */
function part(text, form, name) {
  const found = form.exec(text)?.[0];
  if (found === undefined) throw new Error(`wasm2c writes ${name} in another form than the known one`);
  return found;
}

/** The functions of the card, without the templates in front of them and what only a linker of modules needs. */
function functions(source) {
  const code = source
    .slice(source.indexOf('\n', source.indexOf(part(source, /#define atomic_fence\(\)/, 'its templates'))))
    // addresses of constants
    .replace(/^\/\* export: .*\nu32\* w2c_card_[\s\S]*?^}\n/gm, '')
    .replace(/^wasm_rt_func_type_t wasm2c_card_get_func_type[\s\S]*?^}\n/gm, '')
    .replace(/^FUNC_TYPE_T\(.*\n/gm, '')
    .replace(/^ *assert\(wasm_rt_is_initialized\(\)\);\n/gm, '')
    // accesses, by names that do not say which kind of memory it is
    .replace(/\b(\w+?)_shared_default32\(instance->w2c_env_memory, /g, '$1(MEM, ');
  const unknown = /\w*_default32|CALL_INDIRECT|wasm_rt_(?!shared_memory_t)\w*/.exec(code)?.[0];
  if (unknown !== undefined) throw new Error(`wasm2c writes ${unknown}, which native/card does not know`);
  return code;
}

/** Returns the names of an enum of the card with their numbers. */
const membersOf = (value) => Object.entries(value).filter(([, code]) => typeof code === 'number');

/** Returns the card's enums and numbers as C++. Those of Errno are macros of C. */
function codesOf(codes) {
  const numbers = Object.entries(codes).filter(([, value]) => typeof value === 'number');
  const isEnum = ([name, value]) => typeof value === 'object' && !Array.isArray(value) && name !== 'Errno';
  const members = (value) => membersOf(value).map(([member, code]) => `${member} = ${code}u`);
  return [
    ...numbers.map(([name, value]) => `constexpr uint32_t ${name} = ${value}u;`),
    ...Object.entries(codes)
      .filter(isEnum)
      .map(([name, value]) => `namespace ${name} {\nenum : uint32_t { ${members(value).join(', ')} };\n}`),
  ];
}

/** Returns the texts that explain failures as C++: of names, by number, and what they mean. */
function textsOf({ WcStatus, WcOpcode, Counter }, { statuses, naks }) {
  const list = (name, texts) =>
    `constexpr CodeText ${name}[] = {${texts.map(([code, text]) => `{${code}u, ${JSON.stringify(text)}}`).join(', ')}};`;
  const names = (value) => membersOf(value).map(([name, code]) => [code, name]);
  return [
    'struct CodeText {\n  uint32_t code;\n  const char* text;\n};',
    list('kStatusNames', names(WcStatus)),
    list('kOpcodeNames', names(WcOpcode)),
    list('kCounterNames', names(Counter)),
    list(
      'kStatusMeanings',
      Object.entries(statuses).map(([name, text]) => [WcStatus[name], text]),
    ),
    list(
      'kNaks',
      naks.map((text, code) => [code, text]),
    ),
  ];
}

/** Texts that both the verbs of Node and the library for C programs say. */
export const MEANINGS = 'src/verbs/diagnose/meanings.json';

/**
 * Writes card.c; w2c_card.h with its declarations; and exports.inc with a line for each function:
 * CARD_FUNCTION(name, result, parameters …), which whoever includes it defines; card_codes.h with the card's enums and
 * numbers; and card_texts.h with names and meanings of some of them.
 */
export async function writeCardC() {
  const folder = join(ROOT, CARD_C);
  mkdirSync(join(ROOT, DRAFT), { recursive: true });
  await tool('wasm2c', '--enable-threads', '-n', 'card', 'build/card.wasm', '-o', `${DRAFT}/card.c`);
  const [source, header] = ['c', 'h'].map((kind) => readFileSync(join(ROOT, `${DRAFT}/card.${kind}`), 'utf8'));
  rmSync(join(ROOT, DRAFT), { recursive: true });
  const instance = part(header, /typedef struct w2c_card \{[\s\S]*?\} w2c_card;/, 'the instance');
  const declarations = header.split('\n').filter((line) => NAME.test(line));
  if (declarations.length === 0) throw new Error('wasm2c writes the exports in another form than the known one');
  const lists = declarations.map((line) => {
    const [, name, parameters] = NAME.exec(line);
    return `CARD_FUNCTION(${[name, line.split(' ', 1)[0], ...(parameters === '' ? [] : [parameters])].join(', ')})`;
  });
  writeFileSync(join(folder, 'card.c'), `#include "card/wasm.h"\n\n#include "w2c_card.h"\n${functions(source)}`);
  writeFileSync(
    join(folder, 'w2c_card.h'),
    [
      '#pragma once',
      '#include "card/types.h"',
      '#ifdef __cplusplus',
      'extern "C" {',
      '#endif',
      'struct w2c_env;',
      ...header.split('\n').filter((line) => IMPORT.test(line)),
      instance,
      'void wasm2c_card_instantiate(w2c_card*, struct w2c_env*);',
      ...declarations,
      '#ifdef __cplusplus',
      '}',
      '#endif',
      '',
    ].join('\n'),
  );
  writeFileSync(join(folder, 'exports.inc'), `${lists.join('\n')}\n`);
  const codes = await import(pathToFileURL(join(ROOT, 'build/codes.js')));
  const texts = textsOf(codes, JSON.parse(readFileSync(join(ROOT, MEANINGS), 'utf8')));
  const head = ['#pragma once', '#include <cstdint>'];
  writeFileSync(join(folder, 'card_codes.h'), [...head, ...codesOf(codes), ''].join('\n'));
  writeFileSync(join(folder, 'card_texts.h'), [...head, ...texts, ''].join('\n'));
}
