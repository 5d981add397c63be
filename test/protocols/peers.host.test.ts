// Servers whose clients are processes that are stopped for a while, or killed.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Connection, type Device, openDevice, type Server } from '../../src/index.js';
import { createServer, type Socket, type Server as SocketServer } from '../../src/net.js';
import { eventually } from '../kit/eventually.js';

const [OURS, THEIRS] = ['127.0.0.1', '127.0.0.2'];
/** Time of the watch where a test waits for it (ms). */
const SHORT_MS = 600;

let device: Device;
let sockets: Socket[] = [];
let connections: Connection[] = [];
let netServer: SocketServer;
let messageServer: Server;
let children: ChildProcess[] = [];

beforeEach(async () => {
  [sockets, connections, children] = [[], [], []];
  // the memory of the device is compared, and address handles take more of it when they have sent to another program
  device = await openDevice({ link: 'udp', addresses: [OURS], broker: false });
});
afterEach(async () => {
  for (const child of children) child.kill('SIGKILL');
  for (const socket of sockets) socket.destroy();
  netServer?.close();
  await device.close({ force: true });
});

/** Starts servers. @param options of the watch */
async function serve(options: { peerTimeout?: number; keepAlive?: number }): Promise<void> {
  const { peerTimeout, keepAlive } = options;
  netServer = createServer({
    device,
    ...(peerTimeout !== undefined && { peerTimeout }),
    ...(keepAlive !== undefined && { keepAliveInitialDelay: keepAlive }),
  });
  netServer.on('connection', (socket) => sockets.push(socket));
  netServer.listen(0, OURS);
  await once(netServer, 'listening');
  messageServer = await device.listen({ port: 0, accept: options });
  messageServer.on('connection', (connection) => connections.push(connection));
}

/** Starts a client with connections. */
async function client(count: number): Promise<ChildProcess> {
  const ports = [(netServer.address() as AddressInfo).port, messageServer.address.port];
  const program = join(import.meta.dirname, 'clientprocess.ts');
  const words = ['--import', 'tsx', program, THEIRS, OURS, ...ports, count].map(String);
  const child = spawn(process.execPath, words, { stdio: ['ignore', 'pipe', 'inherit'] });
  children.push(child);
  await once(child.stdout as NodeJS.EventEmitter, 'data');
  await eventually(() => expect([sockets.length, connections.length]).toEqual([count, count]));
  // the pool of receives, which is kept, grows when the peer of a connection is ready
  for (const connection of connections) {
    await connection.send(Buffer.from('hello'));
    await connection.receive();
  }
  return child;
}

test('a client that is stopped for longer than seven ACK timeouts loses no connection', async () => {
  await serve({});
  const child = await client(1);
  const [socket, connection] = [sockets[0] as Socket, connections[0] as Connection];
  child.kill('SIGSTOP');
  socket.write('hello');
  const sent = connection.send(Buffer.from('hello'));
  await sleep(4500);
  child.kill('SIGCONT');
  expect(`${(await once(socket, 'data'))[0]}`).toBe('hello');
  await sent;
  expect(`${(await connection.receive())?.data}`).toBe('hello');
});

test.each([
  ['idle connections', false],
  ['connections with something to acknowledge', true],
])('a client that is killed is gone after the time of the watch: %s', async (_, isBusy) => {
  await serve({ peerTimeout: SHORT_MS, keepAlive: 100 });
  const memory: number[] = [];
  for (let round = 0; round < 2; round++) {
    [sockets, connections] = [[], []];
    const child = await client(3);
    const errors: unknown[] = [];
    for (const socket of sockets) socket.on('error', (error) => errors.push((error as NodeJS.ErrnoException).code));
    const ends = [...sockets, ...connections].map((one) => new Promise((resolve) => one.on('close', resolve)));
    for (const connection of connections)
      connection.on('close', (error) => errors.push((error as NodeJS.ErrnoException).code));
    child.kill('SIGKILL');
    if (isBusy) for (const socket of sockets) socket.write('hello');
    if (isBusy) for (const connection of connections) connection.send(Buffer.from('hello')).catch(() => {});
    await Promise.all(ends);
    expect(errors).toEqual(Array(6).fill('ETIMEDOUT'));
    memory.push(device.query().memoryAvailable);
  }
  expect(memory[1]).toBeGreaterThanOrEqual(memory[0] as number);
});

test('a client that answers keeps its connections under a short watch', async () => {
  await serve({ peerTimeout: SHORT_MS, keepAlive: 100 });
  await client(2);
  await sleep(3 * SHORT_MS);
  expect([...sockets.map(({ destroyed }) => !destroyed), ...connections.map(({ isOpen }) => isOpen)]).toEqual(
    Array(4).fill(true),
  );
});
