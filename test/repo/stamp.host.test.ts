// The setup makes some outputs again and takes others from the cache of the user, with several clones and one cache.
import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeEach, expect, test } from 'vitest';
import { STEPS } from '../../scripts/setup.mjs';
import { ROOT } from './sources.js';

const folder = mkdtempSync(join(tmpdir(), 'stamp-'));
const cache = join(folder, 'cache');
afterAll(() => rmSync(folder, { recursive: true }));
beforeEach(() => rmSync(cache, { recursive: true, force: true }));

/** Makes `made` from `given` if it is not fresh, and prints what it did. */
const PROGRAM = `
  import { readFileSync, writeFileSync } from 'node:fs';
  import { Stamp } from './scripts/setup/stamp.mjs';
  const stamp = new Stamp('made', { inputs: ['given'], tools: ['./tool'], outputs: ['made'] });
  if (stamp.isFresh()) console.log('fresh');
  else {
    let isMade = false;
    await stamp.make(async () => {
      isMade = true;
      if (process.argv[1] !== 'nothing') writeFileSync('made', 'from ' + readFileSync('given', 'latin1'));
    });
    console.log(isMade ? 'made' : 'cached');
  }`;

/** A new clone. */
function clone(given: string): string {
  const at = mkdtempSync(join(folder, 'clone-'));
  mkdirSync(join(at, 'scripts'));
  cpSync(join(ROOT, 'scripts/setup'), join(at, 'scripts/setup'), { recursive: true });
  writeFileSync(join(at, 'given'), given);
  return at;
}

function setUp(at: string, ...words: string[]): string {
  const env = { ...process.env, XDG_CACHE_HOME: cache };
  const args = ['--input-type=module', '--eval', PROGRAM, '--', ...words];
  return execFileSync(process.execPath, args, { cwd: at, env, encoding: 'utf8', stdio: 'pipe' }).trim();
}

const made = (at: string) => readFileSync(join(at, 'made'), 'latin1');

test('an output is made once, and again when its input has other content', () => {
  const at = clone('one');
  expect([setUp(at), made(at)]).toEqual(['made', 'from one']);
  writeFileSync(join(at, 'given'), 'one');
  expect(setUp(at)).toBe('fresh');
  writeFileSync(join(at, 'given'), 'two');
  expect([setUp(at), made(at)]).toEqual(['made', 'from two']);
});

test('another clone with the same input takes it from the cache, and one with another input does not', () => {
  setUp(clone('one'));
  const [same, other] = [clone('one'), clone('two')];
  expect([setUp(same), made(same)]).toEqual(['cached', 'from one']);
  expect([setUp(other), made(other)]).toEqual(['made', 'from two']);
});

test('the cache keeps what each version of a tool makes, and an output stays fresh without the tool', () => {
  const cloneWith = (version: string) => {
    const at = clone('one');
    writeFileSync(join(at, 'tool'), `#!/bin/sh\necho ${version}\n`, { mode: 0o755 });
    return at;
  };
  const first = cloneWith('1.0');
  expect(setUp(first)).toBe('made');
  expect([setUp(cloneWith('1.1')), setUp(cloneWith('1.0'))]).toEqual(['made', 'cached']);
  rmSync(join(first, 'tool'));
  expect(setUp(first)).toBe('fresh');
});

test('an output that was removed comes from the cache', () => {
  const at = clone('one');
  setUp(at);
  rmSync(join(at, 'made'));
  expect([setUp(at), made(at)]).toEqual(['cached', 'from one']);
});

test('an output that is not made is an error, and the cache keeps nothing', () => {
  const at = clone('one');
  expect(() => setUp(at, 'nothing')).toThrow('made was not created');
  expect(existsSync(join(cache, 'wasm-roce/built/made'))).toBe(false);
  expect(setUp(at)).toBe('made');
});

test('the cache keeps four contents: the least recently used one goes', () => {
  const contents = ['1', '2', '3', '4'];
  for (const content of contents) setUp(clone(content));
  expect(setUp(clone('1'))).toBe('cached');
  setUp(clone('5'));
  expect(readdirSync(join(cache, 'wasm-roce/built/made'))).toHaveLength(4);
  expect([setUp(clone('1')), setUp(clone('2'))]).toEqual(['cached', 'made']);
});

test('without a writable cache an output is made', () => {
  writeFileSync(cache, 'a file');
  const [one, other] = [clone('one'), clone('one')];
  expect([setUp(one), setUp(other), made(other)]).toEqual(['made', 'made', 'from one']);
});

test('programs and libraries of the cache need no file of the clone that built them', () => {
  const at = mkdtempSync(join(folder, 'clone-'));
  const outputs = STEPS.flatMap((step) => ('outputs' in step ? step.outputs : []));
  const copied = outputs.filter((output) => existsSync(join(ROOT, output)));
  for (const output of copied) {
    mkdirSync(dirname(join(at, output)), { recursive: true });
    cpSync(join(ROOT, output), join(at, output), { recursive: true });
  }
  const loaded = copied.map((output) => spawnSync('ldd', [join(at, output)], { encoding: 'utf8' }));
  const lines = loaded.filter(({ status }) => status === 0).flatMap(({ stdout }) => stdout.split('\n'));
  expect(lines.filter((line) => line.includes('not found') || line.includes(ROOT))).toEqual([]);
  expect(lines.filter((line) => line.includes('libc.so')).length).toBeGreaterThan(1);
});
