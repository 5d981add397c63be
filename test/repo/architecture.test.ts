import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { parseWasm } from '../kit/wasm.js';
import { code, type Import, imports, ROOT, sources } from './sources.js';

/** The room of a path: the longest that it begins with. */
function roomOf(rooms: readonly string[], path: string): string | undefined {
  const inside = rooms.filter((room) => path === room || path.startsWith(`${room}/`));
  return inside.sort((a, b) => b.length - a.length)[0];
}

/** Imports that leave a room for one it may not know; `allowed` names, for each room, the rooms below it. */
function violations(paths: readonly string[], allowed: Readonly<Record<string, readonly string[]>>): string[] {
  const rooms = Object.keys(allowed);
  const isWrong = ({ from, to }: Import) => {
    const room = roomOf(rooms, from.replace(/\.ts$/, ''));
    const target = roomOf(rooms, to);
    if (room === undefined) return true;
    if (target === undefined) return /^(src|assembly|test|build|native)\//.test(to);
    return target !== room && !allowed[room]?.includes(target);
  };
  return paths
    .flatMap(imports)
    .filter(isWrong)
    .map(({ from, to }) => `${from} imports ${to}`);
}

describe('the card', () => {
  const anywhere = ['assembly/limits', 'assembly/layout', 'assembly/counters'];
  const below = ['assembly/qp', 'assembly/host', 'assembly/wire', ...anywhere];

  test('imports point downwards: index, rnic, qp, then host and wire, which do not know each other', () => {
    const wrong = violations(sources('assembly', '.ts'), {
      'assembly/index': ['assembly/rnic', 'assembly/posting', 'assembly/calls', ...below],
      'assembly/posting': ['assembly/calls', ...below],
      'assembly/calls': below,
      'assembly/rnic': below,
      'assembly/qp': below,
      'assembly/host': anywhere,
      'assembly/wire': anywhere,
      'assembly/limits': [],
      'assembly/layout': [],
      'assembly/counters': ['assembly/limits'],
      'assembly/testing': ['assembly/wire', 'assembly/qp', ...anywhere],
    });
    expect(wrong).toEqual([]);
  });

  const module = () => parseWasm(readFileSync(join(ROOT, 'build/card.wasm')));

  test('the module imports its memory, and abort at most: no clock, no I/O', () => {
    const names = module().imports.map(({ name, kind }) => `${kind} ${name}`);
    expect(names).toContain('memory env.memory');
    expect(names.filter((name) => name !== 'memory env.memory' && name !== 'function env.abort')).toEqual([]);
  });

  test('the module keeps no state outside its memory: no mutable global', () => {
    expect(module().globals.filter(({ mutable }) => mutable)).toEqual([]);
  });

  test('a second instance on the same memory would change nothing: no data is written at instantiation', () => {
    expect(module().dataSegments).toEqual([]);
  });
});

describe('the facade', () => {
  const leaves = ['src/errors', 'src/native'];
  const link = ['src/link', ...leaves];
  const device = ['src/device', ...link];
  const verbs = ['src/verbs', ...device];
  const cm = ['src/cm', ...verbs];
  const connection = ['src/connection', ...cm];

  test('imports point downwards: cli, index, connection, cm, verbs, device, link', () => {
    const wrong = violations(sources('src', '.ts'), {
      'src/errors': [],
      'src/native': ['src/errors'],
      'src/link': leaves,
      'src/device': [...link, 'build/card'],
      'src/verbs': device,
      'src/cm': verbs,
      'src/connection': cm,
      'src/index': connection,
      'src/cli': ['src/index'],
      'build/card': [],
    });
    expect(wrong).toEqual([]);
  });

  test('links and native code move frames: they know nothing of queue pairs', () => {
    const words = /\w*(?:qp|psn|rkey|lkey|wqe|cqe|queue_?pair)\w*/gi;
    const files = [...sources('src/link', '.ts'), ...sources('native', '.cc', '.h', '.c')];
    const found = files.flatMap((path) => (code(path).match(words) ?? []).map((word) => `${path}: ${word}`));
    expect(found).toEqual([]);
  });
});

test('the second encoder shares nothing with what it judges', () => {
  const encoder = ['address', 'decode', 'describe', 'encode', 'frame', 'icrc', 'opcodes', 'packets'];
  const foreign = encoder
    .flatMap((name) => imports(`test/kit/${name}.ts`))
    .filter(({ to }) => !to.startsWith('test/kit/'));
  expect(foreign).toEqual([]);
});
