// valkey-proxy, and the service valkey of an endpoint: clients over RDMA, a server over TCP.
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { type Device, openDevice } from '../../src/index.js';
import { connect, type ValkeySocket } from '../../src/valkey.js';
import { freePort, type Running, run, start } from './run.js';

const PROXY = '127.100.0.1';
let device: Device;
/** Sends back what it gets. */
let server: Server;
let to: string;
const running: Running[] = [];

beforeAll(async () => {
  device = await openDevice({ link: 'udp', addresses: ['127.100.0.2'] });
  server = createServer((socket) => socket.on('error', () => {}).pipe(socket)).listen(0, '127.0.0.1');
  await once(server, 'listening');
  to = `127.0.0.1:${(server.address() as { port: number }).port}`;
});
afterEach(() => {
  for (const { child } of running.splice(0)) child.kill('SIGKILL');
});
afterAll(async () => {
  await device.close({ force: true });
  server.close();
});

function begin(...args: string[]): Running {
  const command = start(args);
  running.push(command);
  return command;
}

const client = (port: number): ValkeySocket => connect({ device, host: PROXY, port });

async function echoes(port: number): Promise<void> {
  const socket = client(port);
  const data = randomBytes(300_000);
  const chunks: Buffer[] = [];
  socket.write(data);
  while (socket.bytesRead < data.length) {
    const taken = socket.read() as Buffer | null;
    if (taken === null) await once(socket, 'readable');
    else chunks.push(taken);
  }
  for (let rest = socket.read() as Buffer | null; rest !== null; rest = socket.read() as Buffer | null)
    chunks.push(rest);
  expect(Buffer.concat(chunks).equals(data)).toBe(true);
  socket.destroy();
  await once(socket, 'close');
}

const END = ['--address', PROXY, '--link', 'udp'];

test('the proxy serves clients one after the other, and Ctrl-C ends it', async () => {
  const proxy = begin('valkey-proxy', '--listen', '6401', '--to', to, ...END);
  await proxy.says(`listening on ${PROXY} port 6401, for 127.0.0.1 port `);
  await echoes(6401);
  await echoes(6401);
  const open = client(6401);
  await once(open, 'connect');
  proxy.child.kill('SIGINT');
  await once(open.resume(), 'close');
  expect(await proxy.ended).toMatchObject({ status: 0, stdout: '' });
});

test('a missing server disconnects the client, and the proxy prints why', async () => {
  const port = await freePort();
  const proxy = begin('valkey-proxy', '--listen', '6402', '--to', `127.0.0.1:${port}`, ...END);
  await proxy.says('listening');
  const socket = client(6402).resume();
  await once(socket, 'close');
  await proxy.says(`127.100.0.2: 127.0.0.1 port ${port}: connect ECONNREFUSED`);
  proxy.child.kill('SIGTERM');
  await proxy.ended;
});

test.each([
  [['--to', 'localhost'], /--to <host:port>.*'localhost'.*HOST:PORT, such as 127\.0\.0\.1:6379/],
  [['--to', '::1:6379'], /HOST:PORT/],
  [['--listen', '65536'], /integer from 0 to 65535/],
  [['--link', 'memory'], /no client could connect/],
])('wrong usage: %j', async (args, message) => {
  const { status, stderr } = await run(['valkey-proxy', ...args]);
  expect([status, stderr]).toEqual([2, expect.stringMatching(message)]);
});

test('an endpoint with the service valkey', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'wasm-roce-valkey-'));
  const services = [{ type: 'valkey', port: 6403, to }];
  writeFileSync(join(folder, 'config.json'), JSON.stringify({ addresses: [PROXY], link: 'udp', services }));
  const endpoint = begin('endpoint', join(folder, 'config.json'));
  try {
    await endpoint.prints((stdout) => stdout.includes(' ready '));
    await echoes(6403);
    endpoint.child.kill('SIGTERM');
    expect((await endpoint.ended).status).toBe(0);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
