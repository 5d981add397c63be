// Sockets and servers of wasm-roce/net, both ends ours, over the memory link; in worker mode over that of udp.
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer as createHttpServer, get } from 'node:http';
import { buffer, text } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';
import { afterEach, expect, test } from 'vitest';
import { createMemoryHub, type Device } from '../../../src/index.js';
import { connect, createServer, type Server, type Socket, type SocketServerOptions } from '../../../src/net.js';
import { eventually } from '../../kit/eventually.js';
import { openOn } from '../../verbs/pair.js';

const opened: { close(options?: object): Promise<void> }[] = [];
afterEach(async () => {
  for (const device of opened.splice(0)) await device.close({ force: true });
});

/** Addresses of the client and of the server. */
let [us, host] = ['', ''];

async function devices(): Promise<[client: Device, server: Device]> {
  const hub = createMemoryHub();
  const [client, server] = [await openOn(hub), await openOn(hub)];
  opened.push(client, server);
  [us, host] = [client, server].map(({ gids }) => gids.find(({ address }) => !address.includes(':'))?.address) as [
    string,
    string,
  ];
  return [client, server];
}

async function serve(device: Device, onConnection: (socket: Socket) => void, options: SocketServerOptions = {}) {
  const server = createServer({ device, ...options }, onConnection);
  server.listen(7000);
  await once(server, 'listening');
  return server;
}

const closed = (server: Server) => new Promise((resolve) => server.close(resolve));

test('an echo works, with the events of both ends in the order of node:net', async () => {
  const [device, peer] = await devices();
  const events: string[] = [];
  const follow = (name: string, socket: Socket) => {
    for (const event of ['connect', 'ready', 'end', 'finish']) socket.on(event, () => events.push(`${name} ${event}`));
    socket.on('close', (hadError: boolean) => events.push(`${name} close ${hadError}`));
  };
  const server = await serve(peer, (socket) => {
    follow('server', socket);
    socket.pipe(socket);
  });
  const socket = connect({ device, host, port: 7000 });
  follow('client', socket);
  expect([socket.connecting, socket.pending, socket.readyState]).toEqual([true, true, 'opening']);
  socket.write('hello');
  socket.end(' world');
  expect(await text(socket)).toBe('hello world');
  if (!socket.closed) await once(socket, 'close');
  await closed(server);
  const of = (name: string) => events.filter((event) => event.startsWith(name)).map((event) => event.slice(7));
  expect(of('client')).toEqual(['connect', 'ready', 'finish', 'end', 'close false']);
  expect(of('server')).toEqual(['end', 'finish', 'close false']);
});

test('addresses, ports and counts are those of both ends', async () => {
  const [device, peer] = await devices();
  let accepted: Socket | undefined;
  const server = await serve(peer, (socket) => {
    accepted = socket;
    socket.resume();
  });
  expect(server.address()).toEqual({ address: '::', port: 7000, family: 'IPv6' });
  const socket = connect({ device, host, port: 7000 });
  await once(socket, 'connect');
  const local = { address: us, port: socket.localPort, family: 'IPv4' };
  expect(socket.address()).toEqual(local);
  expect([socket.remoteAddress, socket.remotePort, socket.remoteFamily]).toEqual([host, 7000, 'IPv4']);
  socket.end('12345');
  expect(socket.bytesWritten).toBe(5);
  await once(socket, 'close');
  expect(accepted?.bytesRead).toBe(5);
  await closed(server);
});

test.each([
  ['small buffers, so that halves and credits change often', 4096],
  ['default buffers', 262_144],
])(
  '10 MB arrive both ways at once: %s',
  async (_, bytes) => {
    const [device, peer] = await devices();
    const sizes = { receiveBytes: bytes, sendBytes: bytes };
    const server = await serve(peer, (socket) => pipeline(socket, socket), { ...sizes });
    const socket = connect({ device, host, port: 7000, ...sizes });
    const data = randomBytes(10_000_000);
    socket.end(data);
    expect((await buffer(socket)).equals(data)).toBe(true);
    await closed(server);
  },
  30_000,
);

test('many small writes need more messages than there are credits', async () => {
  const [device, peer] = await devices();
  const server = await serve(peer, (socket) => pipeline(socket, socket));
  const socket = connect({ device, host, port: 7000 });
  await once(socket, 'connect');
  const received = text(socket);
  for (let i = 0; i < 5000; i++) if (!socket.write(`${i},`)) await once(socket, 'drain');
  socket.end();
  expect(await received).toBe(Array.from({ length: 5000 }, (_, i) => `${i},`).join(''));
  await closed(server);
});

test('a reader that does not read holds the writer up', async () => {
  const [device, peer] = await devices();
  let accepted: Socket | undefined;
  const server = await serve(peer, (socket) => {
    accepted = socket;
  });
  const socket = connect({ device, host, port: 7000, receiveBytes: 8192, sendBytes: 8192 });
  await once(socket, 'connect');
  const data = randomBytes(2_000_000);
  socket.end(data);
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect(socket.writableFinished).toBe(false);
  expect((await buffer(accepted as Socket)).equals(data)).toBe(true);
  accepted?.end();
  await closed(server);
});

test('with allowHalfOpen the end of the peer leaves our side open', async () => {
  const [device, peer] = await devices();
  const server = await serve(peer, (socket) => socket.end('done'));
  const socket = connect({ device, host, port: 7000, allowHalfOpen: true });
  const received: Buffer[] = [];
  socket.on('data', (data) => received.push(data));
  await once(socket, 'end');
  expect(Buffer.concat(received).toString()).toBe('done');
  expect([socket.writable, socket.readyState]).toEqual([true, 'writeOnly']);
  socket.end();
  await once(socket, 'close');
  await closed(server);
});

test('connect without a listener emits ECONNREFUSED, then close with an error', async () => {
  const [device, peer] = await devices();
  const server = await serve(peer, () => expect.unreachable());
  const socket = connect({ device, host, port: 7001 });
  const events: unknown[] = [];
  socket.on('error', (error) => events.push(error));
  await new Promise((resolve) => socket.on('close', (hadError: boolean) => resolve(events.push(hadError))));
  expect(events).toMatchObject([{ code: 'ECONNREFUSED', syscall: 'connect', address: host, port: 7001 }, true]);
  await closed(server);
});

test('a peer that resets gives ECONNRESET', async () => {
  const [device, peer] = await devices();
  const server = await serve(peer, (socket) => socket.resetAndDestroy());
  const socket = connect({ device, host, port: 7000 });
  const [error] = await once(socket, 'error');
  expect(error).toMatchObject({ code: 'ECONNRESET' });
  await closed(server);
});

test('destroy while connecting closes without an error, and leaves nothing', async () => {
  const [device, peer] = await devices();
  const server = await serve(peer, (socket) => socket.resume());
  const destroyAll = async () => {
    for (let i = 0; i < 30; i++) {
      const socket = connect({ device, host, port: 7000 });
      for (let turns = 0; turns < i; turns++) await Promise.resolve();
      socket.destroy();
      expect(await once(socket, 'close')).toEqual([false]);
    }
  };
  const available = () => device.query().memoryAvailable;
  const round = async () => {
    const before = available();
    await destroyAll();
    return before - available();
  };
  // what connections share is allocated with the first of them, and grows with those at once
  await eventually(async () => expect(await round()).toBe(0));
  await closed(server);
});

test('a listener that is no rsocket server, and a client that is none, are refused', async () => {
  const [device, peer] = await devices();
  await using plain = await peer.listen({ port: 7002 });
  plain.on('connection', () => {});
  const socket = connect({ device, host, port: 7002 });
  const [error] = await once(socket, 'error');
  expect(error.message).toMatch(/rsocket/);
  const server = await serve(peer, () => expect.unreachable());
  await expect(device.connect({ host, port: 7000 })).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  await closed(server);
});

test('setTimeout emits one event without traffic', async () => {
  const [device, peer] = await devices();
  const server = await serve(peer, (socket) => socket.resume());
  const socket = connect({ device, host, port: 7000 });
  await once(socket, 'connect');
  await new Promise<void>((resolve) => socket.setTimeout(20, resolve));
  socket.end();
  await once(socket, 'close');
  await closed(server);
});

test('HTTP works: a server takes its sockets, an agent makes them', async () => {
  const [device, peer] = await devices();
  const http = createHttpServer((request, response) => request.pipe(response));
  const server = await serve(peer, (socket) => http.emit('connection', socket));
  const body = await new Promise<string>((resolve, reject) => {
    get({ createConnection: () => connect({ device, host, port: 7000 }) as never, path: '/' }, (response) =>
      text(response).then(resolve, reject),
    ).on('error', reject);
  });
  expect(body).toBe('');
  await closed(server);
});

test('maxConnections drops further connections', async () => {
  const [device, peer] = await devices();
  const server = await serve(peer, (socket) => socket.resume());
  server.maxConnections = 1;
  const first = connect({ device, host, port: 7000 });
  await once(first, 'connect');
  const drop = once(server, 'drop');
  const second = connect({ device, host, port: 7000 });
  expect((await once(second, 'error'))[0]).toMatchObject({ code: 'ECONNREFUSED' });
  expect((await drop)[0]).toMatchObject({ remoteAddress: us });
  first.end();
  await closed(server);
});

test('keep-alives that are due before the connection is established are left out', async () => {
  const [device, peer] = await devices();
  const server = await serve(peer, (socket) => socket.pipe(socket));
  for (let i = 0; i < 10; i++) {
    const socket = connect({ device, host, port: 7000, keepAlive: true, keepAliveInitialDelay: 1 });
    // the timer is due in every state of the connection
    const blocked = setInterval(() => {
      for (const until = performance.now() + 3; performance.now() < until; );
    }, 1);
    socket.end('hello');
    expect(await text(socket)).toBe('hello');
    clearInterval(blocked);
    if (!socket.closed) await once(socket, 'close');
  }
  await closed(server);
});
