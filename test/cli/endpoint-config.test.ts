// `wasm-roce endpoint` checks configurations: it reports all problems, by key, value and rule.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import * as z from 'zod';
import { ConfigError, checkConfig, readConfig } from '../../src/cli/endpoint/config.js';
import type { Config } from '../../src/cli/endpoint/schema.js';
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
  [{ ...ECHO, interfce: 'eth0' }, 'interfce is "eth0", which is not a key; keys are interface, addresses, link'],
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
  [
    service({ type: 'dance' }),
    'services[0].type is "dance", must be one of echo, regions, traffic, rping, valkey, nvme, send-bw, ',
  ],
  [service({ type: 'echo', port: 70000 }), 'services[0].port is 70000, must be an integer from 1 to 65535'],
  [service({ type: 'echo', size: 4 }), 'services[0].size is 4, which is not a key; keys are type, port, messageBytes'],
  [service({ type: 'send-bw', iters: 0 }), 'services[0].iters is 0, must be an integer from 2 to 100000000'],
  [
    service({ type: 'echo' }, { type: 'regions', port: '0x1d2f' }),
    'services: regions uses rdma_cm port 7471, which echo uses already',
  ],
  [
    { ...service({ type: 'send-bw', port: 9401 }), metrics: { port: 9401 } },
    'services: metrics uses TCP port 9401, which send-bw uses already',
  ],
  [
    { ...region({ size: '1g', access: ALL }), memory: '64m' },
    'regions take 1073741824 bytes and the card 6291456, more than the 67108864 bytes of memory',
  ],
  [
    { ...ECHO, regions: { a: { size: '2g', access: ALL }, b: { size: '2g', access: ALL } } },
    'regions take 4294967296 bytes and the card 6291456, more than the 4294967296 bytes of the largest card',
  ],
])('%j', async (raw, problem) => {
  const found = await problems(() => checkConfig('test', raw));
  expect(found).toEqual([expect.stringContaining(problem)]);
});

test('services by rdma_cm and by TCP have separate ports, and options have defaults', () => {
  const { services, regions } = checkConfig('test', {
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

test('metrics and a service may have the same port on different addresses', () => {
  const both = { ...service({ type: 'send-bw', port: 9401 }), metrics: { port: 9401 } };
  expect(checkConfig('test', { ...both, addresses: ['127.0.0.2'] }).metrics).toEqual({ host: '127.0.0.1', port: 9401 });
});

const NVME = { type: 'nvme', namespaces: { disk: { file: '/none/disk', size: '1m' } } };

test.each<[object, string]>([
  [{ type: 'nvme' }, 'services[0].namespaces is missing, must be a map of namespaces by name'],
  [{ type: 'nvme', namespaces: {}, nqn: 'disks' }, 'services[0].nqn is "disks", must be an NVMe qualified name'],
  [{ type: 'nvme', namespaces: {}, hosts: 'nqn.a' }, 'services[0].hosts is "nqn.a", must be a list of NQNs'],
  [{ type: 'nvme', namespaces: { a: {} } }, 'services[0].namespaces.a.file is missing, must be the path of a file'],
  [
    { type: 'nvme', namespaces: { a: { file: '/dev/null', blockBytes: 1024 } } },
    'services[0].namespaces.a.blockBytes is 1024, must be 512 or 4096',
  ],
  [NVME, 'services[0].namespaces.disk.file is "/none/disk", whose folder does not exist'],
])('%j', async (config, problem) => {
  const found = await problems(() => checkConfig('test', service(config)));
  expect(found).toEqual([expect.stringContaining(problem)]);
});

describe('a namespace’s file', () => {
  const at = (name: string) => join(folder, name);
  test.each<[{ file: string; size?: number; readOnly?: boolean }, string | undefined]>([
    [{ file: at('new.img'), size: 4096 }, undefined],
    [{ file: at('new.img') }, 'which does not exist'],
    [{ file: at('new.img'), size: 4096, readOnly: true }, 'which does not exist'],
    [{ file: folder }, 'which is a folder'],
    [{ file: at('kib.img'), size: 512 }, 'which has 1024 bytes, the namespace 512'],
    [{ file: at('kib.img'), size: 4096 }, undefined],
    [{ file: at('kib.img'), size: 4096, readOnly: true }, 'which has 1024 bytes, the namespace 4096'],
    [{ file: at('void.img') }, 'which is empty, and the namespace has no size'],
  ])('%j', async (config, problem) => {
    writeFileSync(at('kib.img'), Buffer.alloc(1024));
    writeFileSync(at('void.img'), '');
    const found = await problems(() => checkConfig('test', service({ type: 'nvme', namespaces: { a: config } })));
    const where = `services[0].namespaces.a.file is ${JSON.stringify(config.file)}`;
    expect(found).toEqual(problem === undefined ? [] : [`${where}, ${problem}`]);
  });
});

describe('a region’s file', () => {
  const access = ALL;
  const at = (name: string) => join(folder, name);
  const [full, empty] = [at('full.bin'), at('empty.bin')];
  beforeAll(() => {
    writeFileSync(full, 'seven..');
    writeFileSync(empty, '');
  });

  test.each<[{ file: string; size?: number; persist?: boolean }, string]>([
    [{ file: at('none.bin'), size: 4 }, 'which does not exist'],
    [{ file: at('none.bin'), persist: true }, 'which does not exist, and the region has no size'],
    [{ file: at('none/table.bin'), size: 4, persist: true }, 'whose folder does not exist'],
    [{ file: `${full}/table.bin`, size: 4, persist: true }, 'whose folder cannot be written to (EACCES)'],
    [{ file: `${full}/table.bin`, size: 4 }, 'which cannot be read (ENOTDIR)'],
    [{ file: folder }, 'which is a folder'],
    [{ file: empty }, 'which is empty, and the region has no size'],
    [{ file: full, size: 4 }, 'which has 7 bytes, the region 4'],
  ])('%j', async (config, problem) => {
    const found = await problems(() => checkConfig('test', region({ ...config, access })));
    expect(found).toEqual([`regions.a.file is ${JSON.stringify(config.file)}, ${problem}`]);
  });

  test('may be missing where it is made; its length is the size of a region without one', () => {
    const regions = {
      a: { file: at('none.bin'), size: 4, persist: true, access },
      b: { file: full, access },
      c: { file: empty, size: 4, access },
    };
    expect(Object.keys(checkConfig('test', { ...ECHO, regions }).regions)).toEqual(['a', 'b', 'c']);
  });
});

describe('a configuration file', () => {
  test('may be YAML or JSON', async () => {
    const expected = checkConfig('test', { link: 'udp', ...ECHO });
    expect(await readConfig(file('link: udp # a remark\nservices:\n  - type: echo\n'), NOTHING)).toEqual(expected);
    expect(await readConfig(file('{"link": "udp", "services": [{"type": "echo"}]}'), NOTHING)).toEqual(expected);
  });

  test('of another form is refused with the position of the fault', async () => {
    expect(await problems(readConfig(file('link: udp\nlink: xdp\nservices: [\n'), NOTHING))).toEqual([
      'Map keys must be unique at line 2, column 1',
      expect.stringMatching(/Flow sequence .* at line 4, column 1/),
    ]);
  });

  test('is completed by options: keys replace its keys, regions and services are added', async () => {
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

  test('of the package is valid', async () => {
    const example = readFileSync(join(import.meta.dirname, '../../packaging/endpoint.yaml'), 'utf8');
    // systemd creates the folder
    const path = file(example.replace('/var/lib/wasm-roce', folder));
    expect(await problems(readConfig(path, NOTHING))).toEqual([]);
    expect(example).toContain('wasm-roce endpoint');
  });
});

describe('the command', () => {
  test('--check prints all errors, one a line, and ends with status 2', async () => {
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

  test('reports what this machine lacks with all other errors, and ends with status 3 when it is alone', async () => {
    const regions = 'regions: { a: { file: /none/a.bin, size: 4, persist: true, access: [remoteRead] } }';
    const lacking = 'regions.a.file is "/none/a.bin", whose folder does not exist';
    const path = file(`${regions}\nservices: [{ type: echo }]\n`);
    for (const check of [['--check'], []]) {
      const { status, stdout, stderr } = await run(['endpoint', path, ...check]);
      expect({ status, stdout, stderr }).toEqual({
        ...{ status: 3, stdout: '' },
        stderr: `wasm-roce: ${path}: ${lacking}\n`,
      });
    }
    expect(await problems(readConfig(file(`${regions}\nlink: smoke\n`), NOTHING))).toEqual([
      expect.stringContaining('link is "smoke"'),
      'services is missing, must be a list of services',
      lacking,
    ]);
  });

  test('names wrong options, with the reason', async () => {
    const rows: [string[], number, RegExp][] = [
      [['--serve', 'echo', '--link', 'memory'], 2, /--link memory is for both ends in one process/],
      [['--region', 'a=4k'], 2, /nothing to serve: name a CONFIG, or --serve/],
      [['--region', 'a'], 2, /'a' is invalid. It must be NAME=BYTES/],
      [['--region', 'a=4q'], 2, /'a=4q' is invalid. It must be a number of bytes from 1 to 4294967295/],
      [['/none.yaml'], 3, /ENOENT.*\/none\.yaml/],
    ];
    const ends = await Promise.all(rows.map(([args]) => run(['endpoint', ...args])));
    expect(ends.map(({ status }) => status)).toEqual(rows.map(([, status]) => status));
    for (const [i, { stderr }] of ends.entries()) expect(stderr).toMatch(rows[i]?.[2] as RegExp);
  });
});

describe('the JSON Schema', () => {
  const SCHEMA = join(import.meta.dirname, '../../packaging/endpoint.schema.json');

  test('is printed by --schema as packaging/endpoint.schema.json has it', async () => {
    const { status, stdout, stderr } = await run(['endpoint', '--schema']);
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    // after a change: wasm-roce endpoint --schema > packaging/endpoint.schema.json
    expect(stdout).toBe(readFileSync(SCHEMA, 'utf8'));
  });

  test('permits the packaged configuration and numbers as text, and refuses what the endpoint refuses', () => {
    const schema = z.fromJSONSchema(JSON.parse(readFileSync(SCHEMA, 'utf8')));
    const packaged = readFileSync(join(SCHEMA, '../endpoint.yaml'), 'utf8');
    expect(packaged).toMatch(/^# yaml-language-server: \$schema=endpoint\.schema\.json\n/);
    expect(schema.safeParse(parse(packaged)).error).toBeUndefined();
    expect(schema.safeParse({ ...region({ size: '0x10', access: ALL }) }).success).toBe(false);
    for (const right of [service({ type: 'echo', port: '0x1d2f' }), region({ size: '4k', access: ALL })])
      expect(schema.safeParse(right).error).toBeUndefined();
    for (const wrong of [
      ...[{}, { ...ECHO, interfce: 'eth0' }, { ...ECHO, link: 'smoke' }, region({ size: 4 })],
      ...[service({ type: 'dance' }), service({ type: 'echo', port: 70_000 }), { ...ECHO, spin: -1 }],
    ])
      expect(schema.safeParse(wrong).success, JSON.stringify(wrong)).toBe(false);
  });
});
