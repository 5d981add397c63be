/** Names of a host's interfaces: unique among the processes of one user, and out of reach of others. */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { interfaceNames } from '../../src/link/names.js';
import { userFolders } from '../../src/link/runtimefolder.js';
import { netPrivilege, testIf } from '../kit/privileges.js';

const MODULE = new URL('../../src/link/names.ts', import.meta.url).href;
const NATIVE_MODULE = new URL('../../src/native.ts', import.meta.url).href;
const NODE = [process.execPath, '--import', 'tsx', '--input-type=module', '-e'] as const;

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'wasm-roce-names-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

const names = (...folders: string[]) => interfaceNames(1000, () => folders);

test('a name has one owner until it is released; other names and interfaces do not matter', () => {
  const [one, other] = [names(folder), names(folder)];
  const release = one.bind('port/1') as () => void;
  expect([one.isBound('port/1'), other.isBound('port/1'), other.isBound('port/2')]).toEqual([true, true, false]);
  expect([one.bind('port/1'), other.bind('port/1')]).toEqual([undefined, undefined]);
  const elsewhere = interfaceNames(1001, () => [folder]);
  expect(elsewhere.isBound('port/1')).toBe(false);
  elsewhere.bind('port/1')?.();
  release();
  expect(other.isBound('port/1')).toBe(false);
  other.bind('port/1')?.();
});

test('one common folder suffices, and a folder that is refused later leaves nothing bound', () => {
  const second = join(folder, 'second');
  mkdirSync(second);
  const [both, only] = [names(second, folder), names(folder)];
  const release = only.bind('a') as () => void;
  expect([both.isBound('a'), both.bind('a')]).toEqual([true, undefined]);
  expect(names(second).isBound('a')).toBe(false);
  release();
  expect(both.isBound('a')).toBe(false);
});

test('a killed process leaves no name behind, and no file that anybody must remove', async () => {
  const program = `const { interfaceNames } = await import('${MODULE}');
    interfaceNames(1000, () => ['${folder}']).bind('a');
    console.log('bound');
    setInterval(() => {}, 1000);`;
  const child = spawn(NODE[0], [...NODE.slice(1), program], { stdio: ['ignore', 'pipe', 'inherit'] });
  await once(child.stdout, 'data');
  expect([names(folder).isBound('a'), names(folder).bind('a')]).toEqual([true, undefined]);
  child.kill('SIGKILL');
  await once(child, 'exit');
  expect(names(folder).isBound('a')).toBe(false);
  names(folder).bind('a')?.();
});

test('an abstract socket of the name, which any user can have, does not bind it', async () => {
  const squatter = createServer().listen('\0wasm-roce/names0/cm/TCP/7001/::ffff:10.0.0.1');
  await once(squatter, 'listening');
  const { bind, isBound } = names(folder);
  expect(isBound('cm/TCP/7001/::ffff:10.0.0.1')).toBe(false);
  const release = bind('cm/TCP/7001/::ffff:10.0.0.1');
  expect(release).toBeDefined();
  release?.();
  squatter.close();
});

test('the file is for this user only, and never one that a symbolic link leads to', () => {
  names(folder).bind('a')?.();
  expect(lstatSync(join(folder, 'names.lock')).mode & 0o777).toBe(0o600);
  rmSync(join(folder, 'names.lock'));
  const victim = join(folder, 'victim');
  writeFileSync(victim, 'as it was');
  symlinkSync(victim, join(folder, 'names.lock'));
  // without a file a process has its names for itself
  expect(names(folder).bind('a')).toBeDefined();
  expect(names(folder).isBound('a')).toBe(false);
  expect(readFileSync(victim, 'utf8')).toBe('as it was');
});

test('folders of other users, and those that others may enter, are not used', () => {
  const before = process.env.XDG_RUNTIME_DIR;
  process.env.XDG_RUNTIME_DIR = folder;
  try {
    expect(userFolders()).toContain(join(folder, 'wasm-roce'));
    chmodSync(join(folder, 'wasm-roce'), 0o755);
    expect(userFolders()).not.toContain(join(folder, 'wasm-roce'));
    process.env.XDG_RUNTIME_DIR = '/dev/null';
    expect(userFolders()).not.toContain('/dev/null/wasm-roce');
  } finally {
    if (before === undefined) delete process.env.XDG_RUNTIME_DIR;
    else process.env.XDG_RUNTIME_DIR = before;
  }
});

testIf(netPrivilege(), 'another user neither takes names nor sees them', () => {
  const release = names(folder).bind('a') as () => void;
  // The other user may not be allowed to read the project, so everything is loaded before.
  const program = `const { interfaceNames } = await import('${MODULE}');
    (await import('${NATIVE_MODULE}')).native();
    process.setgroups([]);
    process.setgid(65534);
    process.setuid(65534);
    const here = interfaceNames(1000, () => ['${folder}']);
    console.log(here.isBound('a'), here.bind('a') !== undefined, here.bind('b') !== undefined);`;
  const env = { ...process.env, XDG_RUNTIME_DIR: folder };
  expect(execFileSync(NODE[0], [...NODE.slice(1), program], { encoding: 'utf8', env })).toBe('false true true\n');
  expect([names(folder).isBound('a'), names(folder).isBound('b')]).toEqual([true, false]);
  release();
});
