// Retired names do not come back. One in lower case must not occur in identifiers and file names: `lend` forbids
// `LendOut`, but not `calendar`. One that begins with a capital is a type, and forbids this identifier only.
import { existsSync } from 'node:fs';
import { extname, join, relative } from 'node:path';
import ts from 'typescript';
import { expect, test } from 'vitest';
import { RETIRED } from './retiredwords.js';
import { code, ROOT, sources, text } from './sources.js';

const SCRIPTS = ['.ts', '.js', '.mjs'];
const NATIVE = ['.cc', '.h', '.c'];

/** Returns the parts of a name between spaces: ` let go of ah ` for `letGoOfAh`, `LET_GO_OF_AH` and `let-go-of-ah`. */
function parts(name: string): string {
  const split = name.replace(/([a-z\d])([A-Z])/g, '$1 $2').replace(/([A-Z])([A-Z][a-z])/g, '$1 $2');
  return ` ${
    split
      .toLowerCase()
      .match(/[a-z\d]+/g)
      ?.join(' ') ?? ''
  } `;
}

/** Returns the identifiers of a TypeScript or JavaScript file, without those in comments and strings. */
function scriptIdentifiers(path: string): Set<string> {
  const found = new Set<string>();
  const visit = (node: ts.Node): void => {
    if (ts.isIdentifier(node) || ts.isPrivateIdentifier(node)) found.add(node.text);
    ts.forEachChild(node, visit);
  };
  visit(ts.createSourceFile(path, text(path), ts.ScriptTarget.Latest));
  return found;
}

function nativeIdentifiers(path: string): Set<string> {
  const withoutStrings = code(path).replace(/"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'/g, '');
  return new Set(withoutStrings.match(/[A-Za-z_]\w*/g));
}

const cache = new Map<string, Set<string>>();

function identifiers(path: string): Set<string> {
  const known = cache.get(path);
  if (known) return known;
  const found = SCRIPTS.includes(extname(path)) ? scriptIdentifiers(path) : nativeIdentifiers(path);
  cache.set(path, found);
  return found;
}

/** Returns the occurrences of a word below a folder: paths that contain it, and `path: identifier`. */
function occurrences(word: string, folder: string): string[] {
  const isType = /^[A-Z]/.test(word);
  const contains = (name: string) => (isType ? name === word : parts(name).includes(parts(word)));
  return sources(folder, ...SCRIPTS, ...NATIVE).flatMap((path) => {
    const inPath = !isType && relative(folder, path).split('/').some(contains);
    const inCode = [...identifiers(path)].filter(contains);
    return [...(inPath ? [path] : []), ...inCode.map((name) => `${path}: ${name}`)];
  });
}

test('each retired word has folders that exist', () => {
  expect(RETIRED.length).toBeGreaterThan(30);
  expect(RETIRED.filter(({ where }) => where.length === 0)).toEqual([]);
  expect(RETIRED.flatMap(({ where }) => where).filter((folder) => !existsSync(join(ROOT, folder)))).toEqual([]);
});

test.each(RETIRED)('$word is not used again: $instead', ({ word, where }) => {
  expect(where.flatMap((folder) => occurrences(word, folder))).toEqual([]);
});
