// `wasm-roce rping` against itself, over loopback without privileges.
import { afterEach, describe, expect, test } from 'vitest';
import { Output } from '../../src/cli/output.js';
import { decodeRdmaInfo, encodeRdmaInfo, pingBytes, textOf } from '../../src/cli/rping/protocol.js';
import type { RpingReport } from '../../src/cli/rping/report.js';
import { type RpingOptions, runServer } from '../../src/cli/rping/roles.js';
import { type Ended, type Running, run, start } from './run.js';

const SERVER = '127.84.0.1';
const CLIENTS = ['127.84.0.2', '127.84.0.3'] as const;
const LINK = ['--link', 'udp', '--idle', '15'];

/** Each test has its own port, so that it does not meet what another has left. */
let lastPort = 7200;

const started: Running[] = [];
afterEach(() => {
  for (const { child } of started.splice(0)) child.kill('SIGKILL');
});

function rping(port: number, words: readonly string[]): Running {
  const running = start(['rping', '-a', SERVER, '-p', String(port), ...LINK, ...words]);
  started.push(running);
  return running;
}

/** Starts a server and waits until it listens. */
async function serve(port: number, ...words: string[]): Promise<Running> {
  const server = rping(port, ['-s', ...words]);
  await server.says('waiting for');
  return server;
}

const client = (port: number, words: readonly string[], from: string = CLIENTS[0]) =>
  rping(port, ['-c', '-I', from, ...words]);

/** Runs both ends with the same options; the client has more of them. */
async function pair(both: readonly string[], more: readonly string[] = []): Promise<[Ended, Ended]> {
  const port = ++lastPort;
  const server = await serve(port, ...both);
  return [await client(port, [...both, ...more]).ended, await server.ended];
}

const report = ({ stdout }: Ended) => JSON.parse(stdout) as RpingReport;

describe('messages of rping', () => {
  test('name memory by 64 bits of address, 32 of key and of length, big-endian', () => {
    const where = { addr: 0x1122334455667788n, rkey: 0x99aabbcc, length: 64 };
    expect(encodeRdmaInfo(where).toString('hex')).toBe('112233445566778899aabbcc00000040');
    expect(decodeRdmaInfo(encodeRdmaInfo(where))).toEqual(where);
    expect(() => decodeRdmaInfo(Buffer.alloc(17))).toThrow(/sent 17 bytes.*has 16/);
  });

  test('have bytes as the stock program fills them', () => {
    expect(textOf(pingBytes(0, 64))).toBe('rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqr');
    expect(textOf(pingBytes(57, 30))).toBe('rdma-ping-57: zABCDEFGHIJKLMN');
    expect(textOf(pingBytes(58, 30))).toBe('rdma-ping-58: ABCDEFGHIJKLMNO');
  });
});

test('-v prints the lines of the stock program, at either end', async () => {
  const [asked, served] = await pair(['-v', '-V'], ['-C', '3']);
  expect([asked.status, served.status, asked.stderr]).toEqual([0, 0, '']);
  const text = (n: number) => textOf(pingBytes(n, 64));
  expect(asked.stdout.split('\n').slice(0, 3)).toEqual([0, 1, 2].map((n) => `ping data: ${text(n)}`));
  expect(served.stdout.split('\n').slice(0, 3)).toEqual([0, 1, 2].map((n) => `server ping data: ${text(n)}`));
  expect(asked.stdout).toMatch(
    /^3 pings of 64 B in \d+\.\d\d seconds\nusec: min .*\n(link udp: .*\n)?3 pings checked, every byte right$/m,
  );
});

test.each([[['-S', '65536', '-q']], [['-S', '4096', '--mode', 'worker']]])(
  '--json, %j: one object at either end',
  async (words) => {
    const [asked, served] = await pair([...words, '-V', '--json'], ['-C', '20']);
    expect([asked.status, served.status, asked.stderr]).toEqual([0, 0, '']);
    const bytes = 20 * Number(words[1]);
    const ok = { ok: true, link: 'udp', pings: 20, bytes, checked: 20, invalid: 0 };
    expect(report(asked)).toMatchObject({ ...ok, role: 'client', peer: { address: SERVER, port: lastPort } });
    expect(report(served)).toMatchObject({ ...ok, role: 'server', peer: { address: CLIENTS[0] }, latency: null });
  },
);

test('-P serves two clients at once, and Ctrl-C ends them', async () => {
  const port = ++lastPort;
  const server = await serve(port, '-P', '-v');
  const [first, second] = CLIENTS.map((from) => client(port, ['-v'], from)) as [Running, Running];
  await Promise.all([first, second].map(({ prints }) => prints((text) => text.includes('rdma-ping-20:'))));
  first.child.kill('SIGINT');
  const stopped = await first.ended;
  expect([stopped.status, stopped.stderr]).toEqual([0, '']);
  expect(stopped.stdout).toMatch(/^\d+ pings of 64 B in /m);
  server.child.kill('SIGINT');
  const [left, served] = [await second.ended, await server.ended];
  expect([left.status, left.stderr]).toEqual([1, 'wasm-roce: the server left in the middle of a ping\n']);
  expect(served.status).toBe(0);
  for (const from of CLIENTS) expect(served.stdout).toMatch(new RegExp(`^\\d+ pings of 64 B from ${from} in `, 'm'));
});

test('Ctrl-C before a client has come, and before the end, gives status 130', async () => {
  const lonely = await serve(++lastPort);
  lonely.child.kill('SIGINT');
  expect(await lonely.ended).toMatchObject({ status: 130, stdout: '' });
  const server = await serve(lastPort, '--json');
  const asking = client(lastPort, ['-v', '-C', '1000000000']);
  await asking.prints((text) => text.includes('rdma-ping-5:'));
  asking.child.kill('SIGINT');
  const [asked, served] = [await asking.ended, await server.ended];
  expect(asked.stderr).toMatch(/^wasm-roce: interrupted after \d+ of 1000000000 pings\n$/);
  expect([asked.status, served.status]).toEqual([130, 0]);
});

test('Ctrl-C without a connection gives status 130 at once', async () => {
  const alone = client(++lastPort, ['-d']);
  await alone.says('for a connection');
  alone.child.kill('SIGINT');
  expect(await alone.ended).toMatchObject({
    status: 130,
    stderr: expect.stringMatching(/\nwasm-roce: interrupted before there was a connection\n$/),
  });
});

test('Ctrl-C while the server opens its device ends it', async () => {
  const options: RpingOptions = {
    ...{ signal: AbortSignal.abort(), port: ++lastPort, listen: SERVER, address: SERVER, link: 'udp', open: {} },
    ...{ size: 64, count: 1, idleMs: 0, validate: false, verbose: false, debug: false, persistent: false },
  };
  await expect(runServer(options, new Output(true))).rejects.toThrow('interrupted before a client came');
  await runServer({ ...options, persistent: true }, new Output(true));
});

test('works with faults on the way', async () => {
  const faults = ['--duplicate', '0.3', '--reorder', '0.2', '--seed', '5'];
  const [asked, served] = await pair(['-V', '--json', '-S', '9000'], ['-C', '5', ...faults]);
  expect([asked.status, served.status, asked.stderr]).toEqual([0, 0, '']);
  expect(report(asked)).toMatchObject({ checked: 5, invalid: 0 });
  expect(report(asked).faults.tx_duplicate).toBeGreaterThan(0);
});

test('a larger ping than the server takes ends the connection, and the server prints why', async () => {
  const server = await serve(++lastPort, '-S', '4096');
  const { status, stderr } = await client(lastPort, ['-S', '5000', '-C', '1']).ended;
  expect([status, stderr]).toEqual([1, 'wasm-roce: the server left in the middle of a ping\n']);
  expect(await server.ended).toMatchObject({
    ...{ status: 1, stdout: '' },
    stderr: expect.stringMatching(/a ping of the client has 5000 bytes, at most 4096 are accepted \(--size\)\n$/),
  });
});

test('without a listener the reason of the refusal is printed, status 1', async () => {
  const server = await serve(++lastPort, '-P');
  const { status, stdout, stderr } = await client(lastPort + 1000, ['--json']).ended;
  server.child.kill('SIGINT');
  expect(status).toBe(1);
  expect(stderr).toMatch(/ECONNREFUSED: 127\.84\.0\.1 port \d+ refused .*reason 8 \(INVALID_SERVICE_ID\)\n$/);
  expect(JSON.parse(stdout)).toMatchObject({ ok: false, error: { code: 'ECONNREFUSED' } });
  expect((await server.ended).status).toBe(0);
});

test('the memory link, both ends in one process', async () => {
  const { status, stdout } = await run(['rping', '--link', 'memory', '-S', '64k', '-C', '50', '-V', '--json']);
  expect(status).toBe(0);
  expect(JSON.parse(stdout)).toMatchObject({ ok: true, link: 'memory', pings: 50, bytes: 50 * 65_536, invalid: 0 });
});

test.concurrent.each([
  [[], /one of -s \(server\) and -c \(client\) is needed/],
  [['-c'], /-c needs the server: -a HOST/],
  [['-c', '-a', '::1', '-P'], /-P is for the server/],
  [['-s', '-S', '65537'], /'65537' is invalid.*bytes from 26 to 65536/],
  [['--link', 'memory', '-s'], /--link memory .* takes no -s/],
])('wrong usage: %j', async (args, text) => {
  const { status, stderr } = await run(['rping', ...args]);
  expect(status).toBe(2);
  expect(stderr).toMatch(text);
});
