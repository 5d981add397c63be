// Project `unit` is repeatable because it needs nothing but the processor (vitest.config.ts, virtualclock.ts).
import { expect, test } from 'vitest';
import { imports, sources } from './sources.js';

/** Tests of other projects, as in vitest.config.ts. */
const OTHERS = /^test\/(cli|examples|interop|programs|web)\/|\.host\.test\.ts$/;
/** Modules by which a test gets at processes, threads, sockets and browsers. */
const OUTSIDE = /^(node:)?(child_process|cluster|dgram|net|tls|worker_threads)$|^playwright-core$/;

/** Returns the way from a file of the tests to a module that leads outside; undefined if there is none. */
function wayOutside(file: string, seen: Set<string>): string[] | undefined {
  seen.add(file);
  for (const { to } of imports(file)) {
    if (OUTSIDE.test(to)) return [file, to];
    const next = `${to}.ts`;
    if (!to.startsWith('test/') || seen.has(next)) continue;
    const way = wayOutside(next, seen);
    if (way) return [file, ...way];
  }
  return undefined;
}

test('the tests of project unit use no processes, threads, sockets and browsers', () => {
  const files = sources('test', '.test.ts').filter((path) => !OTHERS.test(path));
  expect(files.length).toBeGreaterThan(150);
  expect(files.map((file) => wayOutside(file, new Set())?.join(' > ')).filter(Boolean)).toEqual([]);
});
