// The tests that test/README.md names exist.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ROOT } from './sources.js';

test('each test that the check-list names is there, under its title', () => {
  const text = readFileSync(join(ROOT, 'test/README.md'), 'utf8');
  const rows = [...text.matchAll(/\| `(test\/[\w/.-]+)`: (.+) \|$/gm)].map(([, path, title]) => ({ path, title }));
  expect(rows.length).toBeGreaterThan(50);
  const missing = rows.filter(({ path, title = '' }) => {
    const source = readFileSync(join(ROOT, path as string), 'utf8');
    return !title.startsWith('…') && !source.includes(title);
  });
  expect(missing).toEqual([]);
});
