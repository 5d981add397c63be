// The proxy and the bridge of wasm-roce/valkey, with sockets of the kernel on one side.
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer as createTcpServer, type Server, connect as tcpConnect } from 'node:net';
import { expect, test } from 'vitest';
import { connect, createBridge, createProxy, createServer, type ValkeyOptions } from '../../../src/valkey.js';
import { eventually } from '../../kit/eventually.js';
import { device, HOST, peer, useDevices } from '../devices.js';
import { take } from './take.js';

useDevices();

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

test('a proxy connects clients with a server over TCP, and ends them without one', async () => {
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
  await eventually(() => expect(proxy.clients).toBe(0));
  await new Promise((resolve) => tcp.close(resolve));
  const refused = connect(there({ port: proxy.port })).resume();
  await once(refused, 'close');
  await proxy.close();
});

test('a bridge connects a local socket with the server', async () => {
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
