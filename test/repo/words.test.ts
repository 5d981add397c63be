// Retired names do not come back: docs/glossary.md lists them, with the folders in which they must not occur.
import { existsSync } from 'node:fs';
import { extname, join, relative } from 'node:path';
import ts from 'typescript';
import { expect, test } from 'vitest';
import { code, ROOT, sources, text } from './sources.js';

interface Retired {
  word: string;
  instead: string;
  /** Folders, from the project's folder. */
  where: string[];
}

const SCRIPTS = ['.ts', '.js', '.mjs'];
const NATIVE = ['.cc', '.h', '.c'];

/** Reads the rows of the glossary's last table. */
function retiredWords(): Retired[] {
  const [, table = ''] = text('docs/glossary.md').split('\n## Retired words\n');
  return Array.from(
    table.matchAll(/^\| `(\w+)` \| (.+?) \| (.+?) \|$/gm),
    ([, word = '', instead = '', where = '']) => ({
      word,
      instead,
      where: Array.from(where.matchAll(/`([^`]+)`/g), ([, folder = '']) => folder),
    }),
  );
}

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

const retired = retiredWords();

test('the glossary says which words are retired, where, and what to use instead', () => {
  expect(retired.length).toBeGreaterThan(30);
  const folders = retired.flatMap(({ where }) => where);
  expect(folders.filter((folder) => !existsSync(join(ROOT, folder)))).toEqual([]);
  expect(retired.filter(({ where }) => where.length === 0)).toEqual([]);
});

test.each(retired)('$word is not used again: $instead', ({ word, where }) => {
  expect(where.flatMap((folder) => occurrences(word, folder))).toEqual([]);
});
