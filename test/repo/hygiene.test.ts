import { expect, test } from 'vitest';
import { sources, text } from './sources.js';

test('a file has one subject: none is longer than 400 lines', () => {
  const all = ['assembly', 'src', 'test', 'bench', 'examples', 'native', 'scripts'].flatMap((folder) =>
    sources(folder, '.ts', '.js', '.mjs', '.cc', '.h', '.c'),
  );
  expect(all.filter((path) => text(path).split('\n').length > 401)).toEqual([]);
});

test('the lock file leaves it to each machine where packages come from', () => {
  expect(text('package-lock.json')).not.toContain('"resolved": "http');
});
