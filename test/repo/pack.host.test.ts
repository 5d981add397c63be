import { execFile } from 'node:child_process';
import {
  appendFileSync,
  cpSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { all, describeIf, programPrivilege, testIf } from '../kit/privileges.js';
import { type Installed, install } from './installed.js';
import { programsOf } from './programs.js';
import { ROOT } from './sources.js';

const run = promisify(execFile);
const manifest = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
const built = existsSync(join(ROOT, 'dist/index.js'));

describeIf({ ok: built, reason: 'dist is not built: npm run build' }, 'the packed package, installed elsewhere', () => {
  let installed: Installed;
  beforeAll(async () => {
    // what `wasm-roce/connectrpc` needs is up to the user to install
    installed = await install([
      ...['@types/node', 'undici-types', '@connectrpc/connect', '@bufbuild/protobuf'],
      ...['cmake-js', 'node-addon-api'],
    ]);
  }, 120_000);
  afterAll(() => installed?.remove());

  /** Returns the text of all its JavaScript in dist/. */
  const scripts = () =>
    installed.files
      .filter((path) => /^dist\/(?!web\/).*\.js$/.test(path))
      .map((path) => readFileSync(join(installed.package, path), 'utf8'));

  test('holds what runs, its types and its licence, and none of the tests', () => {
    expect(installed.files).toEqual(
      expect.arrayContaining([
        'dist/index.js',
        'dist/index.d.ts',
        'build/card.wasm',
        'dist/cardworker.js',
        'dist/LICENCES.txt',
        'CMakeLists.txt',
        'native/build.mjs',
        'LICENSE',
        'README.md',
      ]),
    );
    expect(installed.files.filter((path) => /^(test|scripts|assembly|node_modules)\//.test(path))).toEqual([]);
    expect(installed.files.filter((path) => /\.png$/.test(path))).toEqual([]);
    // Source maps would need the sources beside them.
    expect(installed.files.filter((path) => /\.[jt]s\.map$/.test(path))).toEqual([]);
  });

  test('names no folder of the machine that has built it', () => {
    const names = (path: string) => readFileSync(join(installed.package, path)).includes(ROOT);
    expect(installed.files.filter(names)).toEqual([]);
  });

  test('depends on no package but those that its user chooses', () => {
    const packed = JSON.parse(readFileSync(join(installed.package, 'package.json'), 'utf8'));
    const { dependencies, optionalDependencies, peerDependenciesMeta } = packed;
    expect([dependencies, optionalDependencies]).toEqual([undefined, undefined]);
    expect(peerDependenciesMeta).toEqual({ '@connectrpc/connect': { optional: true } });
  });

  test('names the licence of each package that it contains', () => {
    const licences = readFileSync(join(installed.package, 'dist/LICENCES.txt'), 'utf8');
    const named = [...licences.matchAll(/^Name: (.*)$/gm)].map(([, name]) => name);
    expect(named).toEqual(expect.arrayContaining(['@bomb.sh/tab', 'commander', 'xmlbuilder', 'yaml', 'zod']));
    expect(licences.match(/^License: \S/gm)).toHaveLength(named.length);
    const inside = scripts().flatMap((code) => code.match(/(?<=^\/\/ node_modules\/)(?:@[^/]+\/)?[^/\n]+/gm) ?? []);
    expect([...new Set(inside)].filter((name) => !named.includes(name))).toEqual([]);
  });

  test('has one copy of each module for all its exports, commands and threads', () => {
    const modules = scripts().flatMap((code) => code.match(/(?<=^\/\/ )(?:src|build|node_modules)\/\S+$/gm) ?? []);
    expect(modules).toEqual(expect.arrayContaining(['src/errors.ts', 'src/verbs/objects/qp.ts', 'src/cli/main.ts']));
    expect(modules.filter((module, at) => modules.indexOf(module) !== at)).toEqual([]);
  });

  // V8 keeps the text in the heap, with two bytes for each character if one is not of Latin-1. The marking of garbage
  // begins at a heap of 8 MiB, and then takes a third of the time of a program that receives a stream.
  test('its JavaScript is ASCII, without documentation comments', () => {
    expect(scripts().length).toBeGreaterThan(10);
    expect(
      scripts()
        .filter((code) => /[^\0-\x7f]|^\s*\/\*\*\s*$/m.test(code))
        .map((code) => code.slice(0, 200)),
    ).toEqual([]);
  });

  test.each(['counter.js', 'keyvalue.js'])('its example %s runs where it is installed', async (example) => {
    const file = join(installed.package, 'examples', example);
    const { stdout } = await run(process.execPath, [file, '--demo'], { cwd: installed.folder, timeout: 60_000 });
    expect(() => JSON.parse(stdout.trim().split('\n').at(-1) ?? '')).not.toThrow();
  });

  test('can be imported, and opens the card', async () => {
    const program = `import { openDevice } from 'wasm-roce'; console.log(typeof openDevice);`;
    const { stdout } = await run(process.execPath, ['--input-type=module', '-e', program], { cwd: installed.folder });
    expect(stdout.trim()).toBe('function');
  });

  test('its part that tests peers can be imported, and works with a device of the other part', async () => {
    const subpaths = Object.keys(manifest.exports).filter((path) => path !== '.');
    const program = `import { openDevice } from 'wasm-roce';
      ${subpaths.map((path) => `import 'wasm-roce/${path.slice(2)}';`).join('\n      ')}
      import { EventFaultLink, formatScript, parseScript } from 'wasm-roce/probe';
      const wrapLink = (link) => new EventFaultLink(link, ['drop every CNP']);
      const device = await openDevice({ link: 'memory', wrapLink });
      console.log(formatScript(parseScript('wait   1ms')), (await device.counters())['link.fault_rule_1_hits']);
      await device.close();`;
    const { stdout } = await run(process.execPath, ['--input-type=module', '-e', program], { cwd: installed.folder });
    expect(stdout).toBe('wait 1ms\n 0\n');
  });

  test('loads no package of another maker, by no export but connectrpc', async () => {
    // Resolution hooks see every import and every require of the process.
    const hooks = `export async function resolve(name, context, next) {
        if (!/^(node:|file:|data:|[./])/.test(name) && !/^wasm-roce/.test(name)) console.log(name);
        return next(name, context);
      }`;
    const own = Object.keys(manifest.exports).filter((path) => path !== './connectrpc');
    const program = `import { createRequire, register } from 'node:module';
      const Module = createRequire(import.meta.url)('node:module');
      const load = Module._load;
      Module._load = (name, ...rest) => { console.log('require', name); return load(name, ...rest); };
      register('data:text/javascript,' + encodeURIComponent(${JSON.stringify(hooks)}));
      for (const path of ${JSON.stringify(own)}) await import('wasm-roce' + path.slice(1));
      console.log('loaded');
      await import('undici-types/package.json', { with: { type: 'json' } });`;
    const { stdout } = await run(process.execPath, ['--input-type=module', '-e', program], { cwd: installed.folder });
    const lines = stdout.trim().split('\n');
    const isRequire = (line: string) => line.startsWith('require ');
    expect(lines.slice(0, lines.indexOf('loaded')).filter(isRequire)).toEqual([]);
    // Hooks run in a thread of their own, whose lines come late. The package imported last shows that they work.
    const names = lines.filter((line) => !isRequire(line));
    expect(names.sort()).toEqual(['loaded', 'undici-types/package.json']);
  });

  test('keeps the names of its classes, which util.inspect shows', async () => {
    const program = `import * as all from 'wasm-roce';
      for (const [name, value] of Object.entries(all)) if (/^class/.test(value)) console.log(name === value.name, name);`;
    const { stdout } = await run(process.execPath, ['--input-type=module', '-e', program], { cwd: installed.folder });
    expect(stdout).toContain('true Connection\n');
    expect(stdout).not.toContain('false');
  });

  test('brings types that tell right from wrong', async () => {
    const program = `import { openDevice } from 'wasm-roce';
      export const open: (...options: never[]) => Promise<unknown> = openDevice;
      // @ts-expect-error not a number
      export const number: number = openDevice;`;
    writeFileSync(join(installed.folder, 'program.ts'), program);
    const options = ['--noEmit', '--strict', '--module', 'NodeNext', '--target', 'ES2022', '--types', 'node'];
    const tsc = join(ROOT, 'node_modules/typescript/bin/tsc');
    const check = async (...more: string[]) => {
      const command = [tsc, ...options, '--skipLibCheck', 'false', ...more, 'program.ts'];
      const { stdout } = await run(process.execPath, command, { cwd: installed.folder }).catch((failed) => failed);
      return stdout;
    };
    const [full, plain] = await Promise.all([
      check('--lib', 'ES2023,ESNext.Disposable,DOM', '--exactOptionalPropertyTypes'),
      // A program of Node has no DOM library, and so no namespace WebAssembly.
      check('--lib', 'ES2023'),
    ]);
    expect([full, plain]).toEqual(['', '']);
  }, 120_000);

  test.each(['mts', 'cts'])('the programs of docs/net.md compile with its types, as .%s', async (extension) => {
    const programs = programsOf('docs/net.md', 'ts').map(({ program }) => program);
    const assignable = `import * as node from 'node:net';
      import { connect, Socket } from 'wasm-roce/net';
      const use = (socket: node.Socket) => socket;
      use(connect(7471));
      use(new Socket());`;
    const files = [...programs, assignable].map((code, i) => {
      // a CommonJS module has no `await` outside of functions
      const [imports, body] = [/^ *import.*$/gm, /^(?! *import).*$/gm].map((lines) => code.match(lines)?.join('\n'));
      const path = `program${i}.${extension}`;
      writeFileSync(join(installed.folder, path), `${imports}\nasync function main() {\n${body}\n}\nvoid main();\n`);
      return path;
    });
    const options = ['--noEmit', '--strict', '--module', 'NodeNext', '--target', 'ES2022', '--types', 'node'];
    const tsc = join(ROOT, 'node_modules/typescript/bin/tsc');
    const command = [tsc, ...options, '--skipLibCheck', ...files];
    const { stdout } = await run(process.execPath, command, { cwd: installed.folder }).catch((failed) => failed);
    expect(programs.length).toBeGreaterThan(2);
    expect(stdout).toBe('');
  });

  test('its subpaths have types for resolution as of node10', async () => {
    const names = Object.keys(manifest.exports).filter((path) => path !== '.');
    const program = names.map((path, i) => `export * as n${i} from 'wasm-roce/${path.slice(2)}';`).join('\n');
    writeFileSync(join(installed.folder, 'program10.ts'), program);
    const options = ['--noEmit', '--module', 'ES2022', '--moduleResolution', 'node10'];
    const tsc = join(ROOT, 'node_modules/typescript/bin/tsc');
    const command = [tsc, ...options, '--target', 'ES2022', '--types', 'node', '--skipLibCheck', 'program10.ts'];
    const { stdout } = await run(process.execPath, command, { cwd: installed.folder }).catch((failed) => failed);
    expect(stdout).toBe('');
  });

  test('hides in its types what is internal', () => {
    const types = installed.files
      .filter((path) => path.endsWith('.d.ts'))
      .map((path) => readFileSync(join(installed.package, path), 'utf8'));
    expect(types.filter((text) => /@internal/.test(text))).toEqual([]);
  });

  test.each(Object.entries<string>(manifest.bin))('its command %s says how it is used', async (name, path) => {
    const file = join(installed.package, path);
    expect(readFileSync(file, 'utf8')).toMatch(/^#!\/usr\/bin\/env node\n/);
    const { stdout } = await run(process.execPath, [file, '--help'], { cwd: installed.folder });
    expect(stdout).toContain(name);
  });

  const addon = () => join(installed.package, `prebuilds/linux-${process.arch}/wasm_roce.node`);
  const packed = existsSync(join(ROOT, `prebuilds/linux-${process.arch}/wasm_roce.node`));
  testIf(
    all({ ok: packed, reason: 'the addon is not built' }, programPrivilege('g++'), programPrivilege('cmake')),
    'without its addon it says so in one sentence, with a command that builds it',
    async () => {
      rmSync(dirname(addon()), { recursive: true });
      const program = `import { openDevice } from 'wasm-roce';
        await openDevice({ link: 'udp', addresses: ['127.0.0.1'] }).then((device) => device.close({ force: true }),
          ({ message }) => console.log(message));`;
      const open = () => run(process.execPath, ['--input-type=module', '-e', program], { cwd: installed.folder });
      const { stdout } = await open();
      const [, command] =
        stdout.match(/^EOPNOTSUPP: the native addon for linux-\w+ is missing: build it with `(.*?)`,.*\n$/) ?? [];
      expect(command).toBe(`node ${join(realpathSync(installed.package), 'native/build.mjs')}`);
      // without optimization, which takes most of the time: the last option counts
      const compiler = join(installed.folder, 'compiler');
      writeFileSync(compiler, '#!/bin/sh\nexec g++ "$@" -O0\n', { mode: 0o755 });
      const env = { ...process.env, CXX: compiler };
      await run('sh', ['-c', String(command)], { cwd: installed.folder, env });
      expect(existsSync(addon())).toBe(true);
      expect(readdirSync(dirname(addon()))).toEqual(['wasm_roce.node']);
      expect((await open()).stdout).not.toContain('native addon');
    },
    180_000,
  );
});

const complete = ['x64', 'arm64'].every((arch) => existsSync(join(ROOT, `prebuilds/linux-${arch}/wasm_roce.node`)));
describeIf({ ok: built && complete, reason: 'not all parts are built: npm run build' }, 'npm pack', () => {
  let copy = '';

  beforeAll(() => {
    copy = mkdtempSync(join(tmpdir(), 'wasm-roce-prepack-'));
    const inputs = [
      'scripts',
      'native',
      'assembly',
      'src',
      'web',
      'asconfig.json',
      'CMakeLists.txt',
      'tsconfig.json',
      'tsconfig.build.json',
    ];
    const outputs = [
      'build/stamps',
      'build/native',
      'build/card.wasm',
      'build/card.js',
      'build/card.d.ts',
      'build/codes.js',
      'build/codes.d.ts',
      'build/scriptgrammar.js',
      'build/scriptgrammar.d.ts',
      'dist',
      'man',
    ];
    for (const path of [...inputs, ...outputs, 'prebuilds', 'package.json', 'package-lock.json'])
      cpSync(join(ROOT, path), join(copy, path), { recursive: true });
    symlinkSync(join(ROOT, 'node_modules'), join(copy, 'node_modules'));
  });
  afterAll(() => rmSync(copy, { recursive: true, force: true }));

  /** Runs the script that npm runs before it packs, without a compiler. @returns its standard error */
  async function refusals(): Promise<string[]> {
    const command = [join(copy, 'scripts/prepack.mjs')];
    const { stderr } = await run(process.execPath, command, { env: { PATH: copy } }).catch((failed) => failed);
    return stderr.match(/(?<=^prepack: ).*$/gm) ?? [];
  }
  const refused = (arch: string) => `native addon for ${arch}: missing or not up to date, so nothing is packed`;

  test('packs what is complete and up to date', async () => {
    expect(await refusals()).toEqual([]);
  });

  test('refuses when the addon of another processor is missing', async () => {
    renameSync(join(copy, 'prebuilds/linux-arm64'), join(copy, 'away'));
    expect(await refusals()).toEqual([refused('arm64')]);
    renameSync(join(copy, 'away'), join(copy, 'prebuilds/linux-arm64'));
  });

  test('refuses when the addons are older than their source', async () => {
    appendFileSync(join(copy, 'native/core/udpsockets.cc'), '// changed\n');
    expect((await refusals()).sort()).toEqual([refused('arm64'), refused('x64')]);
  });
});
