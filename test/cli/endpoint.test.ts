// `wasm-roce endpoint`, as a process of its own, and a device of ours that comes to it over loopback.
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Offer } from '../../src/cli/endpoint/regions.js';
import { type Connection, createCmId, type Device, openDevice } from '../../src/index.js';
import { freePort, type Running, type RunOptions, start } from './run.js';

const SERVER = '127.83.0.1';
const CLIENT = '127.83.0.2';
const BASE = { link: 'udp', addresses: [SERVER] };
const ALL = ['remoteRead', 'remoteWrite', 'remoteAtomic'] as const;

interface Line {
  readonly time: string;
  readonly level: string;
  readonly event: string;
  readonly [field: string]: unknown;
}

const folder = mkdtempSync(join(tmpdir(), 'wasm-roce-'));
let device: Device;
beforeAll(async () => {
  device = await openDevice({ link: 'udp', addresses: [CLIENT] });
});
afterAll(async () => {
  await device.close({ force: true });
  rmSync(folder, { recursive: true });
});

/** An endpoint whose log is read line by line. */
class Serving {
  readonly running: Running;
  readonly #path = join(folder, `${Math.random()}.json`);
  #text = '';

  constructor(config: object, options?: RunOptions) {
    this.configure(config);
    this.running = start(['endpoint', this.#path, '--log', 'json'], options);
  }

  configure(config: object): void {
    writeFileSync(this.#path, JSON.stringify({ ...BASE, ...config }));
  }

  get lines(): Line[] {
    return this.#text
      .split('\n')
      .slice(0, -1)
      .map((line) => JSON.parse(line));
  }

  /** The last line of such an event with such fields, once there is one that is newer than what was seen before. */
  async until(event: string, fields: object = {}, after = 0): Promise<Line> {
    const find = () => this.lines.slice(after).find((line) => line.event === event && matches(line, fields));
    await this.running.prints((stdout) => {
      this.#text = stdout;
      return find() !== undefined;
    });
    return find() as Line;
  }

  /** Sends a signal and waits for what it does. */
  async signal(name: NodeJS.Signals, event: string, fields?: object): Promise<Line> {
    const after = this.lines.length;
    this.running.child.kill(name);
    return this.until(event, fields, after);
  }

  async end(): Promise<{ status: number | null; stderr: string; last: string | undefined }> {
    this.running.child.kill('SIGTERM');
    const { status, stdout, stderr } = await this.running.ended;
    this.#text = stdout;
    return { status, stderr, last: this.lines.at(-1)?.event };
  }
}

const matches = (line: Line, fields: object) => Object.entries(fields).every(([name, value]) => line[name] === value);

const connect = (port: number) => device.connect({ host: SERVER, port, timeout: 20_000 });

async function offers(connection: Connection): Promise<Offer[]> {
  return JSON.parse(String((await connection.receive({ timeout: 20_000 }))?.data));
}

async function echoes(connection: Connection, text: string): Promise<void> {
  await connection.send(Buffer.from(text), { imm: text.length });
  const message = await connection.receive({ timeout: 20_000 });
  expect([String(message?.data), message?.imm]).toEqual([text, text.length]);
}

describe('an endpoint', () => {
  const file = join(folder, 'table.bin');
  const fresh = join(folder, 'fresh.bin');
  const REGIONS = {
    scratch: { size: '64k', access: ALL },
    readable: { size: 4096, access: ['remoteRead'] },
    table: { file, persist: true, access: ['remoteRead', 'remoteWrite'] },
    fresh: { file: fresh, size: 16, persist: true, access: ['remoteWrite'] },
  };
  const SERVICES = [{ type: 'echo' }, { type: 'echo', port: 7473, messageBytes: 64 }, { type: 'regions' }];
  let serving: Serving;
  let metrics: number;

  beforeAll(async () => {
    writeFileSync(file, 'what the file holds');
    metrics = await freePort();
    serving = new Serving({ regions: REGIONS, services: SERVICES, metrics: { port: metrics } });
    await serving.until('ready');
  });
  afterAll(() => serving.running.child.kill('SIGKILL'));

  test('tells what it is: addresses, link, regions, services', () => {
    const about = (event: string) => serving.lines.filter((line) => line.event === event);
    expect(about('open')).toMatchObject([
      { interface: 'lo', link: 'udp', mode: 'inline', addresses: [SERVER], mtu: 4096 },
    ]);
    expect(about('region').map(({ region, bytes }) => [region, bytes])).toEqual([
      ...[
        ['scratch', 65_536],
        ['readable', 4096],
      ],
      ...[
        ['table', 19],
        ['fresh', 16],
      ],
    ]);
    expect(about('serving').map(({ service, port, url }) => [service, port ?? url])).toEqual([
      ...[
        ['echo', 7471],
        ['echo', 7473],
        ['regions', 7472],
      ],
      ['metrics', `http://127.0.0.1:${metrics}/metrics`],
    ]);
  });

  test('echo: messages come back as they went; the log tells who came and what went', async () => {
    const connection = await connect(7471);
    const qpn = `0x${connection.qp.query().destQpNum.toString(16).padStart(6, '0')}`;
    for (const text of ['one', '', 'x'.repeat(16_384)]) await echoes(connection, text);
    await connection.close();
    const about = { service: 'echo', port: 7471, peer: CLIENT, qpn };
    expect(await serving.until('connected', { qpn })).toMatchObject(about);
    const { receives, sends, bytesReceived } = await serving.until('disconnected', { qpn, level: 'info' });
    expect([receives, sends]).toEqual([3, 3]);
    expect(bytesReceived).toBeGreaterThan(16_384);
  });

  test('a message that is too long ends the connection, and the log tells why', async () => {
    const connection = await connect(7473);
    await echoes(connection, 'x'.repeat(64));
    await expect(connection.send(Buffer.alloc(65))).rejects.toThrow();
    expect(await serving.until('disconnected', { port: 7473 })).toMatchObject({ level: 'error', code: 'LOC_LEN_ERR' });
  });

  test('regions: who connects is told of them, and reads, writes and counts within its rights', async () => {
    const connection = await connect(7472);
    const list = await offers(connection);
    expect(list.map(({ name, length, access }) => [name, length, access])).toEqual([
      ['scratch', 65_536, ALL],
      ['readable', 4096, ['remoteRead']],
      ['table', 19, ['remoteRead', 'remoteWrite']],
      ['fresh', 16, ['remoteWrite']],
    ]);
    const [scratch, readable, table] = list as [Offer, Offer, Offer];
    await connection.write(scratch, Buffer.from('written'), { offset: 60_000 });
    expect(`${await connection.read(scratch, { offset: 60_000, length: 7 })}`).toBe('written');
    expect([await connection.fetchAdd(scratch, 5n), await connection.compareSwap(scratch, 5n, 7n)]).toEqual([0n, 5n]);
    expect(`${await connection.read(table)}`).toBe('what the file holds');
    // any message asks for the list
    await connection.send(Buffer.from('?'));
    expect(await offers(connection)).toEqual(list);
    await expect(connection.write(readable, Buffer.from('no'))).rejects.toMatchObject({ status: 'REM_ACCESS_ERR' });
    const told = await serving.until('disconnected', { service: 'regions' });
    expect(told).toMatchObject({ level: 'error', code: 'EIO', writes: 1, reads: 2, atomics: 2 });
    expect(told.error).toContain('QP_ACCESS_ERR');
  });

  test('regions are reached by those alone who were told of them', async () => {
    const told = await connect(7472);
    const [scratch] = (await offers(told)) as [Offer];
    const stranger = await connect(7471);
    await expect(stranger.read(scratch, { length: 8 })).rejects.toMatchObject({ status: 'REM_ACCESS_ERR' });
    await told.close();
  });

  test('metrics: what `wasm-roce stat --prometheus` prints', async () => {
    const text = await (await fetch(`http://127.0.0.1:${metrics}/metrics`)).text();
    expect(text).toMatch(/^wasm_roce_port_up\{.*link="udp"\} 1$/m);
    expect((await fetch(`http://127.0.0.1:${metrics}/`)).status).toBe(404);
  });

  test('SIGUSR2 writes regions that persist', async () => {
    await using connection = await connect(7472);
    const [, , table, empty] = (await offers(connection)) as [Offer, Offer, Offer, Offer];
    await connection.write(table, Buffer.from('WHAT'));
    await connection.write(empty, Buffer.from('new'));
    await serving.signal('SIGUSR2', 'saved', { region: 'fresh' });
    await serving.until('saved', { region: 'table' });
    expect(readFileSync(file, 'utf8')).toBe('WHAT the file holds');
    expect(readFileSync(fresh)).toEqual(Buffer.concat([Buffer.from('new'), Buffer.alloc(13)]));
  });

  test('SIGHUP: what is the same goes on, what is new is opened, what is gone is closed', async () => {
    const [stays, goes, asks] = [await connect(7471), await connect(7473), await connect(7472)];
    const before = await offers(asks);
    const { readable: _gone, ...rest } = REGIONS;
    serving.configure({
      regions: { ...rest, table: { ...REGIONS.table, access: ['remoteRead'] }, added: { size: 8, access: ALL } },
      services: [SERVICES[0], SERVICES[2], { type: 'echo', port: 7474 }],
    });
    await serving.signal('SIGHUP', 'reloaded');
    const closed = serving.lines
      .filter(({ event }) => event === 'closed')
      .map(({ service, region }) => service ?? region);
    expect(closed.sort()).toEqual(['echo', 'metrics', 'readable', 'table']);
    await echoes(stays, 'still here');
    expect(await goes.receive({ timeout: 20_000 })).toBeUndefined();
    await asks.send(Buffer.from('?'));
    const after = await offers(asks);
    expect(after.map(({ name }) => name)).toEqual(['scratch', 'table', 'fresh', 'added']);
    expect(after[0]).toEqual(before[0]);
    expect(`${await asks.read(after[1] as Offer)}`).toBe('WHAT the file holds');
    await using added = await connect(7474);
    await echoes(added, 'new');
    await expect(connect(7473)).rejects.toMatchObject({ code: 'ECONNREFUSED' });
    await expect(fetch(`http://127.0.0.1:${metrics}/metrics`)).rejects.toThrow();
    await Promise.all([stays.close(), asks.close()]);
  });

  test('SIGHUP with what is wrong, or cannot be opened: it is told, and all stays', async () => {
    await using connection = await connect(7474);
    const services = [{ type: 'echo', port: 7474 }];
    const taken = await freePort();
    const other = new Serving({ addresses: ['127.83.0.3'], services: [{ type: 'echo' }], metrics: { port: taken } });
    await other.until('ready');
    const missing = join(folder, 'missing.bin');
    for (const [config, error] of [
      [{ services, link: 'smoke' }, /link is "smoke", must be one of/],
      [{ services, mode: 'worker' }, /^mode cannot change while the endpoint runs/],
      [{ services, regions: { a: { file: missing, access: ALL } } }, /missing\.bin", which is not there/],
      [{ services, metrics: { port: taken } }, /EADDRINUSE/],
    ] as const) {
      serving.configure(config);
      expect((await serving.signal('SIGHUP', 'reload refused')).error).toMatch(error);
      await echoes(connection, 'as before');
    }
    const [asks, still] = [await connect(7472), await connect(7471)];
    expect((await offers(asks)).map(({ name }) => name)).toEqual(['scratch', 'table', 'fresh', 'added']);
    await echoes(still, 'as before');
    await Promise.all([asks.close(), still.close()]);
    expect(await other.end()).toMatchObject({ status: 0 });
  });

  test('SIGTERM: connections are ended in order, files are written, status 0', async () => {
    const [connection, asks] = [await connect(7471), await connect(7472)];
    const empty = (await offers(asks))[2] as Offer;
    await asks.write(empty, Buffer.from('end'));
    expect(await serving.end()).toEqual({ status: 0, stderr: '', last: 'stopped' });
    expect(await connection.receive({ timeout: 20_000 })).toBeUndefined();
    expect(readFileSync(fresh, 'latin1').slice(0, 3)).toBe('end');
    for (const { time, level, event } of serving.lines) {
      expect(new Date(time).toISOString()).toBe(time);
      expect(level).toMatch(/^(info|warn|error)$/);
      expect(event).toMatch(/^[a-z ]+$/);
    }
  });
});

/** For node: the process sends itself SIGTERM as soon as it logs a line with such a text, in the middle of what it does. */
const stopsItself = (text: string) => [
  '--import',
  `data:text/javascript,
    const { stdout } = process;
    const write = stdout.write.bind(stdout);
    stdout.write = (line, ...more) => {
      if (line.includes('${text}')) process.kill(process.pid, 'SIGTERM');
      return write(line, ...more);
    };`,
];

test('SIGTERM while it starts: it ends in order, files are written', async () => {
  const file = join(folder, 'early.bin');
  const regions = { early: { file, size: 8, persist: true, access: ALL } };
  const config = { addresses: ['127.83.0.4'], regions, services: [{ type: 'regions' }] };
  const serving = new Serving(config, { node: stopsItself('"event":"serving"') });
  try {
    await serving.until('stopped');
    expect((await serving.running.ended).status).toBe(0);
    expect(readFileSync(file)).toEqual(Buffer.alloc(8));
  } finally {
    serving.running.child.kill('SIGKILL');
  }
});

test('options alone, lines for people, systemd is told; a second signal ends it at once', async () => {
  const told = join(folder, 'told');
  // so slow that the reload begins meanwhile
  const slow = 'case $1 in READY*) sleep 0.3;; esac';
  writeFileSync(join(folder, 'systemd-notify'), `#!/bin/sh\n${slow}\necho "$*" >> ${told}\n`);
  chmodSync(join(folder, 'systemd-notify'), 0o755);
  const env = { PATH: `${folder}:${process.env.PATH}`, NOTIFY_SOCKET: '/run/systemd/notify' };
  const options = ['--address', SERVER, '--link', 'udp', '--serve', 'regions:7500', '--region', 'a=4k'];
  const { child, prints, ended } = start(['endpoint', ...options], { env });
  try {
    await prints((text) => / info {2}ready pid=\d+\n/.test(text));
    child.kill('SIGHUP');
    await prints((text) => / info {2}reloaded\n/.test(text));
    // a peer that takes no messages: the endpoint would wait a while until it is told where the regions are
    const id = createCmId(device);
    await id.resolveAddr(SERVER, 7500);
    await id.resolveRoute();
    await id.createQp(await device.allocPd(), { sendCq: await device.createCq() });
    await id.connect();
    await prints((text) => text.includes(' connected service=regions port=7500 peer='));
    const states = () =>
      readFileSync(told, 'latin1')
        .replace(/USEC=\d+/, 'USEC=n')
        .trim()
        .split('\n');
    const inOrder = ['READY=1', 'RELOADING=1 MONOTONIC_USEC=n', 'READY=1'];
    await expect.poll(states, { timeout: 10_000 }).toEqual(inOrder);
    child.kill('SIGTERM');
    await prints((text) => / info {2}stopping signal=SIGTERM\n/.test(text));
    child.kill('SIGINT');
    const { status, stdout, stderr } = await ended;
    expect({ status, stderr }).toEqual({ status: 130, stderr: '' });
    for (const line of stdout.trimEnd().split('\n')) expect(line).toMatch(/^\d{4}-\S+Z (info|warn|error) +[a-z]+( |$)/);
    expect(stdout).toContain(' info  region region=a bytes=4096 access=remoteRead,remoteWrite,remoteAtomic\n');
  } finally {
    child.kill('SIGKILL');
  }
});
