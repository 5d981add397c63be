// The examples as a user runs them: two processes, and their results.
import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, expect, test } from 'vitest';
import { RemoteTable, readSlot, SLOT_BYTES, Table } from '../../examples/keyvalue/table.js';
import { openDevice } from '../../src/index.js';
import { createTarget, fileStorage } from '../../src/nvme.js';
import { eventually } from '../kit/eventually.js';
import { describeIf } from '../kit/privileges.js';

const ROOT = join(import.meta.dirname, '../..');
const built = existsSync(join(ROOT, 'dist/index.js'));
const folder = mkdtempSync(join(tmpdir(), 'wasm-roce-examples-'));
const children: ChildProcess[] = [];
afterAll(() => {
  for (const child of children) child.kill('SIGKILL');
  rmSync(folder, { recursive: true });
});

interface Ended {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

function start(example: string, ...args: string[]) {
  const child = spawn(process.execPath, [join(ROOT, 'examples', example), ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  children.push(child);
  const said = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr'] as const)
    child[name].setEncoding('utf8').on('data', (text) => {
      said[name] += text;
    });
  const ended = new Promise<Ended>((done) => child.once('close', (status) => done({ status, ...said })));
  const says = async (text: string) => {
    while (!said.stderr.includes(text)) {
      if (child.exitCode !== null) throw new Error(`it ended too soon: ${said.stderr}`);
      await sleep(10);
    }
  };
  return { child, ended, says };
}

const run = (example: string, ...args: string[]) => start(example, ...args).ended;
/** The last line of stdout, which is JSON. */
const result = ({ stdout }: Ended) => JSON.parse(stdout.trim().split('\n').at(-1) ?? '');
const at = (address: string) => ['--link', 'udp', '--address', address];

test('a slot that is being changed is torn, and whole before and after', () => {
  const table = new Table(Buffer.alloc(4 * SLOT_BYTES));
  const slot = [0, 1, 2, 3].map((i) => table.slot(i));
  table.put('key', Buffer.from('old value'));
  const found = slot.find((bytes) => readSlot(bytes).state === 'full') as Buffer;
  const old = Buffer.from(found);
  table.put('key', Buffer.from('new value, longer'));
  const torn = Buffer.concat([found.subarray(0, 24), old.subarray(24)]);
  expect([old, torn, found].map((bytes) => readSlot(bytes).state)).toEqual(['full', 'torn', 'full']);
});

test('a GET that meets a change reads again', async () => {
  const table = new Table(Buffer.alloc(SLOT_BYTES));
  table.put('key', Buffer.from('old value'));
  const old = Buffer.from(table.memory);
  table.put('key', Buffer.from('new value, longer'));
  const torn = Buffer.concat([table.memory.subarray(0, 24), old.subarray(24)]);
  const answers = [torn, torn, table.memory];
  const remote = new RemoteTable(async () => answers.shift() as Buffer, 1);
  expect(`${await remote.get('key')}`).toBe('new value, longer');
  expect([remote.reads, remote.torn]).toEqual([3, 2]);
});

test('keys with the same hash are all found, a deleted one hides none, and a full table is reported', () => {
  const table = new Table(Buffer.alloc(4 * SLOT_BYTES));
  for (const key of ['a', 'b', 'c', 'd']) table.put(key, Buffer.from(key));
  expect(() => table.put('e', Buffer.from('e'))).toThrow('the table is full: 4 slots');
  expect([table.delete('b'), table.delete('b')]).toEqual([true, false]);
  for (const key of ['a', 'c', 'd']) table.put(key, Buffer.from(`${key}2`));
  table.put('e', Buffer.from('e'));
  const values = [0, 1, 2, 3].map((i) => `${readSlot(table.slot(i)).value}`).sort();
  expect(values).toEqual(['a2', 'c2', 'd2', 'e']);
});

describeIf({ ok: built, reason: 'dist is not built: npm run build' }, 'two processes', () => {
  test('key-value store: GETs run without the server’s program', async () => {
    const [server, client] = ['127.61.1.1', '127.61.1.2'];
    // hardly more slots than keys, so that keys collide
    const serving = start('keyvalue.js', 'serve', '--slots', '202', ...at(server));
    await serving.says('on port');
    const ask = (...words: string[]) => run('keyvalue.js', server, ...words, ...at(client));
    expect(result(await ask('load', '200'))).toMatchObject({ gets: 200 });
    expect((await ask('put', 'name', 'ada')).status).toBe(0);
    expect((await ask('get', 'name')).stdout).toBe('ada\n');
    expect((await ask('delete', 'name')).stdout).toBe('deleted\n');
    expect(await ask('get', 'name')).toMatchObject({ status: 1, stderr: "there is no 'name'\n" });
    serving.child.kill('SIGINT');
    expect(result(await serving.ended)).toEqual({ messages: { put: 201, delete: 1 } });
  });

  test('file copy: the same bytes arrive under the same name', async () => {
    const [server, client] = ['127.61.2.1', '127.61.2.2'];
    const [source, target] = [join(folder, 'source'), join(folder, 'target')];
    mkdirSync(target);
    writeFileSync(source, randomBytes(3_000_001));
    const receiving = start('filecopy.js', 'receive', target, ...at(server));
    await receiving.says('waiting for files');
    const sent = await run('filecopy.js', 'send', source, server, ...at(client));
    expect(result(sent)).toMatchObject({ size: 3_000_001 });
    expect(readFileSync(join(target, 'source')).equals(readFileSync(source))).toBe(true);
    receiving.child.kill('SIGINT');
    expect((await receiving.ended).status).toBe(0);
  });

  test('backup: a file is restored from a disk, and a disk without one is reported', async () => {
    const [server, client] = ['127.61.5.1', '127.61.5.2'];
    const [source, restored] = [join(folder, 'kept'), join(folder, 'restored')];
    const nqn = 'nqn.2026-01.com.example:disks';
    mkdirSync(restored);
    writeFileSync(source, randomBytes(700_001));
    const device = await openDevice({ link: 'udp', addresses: [server] });
    const storage = await fileStorage(join(folder, 'disk.img'), { size: 2 ** 20 });
    const target = await createTarget({ device, subsystems: [{ nqn, namespaces: [{ storage, blockBytes: 4096 }] }] });
    try {
      const backup = (...words: string[]) => run('backup.js', ...words, server, nqn, ...at(client));
      expect(await backup('restore', restored)).toMatchObject({
        status: 1,
        stderr: 'namespace 1 has no copy of a file\n',
      });
      expect(result(await backup('save', source))).toMatchObject({ name: 'kept', size: 700_001 });
      expect(result(await backup('restore', restored))).toMatchObject({ size: 700_001 });
      expect(readFileSync(join(restored, 'kept')).equals(readFileSync(source))).toBe(true);
      writeFileSync(source, Buffer.alloc(2 ** 20));
      expect((await backup('save', source)).stderr).toContain('the disk has room for 1044480');
    } finally {
      await target.close();
      await device.close();
    }
  });

  test('calls: files are listed and fetched, and a missing one is named', async () => {
    const [server, client] = ['127.61.7.1', '127.61.7.2'];
    const [source, target] = [join(folder, 'served'), join(folder, 'fetched')];
    for (const each of [source, target]) mkdirSync(each);
    const bytes = randomBytes(3_000_001);
    writeFileSync(join(source, 'file'), bytes);
    const serving = start('rpc.js', 'serve', source, ...at(server));
    await serving.says('on port');
    const call = (...words: string[]) => run('rpc.js', ...words, ...at(client));
    expect(result(await call('list', server))).toEqual({ file: bytes.length });
    expect(result(await call('get', server, 'file', target))).toMatchObject({ size: bytes.length });
    expect(readFileSync(join(target, 'file')).equals(bytes)).toBe(true);
    const { status, stderr } = await call('get', server, '../none', target);
    expect({ status, stderr }).toMatchObject({ status: 1, stderr: expect.stringContaining('NOT_FOUND') });
    serving.child.kill('SIGINT');
    expect((await serving.ended).status).toBe(0);
  });

  test('training: the ranks end with the same trained network', async () => {
    const hosts = ['127.61.6.1', '127.61.6.2', '127.61.6.3'] as const;
    const ranks = hosts.map((host, rank) =>
      run('training.js', String(rank), String(hosts.length), hosts[0], ...at(host)),
    );
    const results = (await Promise.all(ranks)).map(result);
    expect(results.map(({ rank }) => rank)).toEqual([0, 1, 2]);
    expect(new Set(results.map(({ sha256 }) => sha256)).size).toBe(1);
    for (const { accuracy } of results) expect(accuracy).toBeGreaterThan(0.9);
  });

  test('counter: two clients at once count exactly', async () => {
    const [server, one, two] = ['127.61.3.1', '127.61.3.2', '127.61.3.3'];
    const serving = start('counter.js', 'serve', ...at(server));
    await serving.says('on port');
    const count = (client: string) => run('counter.js', 'count', server, '--times', '200', ...at(client));
    const ended = await Promise.all([count(one), count(two)]);
    expect(ended.map(({ status }) => status)).toEqual([0, 0]);
    serving.child.kill('SIGINT');
    expect(result(await serving.ended)).toEqual({ counter: 400, lock: 0, sum: 200 * 201, turns: 400 });
  });

  test('file copy: an end that was killed is detected, and no partial file stays', async () => {
    const [server, client] = ['127.61.4.1', '127.61.4.2'];
    const [source, target] = [join(folder, 'large'), join(folder, 'vain')];
    mkdirSync(target);
    writeFileSync(source, '');
    // a sparse file: many bytes that use no disk space
    truncateSync(source, 2 ** 36);
    const receiving = start('filecopy.js', 'receive', target, '--once', ...at(server));
    await receiving.says('waiting for files');
    const sending = start('filecopy.js', 'send', source, server, ...at(client));
    await eventually(() => expect(readdirSync(target)).toEqual(['large.part']));
    sending.child.kill('SIGKILL');
    const { status, stderr } = await receiving.ended;
    expect({ status, stderr }).toMatchObject({ status: 1, stderr: expect.stringMatching(/no packet of the peer/) });
    expect(readdirSync(target)).toEqual([]);
  });

  test.each([
    ['counter.js', ['--times', '50']],
    ['keyvalue.js', []],
    ['filecopy.js', [join(ROOT, 'package.json'), folder]],
    ['backup.js', [join(ROOT, 'package.json'), folder]],
    ['rpc.js', [join(ROOT, 'package.json'), folder]],
    ['training.js', []],
  ])('%s --demo, and --help', async (example, args) => {
    const { status, stderr } = await run(example, '--demo', ...args);
    expect(stderr).toBe('');
    expect(status).toBe(0);
    expect((await run(example, '--help')).stdout).toContain(`usage: ${example}`);
  });

  test('wrong usage gives status 2 and the help', async () => {
    const { status, stderr } = await run('counter.js', 'dance');
    expect({ status, stderr }).toMatchObject({ status: 2, stderr: expect.stringContaining('usage: counter.js') });
  });

  test('a host without a route is named', async () => {
    // an address of the discard prefix (RFC 6666), where there is a default route to it too
    const { status, stderr } = await run('counter.js', 'count', '100::1', '--link', 'udp');
    expect({ status, stderr }).toMatchObject({ status: 1, stderr: expect.stringContaining('100::1') });
  });
});
