import { readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { parseWasm } from '../kit/wasm.js';
import { cycles, typeCycles } from './cycles.js';
import { code, type Import, imports, ROOT, sources, text } from './sources.js';

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
  const anywhere = ['assembly/codes', 'assembly/limits', 'assembly/layout', 'assembly/memorymap', 'assembly/counters'];
  const below = ['assembly/qp', 'assembly/host', 'assembly/wire', ...anywhere];

  test('imports point downwards: index, boot, qp, then host and wire, which do not know each other', () => {
    const wrong = violations(sources('assembly', '.ts'), {
      'assembly/index': ['assembly/boot', 'assembly/posting', 'assembly/errno', ...below],
      'assembly/posting': ['assembly/errno', ...below],
      'assembly/errno': below,
      'assembly/boot': below,
      'assembly/qp': below,
      'assembly/host': anywhere,
      'assembly/wire': anywhere,
      'assembly/codes': [],
      'assembly/limits': [],
      'assembly/layout': [],
      'assembly/memorymap': [],
      'assembly/counters': ['assembly/memorymap'],
      'assembly/testing': ['assembly/wire', 'assembly/qp', ...anywhere],
    });
    expect(wrong).toEqual([]);
  });

  test('no files import each other in a circle', () => {
    expect(cycles('assembly')).toEqual([]);
  });

  const module = () => parseWasm(readFileSync(join(ROOT, 'build/card.wasm')));

  test('the module imports its memory, and accesses to other registered memory: no clock, no I/O', () => {
    const names = module().imports.map(({ name, kind }) => `${kind} ${name}`);
    const accesses = ['atomic', 'fetch', 'place'].map((name) => `function env.${name}`);
    expect(names.sort()).toEqual([...accesses, 'memory env.memory']);
  });

  test('the module keeps no state outside its memory: no mutable global', () => {
    expect(module().globals.filter(({ mutable }) => mutable)).toEqual([]);
  });

  test('a second instance on the same memory would change nothing: no data is written at instantiation', () => {
    expect(module().dataSegments).toEqual([]);
  });
});

describe('the facade', () => {
  const leaves = ['src/errors', 'src/native', 'src/packagefile', 'src/base'];
  const link = ['src/link', ...leaves];
  // loaded when a device gets its first rule of faults
  const faults = ['src/probe/faults', 'src/probe/packet', 'src/probe/script'];
  const device = ['src/device', ...faults, ...link];
  const verbs = ['src/verbs', ...device];
  const cm = ['src/cm', ...verbs];
  const transport = ['src/transport', ...cm];
  const message = ['src/protocols/message', ...transport];
  const datagram = ['src/datagram', ...message];
  const protocols = ['src/index', 'src/deviceuse', 'src/eachdevice', ...transport];

  test('imports point downwards: cli, protocols, sockets, index, opendevice, datagram, message, transport, cm, …', () => {
    const wrong = violations(sources('src', '.ts'), {
      'src/errors': [],
      // needed by several rooms, and knows none
      'src/base': ['src/errors'],
      'src/native': ['src/errors', 'src/packagefile'],
      'src/packagefile': [],
      'src/link': leaves,
      // a process of its own, which moves no frames
      'src/broker': ['src/broker/rdmacm', 'src/broker/control', ...link],
      // loaded when a C program connects: the CM for programs whose queue pairs are their own
      'src/broker/rdmacm': ['src/cm/core', ...cm],
      // loaded when rules of faults disturb a C program, or somebody asks for its state
      'src/broker/control': verbs,
      'src/device': [...faults, ...link, 'build/card', 'build/codes'],
      'src/verbs': device,
      'src/cm/core': link,
      'src/cm': ['src/cm/core', ...verbs],
      // what all transports above the verbs need
      'src/transport': cm,
      'src/protocols/message': transport,
      'src/datagram': transport,
      'src/opendevice': datagram,
      'src/index': ['src/opendevice', ...datagram],
      // packets of scripts share nothing with the card; a scripted queue pair is a link
      'src/probe/packet': [],
      'src/probe/capture': ['src/probe/packet'],
      'src/probe/ladder': ['src/probe/packet', 'src/probe/capture', 'src/packagefile'],
      'src/probe/script': ['src/probe/packet', 'build/scriptgrammar'],
      'src/probe/faults': ['src/probe/packet', 'src/probe/script', ...link],
      'src/probe/checks': ['src/probe/packet', 'src/probe/script', 'src/base'],
      'src/probe/report': ['src/probe/packet', 'src/probe/checks', 'src/probe/ladder', 'src/packagefile', ...link],
      'src/probe/link': [...faults, 'src/probe/checks', ...link],
      'src/probe': ['packet', 'script', 'faults', 'capture', 'ladder', 'link', 'checks', 'report'].map(
        (name) => `src/probe/${name}`,
      ),
      'build/scriptgrammar': [],
      'src/deviceuse': ['src/index', ...verbs],
      'src/eachdevice': ['src/deviceuse', 'src/index', ...cm],
      'src/sockets': protocols,
      'src/protocols/rsocket': ['src/sockets', ...protocols],
      'src/protocols/valkey': ['src/sockets', ...protocols],
      'src/protocols/nvme': protocols,
      'src/protocols/collective': protocols,
      'src/protocols/rpc': protocols,
      'src/protocols/connectrpc': ['src/protocols/rpc', ...protocols],
      'src/net': ['src/protocols/rsocket', 'src/sockets', 'src/deviceuse'],
      'src/dgram': ['src/protocols/rsocket'],
      'src/collective': ['src/protocols/collective'],
      'src/connectrpc': ['src/protocols/connectrpc'],
      'src/nvme': ['src/protocols/nvme'],
      'src/rpc': ['src/protocols/rpc'],
      'src/valkey': ['src/protocols/valkey', 'src/sockets'],
      'src/cli': [
        ...['src/base', 'src/packagefile', 'src/cli/endpoint/notify', 'src/broker'],
        ...['src/index', 'src/deviceuse', 'src/eachdevice', 'src/net', 'src/nvme', 'src/valkey', 'src/probe'],
      ],
      // sd_notify is of no use to other programs, so it is no public export
      'src/cli/endpoint/notify': ['src/native', 'src/cli'],
      'build/card': [],
      'build/codes': [],
    });
    expect(wrong).toEqual([]);
  });

  test('pages import what they show: the ladder packets alone, the playground the verbs and what is below', () => {
    const below = ['src/probe', 'src/verbs', 'src/device', 'src/link', 'src/base'];
    const wrong = violations(sources('web', '.ts'), {
      ...Object.fromEntries(below.map((room) => [room, []])),
      'web/ladder': ['src/probe'],
      'web/playground': ['web/ladder', ...below],
    });
    expect(wrong).toEqual([]);
  });

  test('no files import each other in a circle, but for types', () => {
    expect(cycles('src')).toEqual([]);
  });

  test('no more than five files name each other, types included', () => {
    expect(typeCycles('src').filter((files) => files.length > 5)).toEqual([]);
  });

  test('the core of rdma_cm is the protocol alone: it imports its own files, errors, and the text of addresses', () => {
    const known = ['src/errors', 'src/base/address', 'src/base/gid'];
    const foreign = sources('src/cm/core', '.ts')
      .flatMap(imports)
      .filter(({ to }) => !to.startsWith('src/cm/core/') && !known.includes(to));
    expect(foreign).toEqual([]);
  });

  test('links and native code move frames: they know nothing of queue pairs', () => {
    const words = /\w*(?:qp|psn|rkey|lkey|wqe|cqe|queue_?pair)\w*/gi;
    const native = ['native/core', 'native/node'].flatMap((room) => sources(room, '.cc', '.h', '.c'));
    const files = [...sources('src/link', '.ts'), ...native];
    expect(native.length).toBeGreaterThan(50);
    const found = files.flatMap((path) =>
      (code(path).replaceAll('SOCK_SEQPACKET', '').match(words) ?? []).map((word) => `${path}: ${word}`),
    );
    expect(found).toEqual([]);
  });
});

test('native/core is a library of its own: it includes neither Node nor libibverbs, nor another room', () => {
  const files = sources('native/core', '.cc', '.h');
  const included = files.flatMap((path) =>
    Array.from(text(path).matchAll(/^#include ([<"].*[>"])/gm), ([, name]) => name),
  );
  const own = new Set(files.map((path) => `"${basename(path)}"`));
  expect(files.length).toBeGreaterThan(30);
  expect(included.filter((name = '') => name.startsWith('"') && !own.has(name))).toEqual([]);
  expect(included.filter((name = '') => /napi|node|uv|infiniband|rdma/.test(name))).toEqual([]);
});

test('the second encoder shares nothing with what it judges', () => {
  const encoder = ['address', 'decode', 'describe', 'encode', 'frame', 'icrc', 'mad', 'opcodes', 'packets'];
  const foreign = encoder
    .flatMap((name) => imports(`src/probe/packet/${name}.ts`))
    .filter(({ to }) => !to.startsWith('src/probe/packet/'));
  expect(foreign).toEqual([]);
});
