/**
 * npm run soak -- sockets: sockets as many as a process has, clients that are killed, and a client that is stopped for
 * a minute. It takes some minutes.
 *
 * - 4,000 idle and 500 busy sockets at each end, by the devices that the process opens itself; every byte must arrive.
 * - 100 clients that end without closing their connections, in four ways: the server gets an end for each connection,
 *   and its memory, descriptors, queue pairs and timers are afterwards what they were.
 * - A client that is stopped for 60 s: its connections go on.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { useDevice } from '../../src/deviceuse.js';
import { type Connection, type Device, openDevice } from '../../src/index.js';
import { connect, createServer, type Socket } from '../../src/net.js';
import type { ExitingOptions } from '../protocols/exitways.js';
import { leaks, resourcesOf, settled } from './tally.js';

const HOST = '127.0.0.1';
const IDLE = 4000;
const BUSY = 500;
const BUSY_BYTES = 1_000_000;
/** Connections that are opened at the same time. */
const AT_ONCE = 50;
const KILLED = 100;
/** Connections of each client, by each of the two servers. */
const COUNT = 5;
const STOPPED_MS = 60_000;
/** The ways in which clients end, each in a client at the same time. */
const WAYS = ['SIGKILL', 'SIGTERM', 'process.exit', 'an exception'] as const;

let hasFailed = false;

function check(what: string, isRight: boolean, detail = ''): void {
  if (!isRight) hasFailed = true;
  console.log(`${isRight ? 'ok' : 'FAILED'}: ${what}${detail && `: ${detail}`}`);
}

async function openMany(port: number, count: number): Promise<Socket[]> {
  const sockets: Socket[] = [];
  while (sockets.length < count) {
    const some = Array.from({ length: AT_ONCE }, () => connect(port, HOST));
    await Promise.all(some.map((socket) => once(socket, 'connect')));
    sockets.push(...some);
  }
  return sockets;
}

/** @returns whether an echo returns what was sent */
async function echoes(socket: Socket, data: Buffer): Promise<boolean> {
  const hash = createHash('sha256');
  let read = 0;
  const all = new Promise<void>((resolve) => {
    const take = (chunk: Buffer) => {
      hash.update(chunk);
      read += chunk.length;
      if (read < data.length) return;
      socket.off('data', take);
      resolve();
    };
    socket.on('data', take);
  });
  socket.write(data);
  await all;
  return hash.digest('hex') === createHash('sha256').update(data).digest('hex');
}

async function manySockets(): Promise<void> {
  const use = await useDevice(undefined, { peer: HOST });
  let drops = 0;
  const server = createServer((socket) => socket.pipe(socket)).on('drop', () => drops++);
  await once(server.listen(0, HOST), 'listening');
  const { port } = server.address() as { port: number };
  const [first] = await openMany(port, AT_ONCE);
  const [memory, rss] = [use.device.query().memoryAvailable, process.memoryUsage().rss];
  const sockets = await openMany(port, IDLE);
  globalThis.gc?.();
  const each = (bytes: number) => Math.round(bytes / (2 * IDLE));
  const cost = each(memory - use.device.query().memoryAvailable);
  check(`an idle socket takes at most 32 KiB of its device`, cost <= 32_768, `${cost} bytes`);
  console.log(`an idle socket takes ${each(process.memoryUsage().rss - rss)} bytes of the process in all`);
  const since = performance.now();
  const data = randomBytes(BUSY_BYTES);
  const results = await Promise.all(sockets.slice(0, BUSY).map((socket) => echoes(socket, data)));
  const rate = (BUSY * BUSY_BYTES) / 1000 / (performance.now() - since);
  check(`${BUSY} sockets echo ${BUSY_BYTES} bytes at once`, results.every(Boolean), `${rate.toFixed(0)} MB/s each way`);
  const idle = await Promise.all(sockets.map((socket) => echoes(socket, Buffer.from('hello'))));
  check(`${IDLE} sockets are served`, idle.every(Boolean) && drops === 0, `${drops} dropped`);
  const closed = [first as Socket, ...sockets].map((socket) => once(socket, 'close'));
  for (const socket of sockets) socket.destroy();
  first?.destroy();
  await Promise.all(closed.slice(1));
  server.close();
  await use.close();
}

/** Servers whose connections echo. `ended` counts the ends of connections. */
async function serve(device: Device) {
  const counts = { opened: 0, ended: 0 };
  const netServer = createServer({ device, peerTimeout: 5000, keepAliveInitialDelay: 1000 }, (socket) => {
    counts.opened++;
    socket.on('error', () => {}).on('close', () => counts.ended++);
    socket.pipe(socket);
  });
  await once(netServer.listen(0, HOST), 'listening');
  const messages = await device.listen({ port: 0, accept: { peerTimeout: 5000, keepAlive: 1000 } });
  messages.on('connection', (connection: Connection) => {
    counts.opened++;
    connection.on('close', () => counts.ended++);
    connection.send(Buffer.from('hello')).catch(() => {});
  });
  const { port: netPort } = netServer.address() as { port: number };
  return { counts, ports: { netPort, messagePort: messages.address.port } };
}

/** Runs a client to its end. It has an address of its own, as it has port 4791 of that. */
async function killedClient(way: (typeof WAYS)[number], n: number, ports: { netPort: number; messagePort: number }) {
  const ends: ExitingOptions = {
    ...{ link: 'udp', mode: 'inline', address: `127.0.0.${2 + n}`, host: HOST, ...ports, count: COUNT },
    way: way === 'SIGKILL' ? 'SIGTERM' : way,
  };
  const program = join(import.meta.dirname, '../protocols/exitingclient.ts');
  const words = ['--import', 'tsx', program, JSON.stringify(ends)];
  const child = spawn(process.execPath, words, { stdio: ['pipe', 'pipe', 'ignore'] });
  child.stdin.on('error', () => {});
  await once(child.stdout, 'data');
  const exit = once(child, 'exit');
  if (way === 'SIGKILL') child.kill(way);
  else child.stdin.end('end\n');
  await exit;
}

async function killedClients(): Promise<void> {
  const device = await openDevice({ link: 'udp', addresses: [HOST] });
  const { counts, ports } = await serve(device);
  const run = async (clients: number) => {
    for (let n = 0; n < clients; n += WAYS.length) await Promise.all(WAYS.map((way, i) => killedClient(way, i, ports)));
    for (let tries = 0; counts.ended < counts.opened && tries < 60; tries++) await sleep(1000);
  };
  // pools and caches reach their size
  await run(2 * WAYS.length);
  const before = await resourcesOf(device);
  counts.opened = 0;
  counts.ended = 0;
  await run(KILLED);
  const { opened, ended } = counts;
  check(
    `${KILLED} killed clients end ${KILLED * COUNT * 2} connections`,
    ended === KILLED * COUNT * 2,
    `${ended} of ${opened}`,
  );
  const after = await settled(device, before, 60_000);
  const worse = leaks(before, after);
  check(
    'their server is at its baseline',
    worse.length === 0,
    JSON.stringify(worse.length > 0 ? { before, after } : after),
  );
  await device.close({ force: true });
}

async function stoppedClient(): Promise<void> {
  const [own, theirs] = ['127.0.0.21', '127.0.0.22'];
  const device = await openDevice({ link: 'udp', addresses: [own] });
  const server = createServer({ device });
  await once(server.listen(0, own), 'listening');
  const messages = await device.listen({ port: 0 });
  const arriving = Promise.all([once(server, 'connection'), once(messages, 'connection')]);
  const { port } = server.address() as { port: number };
  const program = join(import.meta.dirname, '../protocols/clientprocess.ts');
  const words = ['--import', 'tsx', program, theirs, own, `${port}`, `${messages.address.port}`, '1'];
  const child: ChildProcess = spawn(process.execPath, words, { stdio: ['ignore', 'ignore', 'inherit'] });
  const [[socket], [connection]] = (await arriving) as [[Socket], [Connection]];
  const failures: unknown[] = [];
  socket.on('error', (error) => failures.push(error));
  // both ends know that they are connected
  await connection.send(Buffer.from('first'));
  await connection.receive();
  await echoes(socket, Buffer.from('first'));
  child.kill('SIGSTOP');
  socket.write('hello');
  const sent = connection.send(Buffer.from('hello')).catch((error) => failures.push(error));
  await sleep(STOPPED_MS);
  child.kill('SIGCONT');
  const limit = AbortSignal.timeout(30_000);
  const echo = await once(socket, 'data', { signal: limit }).catch((error) => failures.push(error));
  await sent;
  const message = await connection.receive({ signal: limit }).catch((error) => void failures.push(error));
  const isRight = failures.length === 0 && `${echo}` === 'hello' && `${message?.data}` === 'hello';
  check(`connections of a client that is stopped for ${STOPPED_MS / 1000} s go on`, isRight, failures.join(', '));
  child.kill('SIGKILL');
  socket.destroy();
  await device.close({ force: true });
}

const stopped = stoppedClient();
await killedClients();
await stopped;
await manySockets();
process.exit(hasFailed ? 1 : 0);
