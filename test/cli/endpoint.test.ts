// `wasm-roce endpoint` in a process of its own, and a device that connects to it over loopback.
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough, type Readable } from 'node:stream';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { Log } from '../../src/cli/endpoint/log.js';
import { notify } from '../../src/cli/endpoint/notify.js';
import type { RegionInfo } from '../../src/cli/endpoint/regions.js';
import { type Connection, createCmId, type Device, openDevice } from '../../src/index.js';
import { connect as connectNvme } from '../../src/nvme.js';
import { eventually } from '../kit/eventually.js';
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

/** A running endpoint, whose log is read line by line. */
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

  /** Waits for a line with this event and these fields, after the first `after` lines. */
  async until(event: string, fields: object = {}, after = 0): Promise<Line> {
    const find = () => this.lines.slice(after).find((line) => line.event === event && matches(line, fields));
    await this.running.prints((stdout) => {
      this.#text = stdout;
      return find() !== undefined;
    });
    return find() as Line;
  }

  /** Sends a signal and waits for the event that it causes. */
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

async function regionInfos(connection: Connection): Promise<RegionInfo[]> {
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

  test('prints its addresses, link, regions and services', () => {
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

  test('echo: messages come back unchanged, and the log has the client’s arrival and end', async () => {
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

  test('a message that is too long ends the connection, and the log has the reason', async () => {
    const connection = await connect(7473);
    await echoes(connection, 'x'.repeat(64));
    await expect(connection.send(Buffer.alloc(65))).rejects.toMatchObject({ code: 'EMSGSIZE' });
    // A client of another project does not know the limit.
    connection.qp.postSend({ wrId: 0, opcode: 'SEND', sgList: (await connection.share(65)).sge() });
    expect(await serving.until('disconnected', { port: 7473 })).toMatchObject({ level: 'error', code: 'LOC_LEN_ERR' });
  });

  test('regions: a client learns of them, and reads, writes and counts within its rights', async () => {
    const connection = await connect(7472);
    const list = await regionInfos(connection);
    expect(list.map(({ name, length, access }) => [name, length, access])).toEqual([
      ['scratch', 65_536, ALL],
      ['readable', 4096, ['remoteRead']],
      ['table', 19, ['remoteRead', 'remoteWrite']],
      ['fresh', 16, ['remoteWrite']],
    ]);
    const [scratch, readable, table] = list as [RegionInfo, RegionInfo, RegionInfo];
    await connection.write(scratch, Buffer.from('written'), { offset: 60_000 });
    expect(`${await connection.read(scratch, { offset: 60_000, length: 7 })}`).toBe('written');
    expect([await connection.fetchAdd(scratch, 5n), await connection.compareSwap(scratch, 5n, 7n)]).toEqual([0n, 5n]);
    expect(`${await connection.read(table)}`).toBe('what the file holds');
    // any message requests the list
    await connection.send(Buffer.from('?'));
    expect(await regionInfos(connection)).toEqual(list);
    await expect(connection.write(readable, Buffer.from('no'))).rejects.toMatchObject({ status: 'REM_ACCESS_ERR' });
    const told = await serving.until('disconnected', { service: 'regions' });
    expect(told).toMatchObject({ level: 'error', code: 'EIO', writes: 1, reads: 2, atomics: 2 });
    expect(told.error).toContain('QP_ACCESS_ERR');
  });

  test('regions are reached by those alone that were told of them', async () => {
    const told = await connect(7472);
    const [scratch] = (await regionInfos(told)) as [RegionInfo];
    const stranger = await connect(7471);
    await expect(stranger.read(scratch, { length: 8 })).rejects.toMatchObject({ status: 'REM_ACCESS_ERR' });
    await told.close();
  });

  test('metrics are those of `wasm-roce stat --prometheus`', async () => {
    const text = await (await fetch(`http://127.0.0.1:${metrics}/metrics`)).text();
    expect(text).toMatch(/^wasm_roce_port_up\{.*link="udp"\} 1$/m);
    expect((await fetch(`http://127.0.0.1:${metrics}/`)).status).toBe(404);
  });

  test('SIGUSR2 writes persistent regions', async () => {
    await using connection = await connect(7472);
    const [, , table, empty] = (await regionInfos(connection)) as [RegionInfo, RegionInfo, RegionInfo, RegionInfo];
    await connection.write(table, Buffer.from('WHAT'));
    await connection.write(empty, Buffer.from('new'));
    await serving.signal('SIGUSR2', 'saved', { region: 'fresh' });
    await serving.until('saved', { region: 'table' });
    expect(readFileSync(file, 'utf8')).toBe('WHAT the file holds');
    expect(readFileSync(fresh)).toEqual(Buffer.concat([Buffer.from('new'), Buffer.alloc(13)]));
  });

  test('SIGHUP keeps unchanged services, opens new ones, and closes those that are gone', async () => {
    const [stays, goes, asks] = [await connect(7471), await connect(7473), await connect(7472)];
    const before = await regionInfos(asks);
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
    const after = await regionInfos(asks);
    expect(after.map(({ name }) => name)).toEqual(['scratch', 'table', 'fresh', 'added']);
    expect(after[0]).toEqual(before[0]);
    expect(`${await asks.read(after[1] as RegionInfo)}`).toBe('WHAT the file holds');
    await using added = await connect(7474);
    await echoes(added, 'new');
    await expect(connect(7473)).rejects.toMatchObject({ code: 'ECONNREFUSED' });
    await expect(fetch(`http://127.0.0.1:${metrics}/metrics`)).rejects.toThrow();
    await Promise.all([stays.close(), asks.close()]);
  });

  test('SIGHUP with a wrong configuration, or one that cannot be opened, is reported and changes nothing', async () => {
    await using connection = await connect(7474);
    const services = [{ type: 'echo', port: 7474 }];
    const taken = await freePort();
    const other = new Serving({ addresses: ['127.83.0.3'], services: [{ type: 'echo' }], metrics: { port: taken } });
    await other.until('ready');
    const missing = join(folder, 'missing.bin');
    for (const [config, error] of [
      [{ services, link: 'smoke' }, /link is "smoke", must be one of/],
      [{ services, mode: 'worker' }, /^mode cannot change while the endpoint runs/],
      [{ services, regions: { a: { file: missing, access: ALL } } }, /missing\.bin", which does not exist/],
      [{ services, metrics: { port: taken } }, /EADDRINUSE/],
    ] as const) {
      serving.configure(config);
      expect((await serving.signal('SIGHUP', 'reload refused')).error).toMatch(error);
      await echoes(connection, 'as before');
    }
    const [asks, still] = [await connect(7472), await connect(7471)];
    expect((await regionInfos(asks)).map(({ name }) => name)).toEqual(['scratch', 'table', 'fresh', 'added']);
    await echoes(still, 'as before');
    await Promise.all([asks.close(), still.close()]);
    expect(await other.end()).toMatchObject({ status: 0 });
  });

  test('SIGTERM ends connections in order and writes files, status 0', async () => {
    const [connection, asks] = [await connect(7471), await connect(7472)];
    const empty = (await regionInfos(asks))[2] as RegionInfo;
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

/** Options of node that make the process send itself SIGTERM as soon as it logs a line with this text. */
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

test('SIGTERM during the start ends in order and writes files', async () => {
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

/** A service manager: receives notifications, which Node cannot. */
test('SIGHUP adds and removes disks while a host is connected', async () => {
  const nqn = 'nqn.2026-01.com.example:disks';
  const disk = (name: string, more: object = {}) => ({ file: join(folder, name), size: '1m', ...more });
  const nvme = (namespaces: object) => ({ services: [{ type: 'nvme', nqn, namespaces }] });
  const serving = new Serving(nvme({ a: disk('a'), b: disk('b') }));
  await serving.until('ready');
  try {
    await using controller = await connectNvme({ device, host: SERVER, nqn });
    const sizes = () => controller.namespaces.map(({ nsid, bytes }) => [nsid, bytes]);
    expect(sizes()).toEqual([
      [1, 2 ** 20],
      [2, 2 ** 20],
    ]);
    await controller.namespace(2).write(0, Buffer.alloc(4096, 7));
    serving.configure(nvme({ b: disk('b'), c: disk('c', { size: '2m' }) }));
    await serving.signal('SIGHUP', 'reloaded');
    await eventually(() => expect(sizes()[0]).toEqual([1, 2 ** 21]));
    expect((await controller.namespace(2).read(0, 4096)).every((byte) => byte === 7)).toBe(true);
    serving.configure(nvme({ b: disk('b'), c: disk('c', { size: '2m', readOnly: true }) }));
    await serving.signal('SIGHUP', 'reloaded');
    await eventually(() => expect(controller.namespace(1).isReadOnly).toBe(true));
    // a disk that cannot be opened
    serving.configure(nvme({ b: disk('b'), d: { file: '/none', readOnly: true } }));
    expect((await serving.signal('SIGHUP', 'reload refused')).error).toContain('which does not exist');
    expect(sizes()).toEqual([
      [1, 2 ** 21],
      [2, 2 ** 20],
    ]);
    // another name of the subsystem is another target
    const closed = once(controller, 'close');
    serving.configure({ services: [{ type: 'nvme', nqn: `${nqn}2`, namespaces: { b: disk('b') } }] });
    await serving.signal('SIGHUP', 'reloaded');
    expect((await closed)[0]).toMatchObject({ code: 'ECONNRESET' });
    await using again = await connectNvme({ device, host: SERVER, nqn: `${nqn}2` });
    expect((await again.namespace(1).read(0, 512))[0]).toBe(7);
  } finally {
    expect(await serving.end()).toMatchObject({ status: 0, stderr: '' });
  }
});

class Manager implements AsyncDisposable {
  static readonly PROGRAM = `
    use IO::Socket::UNIX; use Socket; $| = 1;
    my $name = $ARGV[0]; $name =~ s/^@/\\0/;
    my $socket = IO::Socket::UNIX->new(Type => SOCK_DGRAM, Local => $name) or die $!;
    print "open\\n";
    while (defined $socket->recv(my $text, 4096)) { $text =~ s/\\n/ /g; print "$text\\n" }`;
  #text = '';

  static async start(socket: string): Promise<Manager> {
    const child = spawn('perl', ['-e', Manager.PROGRAM, socket], { stdio: ['ignore', 'pipe', 'inherit'] });
    const manager = new Manager(child, socket);
    await once(child.stdout, 'data');
    return manager;
  }

  private constructor(
    readonly child: ChildProcessByStdio<null, Readable, null>,
    readonly socket: string,
  ) {
    child.stdout.setEncoding('utf8').on('data', (text) => {
      this.#text += text;
    });
  }

  /** The received text; assignments are separated by spaces. */
  get states(): string[] {
    return this.#text
      .replace(/USEC=\d+/g, 'USEC=n')
      .trim()
      .split('\n')
      .slice(1);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.child.kill('SIGKILL');
    await once(this.child, 'close');
  }
}

test('systemd is notified by an abstract name as well, and the log has a failure', async () => {
  const log = new Log('json', new PassThrough().resume());
  const errors = vi.spyOn(log, 'error');
  const before = process.env.NOTIFY_SOCKET;
  try {
    await using manager = await Manager.start(`@wasm-roce-${process.pid}`);
    process.env.NOTIFY_SOCKET = manager.socket;
    notify(log, 'READY=1', 'STATUS=two words');
    await eventually(() => expect(manager.states).toEqual(['READY=1 STATUS=two words']));
    expect(errors).not.toHaveBeenCalled();
    for (const [socket, rule] of [
      [join(folder, 'nobody'), /takes no notification \(ENOENT\)/],
      [`@${'x'.repeat(200)}`, /takes no notification \(ENAMETOOLONG\)/],
    ] as const) {
      process.env.NOTIFY_SOCKET = socket;
      notify(log, 'READY=1');
      expect(String(errors.mock.lastCall?.[1])).toMatch(rule);
    }
  } finally {
    if (before === undefined) delete process.env.NOTIFY_SOCKET;
    else process.env.NOTIFY_SOCKET = before;
  }
});

test('options suffice; lines are for people; a second signal ends it at once', async () => {
  await using manager = await Manager.start(join(folder, 'notify'));
  const env = { NOTIFY_SOCKET: manager.socket };
  const options = ['--address', SERVER, '--link', 'udp', '--serve', 'regions:7500', '--region', 'a=4k'];
  const { child, prints, ended } = start(['endpoint', ...options], { env });
  try {
    await prints((text) => / info {2}ready pid=\d+\n/.test(text));
    child.kill('SIGHUP');
    await prints((text) => / info {2}reloaded\n/.test(text));
    // a peer without receives: the endpoint waits for a while to send it the regions
    const id = createCmId(device);
    await id.resolveAddr(SERVER, 7500);
    await id.resolveRoute();
    await id.createQp(await device.allocPd(), { sendCq: await device.createCq() });
    await id.connect();
    await prints((text) => text.includes(' connected service=regions port=7500 peer='));
    const inOrder = ['READY=1', 'RELOADING=1 MONOTONIC_USEC=n', 'READY=1'];
    await eventually(() => expect(manager.states).toEqual(inOrder));
    child.kill('SIGTERM');
    await prints((text) => / info {2}stopping signal=SIGTERM\n/.test(text));
    await eventually(() => expect(manager.states).toEqual([...inOrder, 'STOPPING=1']));
    child.kill('SIGINT');
    const { status, stdout, stderr } = await ended;
    expect({ status, stderr }).toEqual({ status: 130, stderr: '' });
    for (const line of stdout.trimEnd().split('\n')) expect(line).toMatch(/^\d{4}-\S+Z (info|warn|error) +[a-z]+( |$)/);
    expect(stdout).toContain(
      ' info  region region=a bytes=4096 access=remoteRead,remoteWrite,remoteAtomic interface=lo\n',
    );
  } finally {
    child.kill('SIGKILL');
  }
});
