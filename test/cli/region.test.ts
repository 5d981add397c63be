// get and put: regions of an endpoint, from a shell.
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Ended, type Running, run, start } from './run.js';

const SERVER = '127.85.0.1';
const folder = mkdtempSync(join(tmpdir(), 'wasm-roce-region-'));
const path = (name: string) => join(folder, name);
let endpoint: Running;

beforeAll(async () => {
  const regions = {
    table: { size: '3m', access: ['remoteRead', 'remoteWrite'] },
    sealed: { size: 8, access: ['remoteWrite'] },
  };
  const services = [{ type: 'regions' }, { type: 'echo' }];
  writeFileSync(path('config.json'), JSON.stringify({ addresses: [SERVER], link: 'udp', regions, services }));
  endpoint = start(['endpoint', path('config.json')]);
  await endpoint.prints((stdout) => stdout.includes(' ready '));
});
afterAll(() => {
  endpoint.child.kill('SIGKILL');
  rmSync(folder, { recursive: true });
});

const END = ['--address', '127.85.0.2', '--link', 'udp'];
const get = (...args: string[]) => run(['get', SERVER, ...args, ...END]);
const put = (...args: string[]) => run(['put', SERVER, ...args, ...END]);

/** Runs put with a text as its input. */
function putText(text: string, ...args: string[]): Promise<Ended> {
  writeFileSync(path('in'), text);
  return run(['put', SERVER, ...args, ...END], { prefix: ['sh', '-c', `exec "$0" "$@" < ${path('in')}`] });
}

test('a file of several chunks is put and got back, byte for byte', async () => {
  const content = Buffer.alloc(3 * 2 ** 20 - 5, 'not twice the same ');
  writeFileSync(path('sent'), content);
  const { status, stdout, stderr } = await put('table', path('sent'), '--json');
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
  const about = { ok: true, region: 'table', offset: 0, link: 'udp' };
  expect(JSON.parse(stdout)).toMatchObject({ ...about, command: 'put', bytes: content.length });
  const got = await get('table', '-o', path('got'), '--json');
  expect(JSON.parse(got.stdout)).toMatchObject({ ...about, command: 'get', bytes: 3 * 2 ** 20 });
  expect(readFileSync(path('got')).subarray(0, content.length).equals(content)).toBe(true);
});

test('a part is put from standard input and got to standard output', async () => {
  expect(await putText('hello', 'table@1m:5')).toEqual({ status: 0, stdout: '', stderr: '' });
  expect(await get('table@1048577:3')).toEqual({ status: 0, stdout: 'ell', stderr: '' });
  // what is shorter leaves the rest as it was
  expect((await putText('J', 'table@1m')).status).toBe(0);
  expect((await get('table@1m:5')).stdout).toBe('Jello');
});

describe('an impossible command gives one line that names the value and the rule', () => {
  test.each<[() => Promise<Ended>, RegExp]>([
    [() => get('nope'), /the endpoint has no region 'nope'; regions: table, sealed$/],
    [() => get('sealed'), /region sealed does not permit remoteRead; it permits remoteWrite$/],
    [() => get('table@3m'), /table@3145728 is outside the region, which has 3145728 bytes$/],
    [() => get('table@3145727:2'), /table@3145727:2 is outside the region, which has 3145728 bytes$/],
    [() => putText('123456789', 'sealed'), /standard input has more than the 8 bytes that fit$/],
    [() => putText('123', 'sealed@0:5'), /standard input has 3 bytes, not the 5 of sealed@0:5$/],
    [() => get('table', '-p', '7471', '-w', '0.5'), /ETIMEDOUT/],
    [() => get('table', '-p', '7470'), /ECONNREFUSED/],
  ])('%s', async (command, message) => {
    const { status, stdout, stderr } = await command();
    expect({ status, stdout }).toEqual({ status: 1, stdout: '' });
    expect(stderr.trimEnd()).toMatch(message);
    expect(stderr).toMatch(/^wasm-roce: .*\n$/);
  });

  test('a refused get leaves an old file unchanged, and makes no new one', async () => {
    writeFileSync(path('old'), 'old');
    await get('nope', '-o', path('old'));
    await get('nope', '-o', path('new'));
    expect(readFileSync(path('old'), 'utf8')).toBe('old');
    expect(existsSync(path('new'))).toBe(false);
  });

  test.each([
    [['get', 'host', 'table@'], /'table@' is invalid.* It must be REGION, REGION@OFFSET or REGION@OFFSET:LENGTH/],
    [['get', 'host', 'table@4x'], /'table@4x' is invalid.* It must be a number of bytes from 0/],
    [['get', 'host', 'table', '--json'], /--json needs -o FILE/],
    [['put', 'host', 'table', '--link', 'memory'], /--link memory is for both ends in one process/],
  ])('wrong usage: %j', async (args, message) => {
    const { status, stderr } = await run(args);
    expect(status).toBe(2);
    expect(stderr).toMatch(message);
  });
});
