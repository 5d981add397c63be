import { expect, test } from 'vitest';
import { code, sources, text } from './sources.js';

/** Biome formats code, but does not wrap comments. */
const COLUMNS = 120;
const COMMENT = /\/\*[\s\S]*?\*\/|(?<!:)\/\/.*$/gm;

/** The lines of a file, as `path:line`, that belong to a comment and are longer than `COLUMNS`. */
function longComments(path: string): string[] {
  const source = text(path);
  const lines = source.split('\n');
  const numbers = Array.from(source.matchAll(COMMENT), ({ index, 0: comment }) => {
    const first = source.slice(0, index).split('\n').length;
    return comment.split('\n').map((_, i) => first + i);
  });
  const long = new Set(numbers.flat().filter((number) => (lines[number - 1] ?? '').length > COLUMNS));
  return [...long].map((number) => `${path}:${number}`);
}

test('comments wrap at 120 columns', () => {
  const all = ['assembly', 'src', 'native', 'test', 'bench', 'examples', 'scripts'].flatMap((folder) =>
    sources(folder, '.ts', '.js', '.mjs', '.cc', '.h', '.c'),
  );
  expect(all.length).toBeGreaterThan(400);
  expect(all.flatMap(longComments)).toEqual([]);
});

/** Comments that begin with a bare clause. */
const BARE = [
  /\/\*\*\s*(?:\n\s*\*\s+)?(?:@internal\s+)?(?:What|Who|How|Why|Where)(?:ever)?\b[^\n]*/g,
  /^\s*\/\/+ (?:What|Who|How|Why|Where)(?:ever)?\b[^\n]*/gm,
  /@(?:returns|throws|param \w+) (?:what|who|whose|how|why|where|which)\b[^\n]*/g,
];

test('no comment and no tag begins with a bare what, who, how, why or where', () => {
  const all = ['assembly', 'src', 'native', 'test', 'bench', 'examples', 'scripts', 'web'].flatMap((folder) =>
    sources(folder, '.ts', '.js', '.mjs', '.cc', '.h', '.c'),
  );
  const found = all.flatMap((path) =>
    BARE.flatMap((form) => (text(path).match(form) ?? []).map((comment) => `${path}: ${comment.trim()}`)),
  );
  expect(found).toEqual([]);
});

// Flags of V8 belong to the whole process, and some combinations end it in some versions of Node.
test('the package sets no flags of V8', () => {
  expect(sources('src', '.ts').filter((path) => text(path).includes('setFlagsFromString'))).toEqual([]);
});

test('the lock file leaves it to each machine where packages come from', () => {
  expect(text('package-lock.json')).not.toContain('"resolved": "http');
});

// Two files run at once, and a device has UDP port 4791 of its address for itself. Others take addresses of pair.ts,
// which are from 127.128.0.0 on.
test('no two files of tests open devices on the same loopback address', () => {
  const users = new Map<string, Set<string>>();
  for (const path of sources('test', '.test.ts'))
    for (const [address] of code(path).matchAll(/(?<![\d.])127\.(?!0\.0\.)\d+\.\d+\.\d+/g))
      users.set(address, (users.get(address) ?? new Set()).add(path));
  expect(users.size).toBeGreaterThan(20);
  expect([...users].filter(([, paths]) => paths.size > 1)).toEqual([]);
  const ofPair = [...users.keys()].filter((address) => Number(address.split('.')[1]) >= 128);
  expect(ofPair).toEqual([]);
});
