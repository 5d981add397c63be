// The handshake of ibv_rc_pingpong, byte by byte.
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import { decodeDestination, encodeDestination } from '../../src/cli/pingpong/handshake.js';
import { freePort, run, start } from './run.js';

const GID = '00000000000000000000ffff0a000001';
const HOST = '127.78.0.1';

test('a handshake has 52 bytes: LID, QPN, PSN, GID in lower case hexadecimal, and a NUL', () => {
  const message = encodeDestination({ qpNum: 0x11, psn: 0xabcdef, gid: '::ffff:10.0.0.1' });
  expect(message.toString('latin1')).toBe(`0000:000011:abcdef:${GID}\0`);
  expect(message.length).toBe(52);
});

test('a handshake is read back', () => {
  const message = Buffer.from(`0001:00001a:0d3f1b:${GID}\0`, 'latin1');
  expect(decodeDestination(message)).toEqual({ qpNum: 0x1a, psn: 0xd3f1b, gid: '::ffff:10.0.0.1' });
});

test.each([
  ['0000:000011:abcdef:00000000000000000000000000000000\0', /sent no GID: .*-g/],
  ['0000:000011:abcdef:00000000000000000000ffff0a00000x\0', /not that of ibv_rc_pingpong/],
  [`GET / HTTP/1.1${' '.repeat(38)}`, /not that of ibv_rc_pingpong/],
])('%j is refused', (text, message) => {
  expect(() => decodeDestination(Buffer.from(text, 'latin1'))).toThrow(message);
});

describe('peers that break the handshake', () => {
  const open: { destroy?(): void; close?(): void }[] = [];
  afterEach(() => {
    for (const each of open.splice(0)) each.destroy ? each.destroy() : each.close?.();
  });

  async function client(): Promise<Socket> {
    const port = await freePort();
    const server = start(['pingpong', '--address', HOST, '--link', 'udp', '-p', String(port), '--idle', '1']);
    open.push({ close: () => server.child.kill('SIGKILL') });
    await server.says('waiting for a client');
    const socket = connect(port, HOST);
    open.push(socket);
    await once(socket, 'connect');
    return Object.assign(socket, { server });
  }

  const endOf = (socket: Socket) => (socket as unknown as { server: ReturnType<typeof start> }).server.ended;

  test('a client that says something else', async () => {
    const socket = await client();
    socket.write(Buffer.alloc(52, 'x'));
    const { status, stderr } = await endOf(socket);
    expect(status).toBe(1);
    expect(stderr).toContain('not that of ibv_rc_pingpong');
  });

  test('a client that says nothing', async () => {
    const { status, stderr } = await endOf(await client());
    expect(status).toBe(1);
    expect(stderr).toMatch(/wasm-roce: the peer's handshake did not come in 1 s\n$/);
  });

  test('a client that goes away after it', async () => {
    const socket = await client();
    socket.write(`0000:000011:abcdef:00000000000000000000ffff7f4e0002\0`);
    const [answer] = (await once(socket, 'data')) as [Buffer];
    expect(answer.toString('latin1')).toMatch(/^0000:[0-9a-f]{6}:[0-9a-f]{6}:00000000000000000000ffff7f4e0001\0$/);
    socket.end();
    const { status, stderr } = await endOf(socket);
    expect(status).toBe(1);
    expect(stderr).toContain("the peer closed the TCP connection before the client's 'done'");
  });

  test('a server that closes at once', async () => {
    const server = createServer((socket) => socket.destroy());
    server.listen(0, '127.0.0.1');
    open.push(server);
    await once(server, 'listening');
    const { port } = server.address() as { port: number };
    const { status, stderr } = await run([
      'pingpong',
      '--address',
      HOST,
      '--link',
      'udp',
      '-p',
      `${port}`,
      '127.0.0.1',
    ]);
    expect(status).toBe(1);
    expect(stderr).toMatch(/TCP connection/);
  });

  test('nobody at all', async () => {
    const { status, stdout, stderr } = await run(['pingpong', '-p', String(await freePort()), '127.0.0.1', '--json']);
    expect(status).toBe(1);
    expect(stderr).toMatch(/^wasm-roce: no connection to 127\.0\.0\.1 port \d+ over TCP: .*ECONNREFUSED.*\n$/);
    expect(JSON.parse(stdout)).toMatchObject({ ok: false });
  });

  test('a TCP port that is taken gives status 3', async () => {
    const server = createServer();
    server.listen(0, HOST);
    open.push(server);
    await once(server, 'listening');
    const { port } = server.address() as { port: number };
    const { status, stderr } = await run(['pingpong', '--address', HOST, '--link', 'udp', '-p', String(port)]);
    expect(status).toBe(3);
    expect(stderr).toMatch(/EADDRINUSE/);
  });
});
