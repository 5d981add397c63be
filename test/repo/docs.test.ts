/** The documents: the README is short, and what documents point at exists. */
import { existsSync, statSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { expect, test } from 'vitest';
import { imports, ROOT, sources, text } from './sources.js';

/** Paths from the project's folder. */
const DOCUMENTS = [
  ...['README.md', 'CONTRIBUTING.md', 'CHANGELOG.md', 'SECURITY.md'],
  ...['examples/README.md', 'packaging/README.md'],
  ...sources('docs', '.md'),
];
const FOLDERS = 'assembly|src|test|native|bench|scripts|examples|packaging';

/** A document without its code blocks. */
function prose(path: string): string {
  return text(path).replace(/^```[\s\S]*?^```/gm, '');
}

/** The anchors of a document's headings, as GitHub makes them. */
function anchors(path: string): string[] {
  return Array.from(prose(path).matchAll(/^#+ (.+)$/gm), ([, heading = '']) =>
    heading
      .toLowerCase()
      .replace(/[^\p{Letter}\p{Number}\- _]/gu, '')
      .replaceAll(' ', '-'),
  );
}

function isLinkRight(from: string, target: string): boolean {
  const [file = '', anchor] = target.split('#');
  const to = file === '' ? from : normalize(join(dirname(from), file));
  return existsSync(join(ROOT, to)) && (anchor === undefined || anchors(to).includes(anchor));
}

test('the README has at most 8 KB', () => {
  expect(statSync(join(ROOT, 'README.md')).size).toBeLessThanOrEqual(8192);
});

test('relative links lead to files and headings that exist', () => {
  const wrong = DOCUMENTS.flatMap((path) =>
    [...prose(path).matchAll(/\]\(([^)\s]+)\)/g)]
      .map(([, target = '']) => target)
      .filter((target) => !/^[a-z]+:/.test(target) && !isLinkRight(path, target))
      .map((target) => `${path}: ${target}`),
  );
  expect(wrong).toEqual([]);
});

test('files and folders that documents name exist', () => {
  const wrong = DOCUMENTS.flatMap((path) =>
    [...prose(path).matchAll(new RegExp(`\`((?:${FOLDERS})/[\\w./-]*)\``, 'g'))]
      .map(([, named = '']) => named)
      .filter((named) => !existsSync(join(ROOT, named)))
      .map((named) => `${path}: ${named}`),
  );
  expect(wrong).toEqual([]);
});

test('the walk of a connect has at most eight files, each once, and each imported by one before it', () => {
  const [, section = ''] = text('docs/architecture.md').split('\n## One rdma_cm connect\n');
  const [walk = ''] = section.split('\n## ');
  const files = Array.from(walk.matchAll(/^\d+\. `(\S+)`/gm), ([, path = '']) => path);
  expect(files.length).toBeGreaterThan(4);
  expect(files.length).toBeLessThanOrEqual(8);
  expect(new Set(files).size).toBe(files.length);
  const isReached = (path: string, before: readonly string[]) =>
    before.some((from) => imports(from).some(({ to }) => `${to}.ts` === path));
  expect(files.slice(1).filter((path, i) => !isReached(path, files.slice(0, i + 1)))).toEqual([]);
});
