// Sockets, servers and the proxy of wasm-roce/valkey, both ends ours, over the memory link.
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer as createTcpServer, type Server, connect as tcpConnect } from 'node:net';
import type { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { expect, test, vi } from 'vitest';
import { Pace } from '../../../src/ulp/valkey/pace.js';
import { connect, createBridge, createProxy, createServer, type ValkeyOptions } from '../../../src/valkey.js';
import { device, HOST, peer } from '../devices.js';

const there = (options: ValkeyOptions = {}) => ({ device, host: HOST, ...options });

/** A server over TCP that sends back what it gets, with a line before each connection. */
async function echoOverTcp(): Promise<Server> {
  const server = createTcpServer((socket) => {
    socket.on('error', () => {});
    socket.pipe(socket);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return server;
}
const portOf = (server: Server) => (server.address() as { port: number }).port;

/** Returns the first bytes that a stream delivers. */
function take(stream: Readable, bytes: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let count = 0;
    stream.on('error', reject);
    stream.on('data', (chunk: Buffer) => {
      chunks.push(chunk);
      count += chunk.length;
      if (count >= bytes) resolve(Buffer.concat(chunks));
    });
  });
}

test.each([
  ['the smallest buffers', { receiveBytes: 65_536, sendBytes: 65_536 }],
  ['default buffers', {}],
])('10 MB there and back: %s', async (_, sizes) => {
  await using server = createServer({ device: peer, ...sizes }, (socket) => socket.pipe(socket));
  await once(server.listen(6379), 'listening');
  const socket = connect(there(sizes));
  const data = randomBytes(10_000_000);
  const received = take(socket, data.length);
  socket.write(data);
  expect((await received).equals(data)).toBe(true);
  socket.end();
  await once(socket, 'close');
});

test('many small messages: more than the peer has receives', async () => {
  let bytes = 0;
  await using server = createServer({ device: peer }, (socket) => socket.on('data', ({ length }) => (bytes += length)));
  await once(server.listen(6379), 'listening');
  const socket = connect(there());
  await once(socket, 'connect');
  for (let i = 0; i < 10_000; i++) if (!socket.write(`${i % 10}`)) await once(socket, 'drain');
  await expect.poll(() => bytes).toBe(10_000);
  socket.destroy();
});

test('what the peer answers after our end arrives, and its disconnect is its end', async () => {
  await using server = createServer({ device: peer }, (socket) => {
    socket.on('data', () => socket.end('goodbye'));
  });
  await once(server.listen(6379), 'listening');
  const socket = connect(there());
  const events: string[] = [];
  for (const event of ['finish', 'end', 'error']) socket.on(event, () => events.push(event));
  socket.end('QUIT');
  expect(`${await buffer(socket)}`).toBe('goodbye');
  if (!socket.closed) await once(socket, 'close');
  expect(events).toEqual(['finish', 'end']);
});

test('a proxy joins clients with a server over TCP, and its absence ends them', async () => {
  const tcp = await echoOverTcp();
  const to = { host: '127.0.0.1', port: portOf(tcp) };
  const proxy = await createProxy({ device: peer, port: 6400, to });
  const socket = connect(there({ port: proxy.port }));
  const data = randomBytes(3_000_000);
  const received = take(socket, data.length);
  socket.write(data);
  expect((await received).equals(data)).toBe(true);
  expect(proxy.clients).toBe(1);
  socket.end();
  await once(socket, 'close');
  await expect.poll(() => proxy.clients).toBe(0);
  await new Promise((resolve) => tcp.close(resolve));
  const refused = connect(there({ port: proxy.port })).resume();
  await once(refused, 'close');
  await proxy.close();
});

test('a bridge leads from a local socket to the server', async () => {
  await using server = createServer({ device: peer }, (socket) => socket.pipe(socket));
  await once(server.listen(6379), 'listening');
  const bridge = await createBridge(there());
  const local = tcpConnect(bridge.path);
  local.write('hello');
  expect(`${(await once(local, 'data'))[0]}`).toBe('hello');
  const closed = once(local, 'close');
  await bridge.close();
  await closed;
  const [error] = await once(tcpConnect(bridge.path), 'error');
  expect(error).toMatchObject({ code: 'ENOENT' });
});

test('buffers out of range are told', async () => {
  expect(() => connect(there({ receiveBytes: 1000 }))).toThrow(
    /receiveBytes is 1000, must be a multiple of 1 from 65536/,
  );
  await expect(createBridge({ device, sendBytes: 2 ** 25 })).rejects.toThrow(/sendBytes is 33554432/);
});

test('the pace of messages: some at once, then few, and none without an answer', () => {
  vi.useFakeTimers();
  try {
    const due = vi.fn();
    const pace = new Pace(due);
    const send = () => {
      let sent = 0;
      for (; pace.mayLeave(); sent++) pace.left();
      return sent;
    };
    expect(send()).toBe(256);
    expect(due).not.toHaveBeenCalled();
    // half of the answers do not show that the peer has taken what crossed them
    pace.answered();
    expect(send()).toBe(0);
    vi.advanceTimersByTime(20);
    expect([due.mock.calls.length, send()]).toEqual([1, 1]);
    pace.answered();
    pace.answered();
    expect(send()).toBe(255);
    let trickled = 0;
    for (let i = 0; i < 2000; i++) {
      vi.advanceTimersByTime(20);
      trickled += send();
    }
    expect(trickled).toBe(960 - 256);
    pace.stop();
  } finally {
    vi.useRealTimers();
  }
});
