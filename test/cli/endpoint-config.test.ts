// What `wasm-roce endpoint` says to configurations: everything that is wrong, by key, value and rule.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { type Config, ConfigError, checked, readConfig } from '../../src/cli/endpoint/config.js';
import { run } from './run.js';

const folder = mkdtempSync(join(tmpdir(), 'wasm-roce-'));
afterAll(() => rmSync(folder, { recursive: true }));

const NOTHING = { regions: {}, services: [] };
const ECHO = { services: [{ type: 'echo' }] };
const ALL = ['remoteRead', 'remoteWrite', 'remoteAtomic'];

function file(text: string): string {
  const path = join(folder, 'endpoint.yaml');
  writeFileSync(path, text);
  return path;
}

async function problems(reading: Promise<Config> | (() => Config)): Promise<readonly string[]> {
  try {
    await (typeof reading === 'function' ? reading() : reading);
    return [];
  } catch (error) {
    if (error instanceof ConfigError) return error.problems;
    throw error;
  }
}

const region = (config: object) => ({ ...ECHO, regions: { a: config } });
const service = (...services: unknown[]) => ({ services });

test.each<[unknown, string]>([
  [[], 'it is [], must be a map of interface, addresses, link, mode, spin, memory, regions, services, metrics'],
  [{}, 'services is missing, must be a list of services'],
  [{ services: [] }, 'services is [], must have one service at least'],
  [{ ...ECHO, interfce: 'eth0' }, 'interfce is "eth0", which is no key here; there are interface, addresses, link'],
  [{ ...ECHO, link: 'smoke' }, 'link is "smoke", must be one of packet, udp, xdp'],
  [{ ...ECHO, mode: 1 }, 'mode is 1, must be one of inline, worker'],
  [{ ...ECHO, spin: -1 }, 'spin is -1, must be a number from 0 to 1000000000'],
  [{ ...ECHO, addresses: ['127.0.0.1', 'here'] }, 'addresses[1] is "here", must be an IPv4 or IPv6 address'],
  [{ ...ECHO, memory: '1k' }, 'memory is "1k", must be a number of bytes from 8388608 to 4294967296'],
  [{ ...ECHO, metrics: {} }, 'metrics.port is missing, must be an integer from 1 to 65535'],
  [region({ size: '4x', access: ALL }), 'regions.a.size is "4x", must be a number of bytes from 1 to 4294967295'],
  [region({ size: 4 }), 'regions.a.access is missing, must be a list of remoteRead, remoteWrite, remoteAtomic'],
  [region({ size: 4, access: [] }), 'regions.a.access is [], must be a list of one or more of remoteRead'],
  [region({ size: 4, access: ['all'] }), 'regions.a.access[0] is "all", must be one of remoteRead, remoteWrite'],
  [
    region({ access: ALL }),
    'regions.a is {"access":["remoteRead","remoteWrite","remoteAtomic"]}, must have a size or a file',
  ],
  [region({ size: 4, persist: true, access: ['remoteRead'] }), ', must have a file to persist in'],
  [
    { ...ECHO, regions: { 'a b': { size: 4, access: ALL } } },
    'regions["a b"] must have a name of 1 to 64 of A-Z a-z 0-9 _ - .',
  ],
  [service('echo'), 'services[0] is "echo", must be a map with a type'],
  [service({ type: 'dance' }), 'services[0].type is "dance", must be one of echo, regions, rping, send-bw, '],
  [service({ type: 'echo', port: 70000 }), 'services[0].port is 70000, must be an integer from 1 to 65535'],
  [
    service({ type: 'echo', size: 4 }),
    'services[0].size is 4, which is no key here; there are type, port, messageBytes',
  ],
  [service({ type: 'send-bw', iters: 0 }), 'services[0].iters is 0, must be an integer from 2 to 100000000'],
  [
    service({ type: 'echo' }, { type: 'regions', port: '7471' }),
    'services: regions wants RDMA port 7471, which echo has already',
  ],
])('%j', async (raw, problem) => {
  const found = await problems(() => checked('test', raw));
  expect(found).toEqual([expect.stringContaining(problem)]);
});

test('services by rdma_cm and by TCP have ports of their own; what is not said is as usual', () => {
  const { services, regions } = checked('test', {
    ...service({ type: 'echo', port: 18515 }, { type: 'write-bw' }, { type: 'regions', port: '0x1d30' }),
    regions: { a: { size: '64k', access: ['remoteRead'] } },
  });
  expect(services).toEqual([
    { type: 'echo', port: 18515, messageBytes: 16384 },
    { type: 'write-bw', port: 18515, qps: 1 },
    { type: 'regions', port: 7472 },
  ]);
  expect(regions).toEqual({ a: { size: 65536, persist: false, access: ['remoteRead'] } });
});

describe('a file', () => {
  test('is YAML or JSON', async () => {
    const expected = checked('test', { link: 'udp', ...ECHO });
    expect(await readConfig(file('link: udp # a remark\nservices:\n  - type: echo\n'), NOTHING)).toEqual(expected);
    expect(await readConfig(file('{"link": "udp", "services": [{"type": "echo"}]}'), NOTHING)).toEqual(expected);
  });

  test('that is neither: where', async () => {
    expect(await problems(readConfig(file('link: udp\nlink: xdp\nservices: [\n'), NOTHING))).toEqual([
      'Map keys must be unique at line 2, column 1',
      expect.stringMatching(/Flow sequence .* at line 4, column 1/),
    ]);
  });

  test('and options: keys take the place of its keys, regions and services come to its own', async () => {
    const path = file(
      'link: xdp\nmode: worker\nservices: [{ type: echo }]\nregions: { a: { size: 1, access: [remoteRead] } }',
    );
    const given = { link: 'udp', services: [{ type: 'regions' }], regions: { b: { size: 2, access: ['remoteRead'] } } };
    const { link, mode, services, regions } = await readConfig(path, given);
    expect([link, mode, services.map(({ type }) => type), Object.keys(regions)]).toEqual([
      ...['udp', 'worker', ['echo', 'regions']],
      ['a', 'b'],
    ]);
  });

  test('the example that is packed is right', async () => {
    const example = join(import.meta.dirname, '../../packaging/endpoint.yaml');
    expect(await problems(readConfig(example, NOTHING))).toEqual([]);
    expect(readFileSync(example, 'utf8')).toContain('wasm-roce endpoint');
  });
});

describe('the command', () => {
  test('--check: all errors, one a line, and status 2', async () => {
    const path = file('link: smoke\nservices: [{ type: echo, port: 0 }]\n');
    const { status, stdout, stderr } = await run(['endpoint', path, '--check']);
    expect({ status, stdout }).toEqual({ status: 2, stdout: '' });
    expect(stderr.split('\n')).toEqual([
      `${path}: link is "smoke", must be one of packet, udp, xdp`,
      `${path}: services[0].port is 0, must be an integer from 1 to 65535`,
      `wasm-roce: ${path}: 2 errors`,
      '',
    ]);
  });

  test('options that are wrong: which and why', async () => {
    const rows: [string[], number, RegExp][] = [
      [['--serve', 'echo', '--link', 'memory'], 2, /--link memory is for both ends in one process/],
      [['--region', 'a=4k'], 2, /nothing to serve: name a CONFIG, or --serve/],
      [['--region', 'a'], 2, /'a' is invalid. It must be NAME=BYTES/],
      [['/none.yaml'], 3, /ENOENT.*\/none\.yaml/],
    ];
    const ends = await Promise.all(rows.map(([args]) => run(['endpoint', ...args])));
    expect(ends.map(({ status }) => status)).toEqual(rows.map(([, status]) => status));
    for (const [i, { stderr }] of ends.entries()) expect(stderr).toMatch(rows[i]?.[2] as RegExp);
  });
});
