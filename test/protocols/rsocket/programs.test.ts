// Libraries that are written for node:net, over rsockets of the memory link.
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { Agent, createServer as createHttpServer, type RequestListener, request } from 'node:http';
import { connect as connectHttp2, createServer as createHttp2Server } from 'node:http2';
import { buffer, json, text } from 'node:stream/consumers';
import { Client } from 'undici';
import { expect, test } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import { connect, createServer, type Server, type Socket } from '../../../src/net.js';
import { device, HOST, peer, useDevices } from '../devices.js';

useDevices();

const PORT = 8080;

const open = (): Socket => connect({ device, host: HOST, port: PORT });

/** Hands the connections of a server of rsockets to a server of another protocol. */
async function serve(of: { emit(event: 'connection', socket: unknown): boolean }): Promise<Server> {
  const server = createServer({ device: peer }, (socket) => of.emit('connection', socket));
  server.listen(PORT);
  await once(server, 'listening');
  return server;
}

/** Answers with the number of bytes and the path of the request. */
const reflect: RequestListener = async (asked, answer) => {
  const { length } = await buffer(asked);
  answer.end(JSON.stringify({ length, path: asked.url }));
};

test('http: an agent keeps connections for many requests', async () => {
  const http = createHttpServer(reflect);
  let connections = 0;
  const server = await serve(http);
  server.on('connection', () => connections++);
  const agent = new Agent({ keepAlive: true, maxSockets: 3 });
  Object.assign(agent, { createConnection: open });
  const ask = async (i: number) => {
    const asked = request({ agent, path: `/${i}`, method: 'POST' });
    asked.end(randomBytes(i * 1000));
    const [answer] = await once(asked, 'response');
    return await json(answer);
  };
  const answers = await Promise.all(Array.from({ length: 50 }, (_, i) => ask(i)));
  expect(answers).toEqual(Array.from({ length: 50 }, (_, i) => ({ length: i * 1000, path: `/${i}` })));
  expect(connections).toBe(3);
  agent.destroy();
  await new Promise((resolve) => server.close(resolve));
});

test('http2: streams run side by side in one session', async () => {
  const http2 = createHttp2Server(reflect as never);
  const server = await serve(http2);
  const session = connectHttp2(`http://${HOST}`, { createConnection: open as never });
  const ask = async (i: number) => {
    const stream = session.request({ ':path': `/${i}`, ':method': 'POST' });
    stream.end(randomBytes(i * 3000));
    return await json(stream);
  };
  const answers = await Promise.all(Array.from({ length: 20 }, (_, i) => ask(i)));
  expect(answers).toEqual(Array.from({ length: 20 }, (_, i) => ({ length: i * 3000, path: `/${i}` })));
  session.close();
  await new Promise((resolve) => server.close(resolve));
});

test('undici: a client sends requests in a pipeline', async () => {
  const server = await serve(createHttpServer(reflect));
  const client = new Client(`http://${HOST}:${PORT}`, {
    pipelining: 4,
    connect: (_, done) => {
      const socket = open();
      socket.once('error', (error) => done(error, null));
      socket.once('connect', () => done(null, socket as never));
    },
  });
  const ask = async (i: number) => (await client.request({ path: `/${i}`, method: 'GET' })).body.json();
  const answers = await Promise.all(Array.from({ length: 20 }, (_, i) => ask(i)));
  expect(answers).toEqual(Array.from({ length: 20 }, (_, i) => ({ length: 0, path: `/${i}` })));
  await client.close();
  await new Promise((resolve) => server.close(resolve));
});

test('ws: messages pass both ways, a ping is answered, and the protocol’s close works', async () => {
  const http = createHttpServer();
  const sockets = new WebSocketServer({ server: http });
  sockets.on('connection', (socket) =>
    socket.on('message', (data, isBinary) => socket.send(data, { binary: isBinary })),
  );
  const server = await serve(http);
  const client = new WebSocket(`ws://${HOST}:${PORT}/`, { createConnection: open as never });
  await once(client, 'open');
  for (const data of [randomBytes(10), randomBytes(200_000)]) {
    client.send(data);
    expect((await once(client, 'message'))[0].equals(data)).toBe(true);
  }
  client.ping('ping');
  expect(`${(await once(client, 'pong'))[0]}`).toBe('ping');
  client.close(4000, 'done');
  const [code, reason] = await once(client, 'close');
  expect([code, `${reason}`]).toEqual([4000, 'done']);
  await new Promise((resolve) => server.close(resolve));
});

test('an HTTP server that ends its side early does not lose the response', async () => {
  const http = createHttpServer((asked, answer) => {
    asked.resume();
    answer.setHeader('connection', 'close');
    answer.end('x'.repeat(1_000_000));
  });
  const server = await serve(http);
  const asked = request({ createConnection: open as never, path: '/' }).end();
  const [answer] = await once(asked, 'response');
  expect((await text(answer)).length).toBe(1_000_000);
  await new Promise((resolve) => server.close(resolve));
});
