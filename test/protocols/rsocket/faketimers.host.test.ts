/** Sockets of a program that replaces Node's timers and clock while they work, as tests of programs do. */
import { once } from 'node:events';
import { type AddressInfo, createServer as createNodeServer, connect as nodeConnect } from 'node:net';
import { afterEach, expect, test, vi } from 'vitest';
import { connect, createServer } from '../../../src/net.js';

afterEach(() => void vi.useRealTimers());

/** Node and ours; the sockets of both are the same to the test. */
const NETS = [
  ['Node', { createServer: createNodeServer, connect: nodeConnect }],
  ['ours', { createServer, connect } as unknown as typeof import('node:net')],
] as const;

test.each(NETS)(
  'a connection opens, echoes and closes while the timers are fake: %s',
  async (_, { createServer, connect }) => {
    vi.useFakeTimers();
    const server = createServer((socket) => socket.pipe(socket)).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
    const bytes = Buffer.alloc(1 << 20, 'x');
    let received = 0;
    socket.on('data', (chunk: Buffer) => {
      received += chunk.length;
      if (received === bytes.length) socket.end();
    });
    socket.write(bytes);
    await once(socket, 'close');
    server.close();
    await once(server, 'close');
    expect(received).toBe(bytes.length);
  },
);

test('the idle time of a socket passes by the real clock', async () => {
  vi.useFakeTimers();
  await using server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
  await once(socket, 'connect');
  socket.setTimeout(50);
  await once(socket, 'timeout');
  socket.destroy();
  await once(socket, 'close');
});
