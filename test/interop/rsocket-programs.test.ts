// Unchanged programs of TCP under librspreload.so, and rcopy, which is written for rsockets.
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer as createHttpServer, type IncomingMessage, request } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connect, createServer, type Server, type Socket } from '../../src/net.js';
import { OurDevice } from './card.js';
import { describeWithRxe } from './environment.js';
import type { GuestCommand } from './guest/command.js';
import { CARD, GUEST } from './guest/network.js';

/** Libraries that make rsockets of a program's TCP sockets; rsocketflags.c says why there are two. */
const LIBRARIES = '/usr/lib/rsocketflags.so /usr/lib/x86_64-linux-gnu/rsocket/librspreload.so';
const RCOPY_PORT = 7427;
const MB = 1_000_000;
/** Connections at once. The guest's processor is emulated. */
const CONNECTIONS = 20;

const hashOf = (data: Uint8Array) => createHash('sha256').update(data).digest('hex');

describeWithRxe('programs over rsockets', 1500, (environment) => {
  let our: OurDevice;
  beforeAll(async () => {
    our = await OurDevice.open('packet', { memoryBytes: 128 * 2 ** 20 });
  });
  afterAll(() => our[Symbol.asyncDispose]());

  /** Starts a program of the guest whose sockets are rsockets. */
  const preloaded = (words: string): GuestCommand =>
    environment.guest.spawn(['env', `LD_PRELOAD=${LIBRARIES}`, ...words.split(' ')]);

  const client = (port: number): Socket => connect({ device: our.device, host: GUEST.ipv4, port });

  async function serve(port: number, onConnection: (socket: Socket) => void): Promise<Server> {
    const server = createServer({ device: our.device, allowHalfOpen: true }, onConnection).listen(port);
    await once(server, 'listening');
    return server;
  }

  const closed = (server: Server) => new Promise((resolve) => server.close(resolve));

  /** Relays connections to a server of the guest: we are the server of one program and the client of another. */
  const relay = (port: number, to = port) =>
    serve(port, (near) => {
      const far = connect({ device: our.device, host: GUEST.ipv4, port: to, allowHalfOpen: true });
      for (const [from, into] of [
        [near, far],
        [far, near],
      ] as const)
        pipeline(from, into).catch((error) => into.destroy(error));
    });

  /** Succeeds with the output of a program. */
  async function output(command: GuestCommand): Promise<string> {
    const { status, stdout, stderr } = await command.exited;
    expect(status, stderr + stdout).toBe(0);
    return stdout;
  }

  test('rcopy copies a file of 50 MB through a relay of ours', async () => {
    const { guest } = environment;
    await guest.run(`mkdir -p /tmp/rcopy && head -c ${50 * MB} /dev/urandom > /tmp/rcopy/from`, { timeout: 60_000 });
    await using _server = guest.spawn(['rcopy']);
    await guest.listening(RCOPY_PORT, 'rdma');
    const port = RCOPY_PORT + 1;
    const server = await relay(port, RCOPY_PORT);
    await output(guest.spawn(['rcopy', '/tmp/rcopy/from', `${CARD.ipv4}:/tmp/rcopy/to`, '-p', String(port)]));
    const sums = await guest.run('sha256sum /tmp/rcopy/* | cut -d" " -f1 | uniq | wc -l; rm -r /tmp/rcopy');
    expect(sums.trim()).toBe('1');
    await closed(server);
  }, 120_000);

  test('curl loads from our HTTP server, and stores there', async () => {
    const data = randomBytes(5 * MB);
    const http = createHttpServer(async (asked, answer) => {
      if (asked.method === 'GET') answer.end(data);
      else answer.end(hashOf(await buffer(asked)));
    });
    const server = await serve(7480, (socket) => http.emit('connection', socket));
    const url = `http://${CARD.ipv4}:7480/`;
    await output(preloaded(`curl -sS -o /tmp/loaded ${url}`));
    expect(await environment.guest.run('sha256sum /tmp/loaded')).toContain(hashOf(data));
    expect(await output(preloaded(`curl -sS -T /tmp/loaded ${url}`))).toBe(hashOf(data));
    http.closeAllConnections();
    await closed(server);
  }, 60_000);

  test('our HTTP client loads from python3 -m http.server', async () => {
    const { guest } = environment;
    await guest.run('mkdir -p /tmp/www && head -c 3000000 /dev/urandom > /tmp/www/file');
    const sum = (await guest.run('sha256sum /tmp/www/file')).split(' ')[0];
    await using _server = preloaded('python3 -u -m http.server -d /tmp/www 7481');
    await guest.listening(7481, 'rdma', 30_000);
    for (let i = 0; i < 3; i++) {
      const asked = request({ createConnection: () => client(7481) as never, path: '/file' }).end();
      const [answer] = (await once(asked, 'response')) as [IncomingMessage];
      expect([answer.statusCode, hashOf(await buffer(answer))]).toEqual([200, sum]);
    }
  }, 60_000);

  test('nc sends to our server and to our client, and its end of input is our end', async () => {
    const data = randomBytes(2 * MB);
    const got: Promise<Buffer>[] = [];
    const server = await serve(7482, (socket) => {
      got.push(buffer(socket));
      socket.end('from the server');
    });
    const sender = preloaded(`nc.openbsd -N ${CARD.ipv4} 7482`);
    sender.write(data);
    sender.end();
    expect(await output(sender)).toBe('from the server');
    expect(hashOf((await got[0]) as Buffer)).toBe(hashOf(data));
    await closed(server);

    const listener = preloaded('nc.openbsd -N -l 7483');
    await environment.guest.listening(7483, 'rdma');
    listener.write('from the listener');
    listener.end();
    const socket = client(7483);
    const sent = data.subarray(0, 100_000).toString('base64');
    socket.end(sent);
    const received: Buffer[] = [];
    socket.on('data', (chunk: Buffer) => received.push(chunk));
    await once(socket, 'close');
    expect(`${Buffer.concat(received)}`).toBe('from the listener');
    expect(await output(listener)).toBe(sent);
  }, 60_000);

  test('many connections at once, with a server and a client of the guest', async () => {
    const { guest } = environment;
    await guest.run('mkdir -p /tmp/www && head -c 100000 /dev/urandom > /tmp/www/small');
    const sum = (await guest.run('sha256sum /tmp/www/small')).split(' ')[0];
    await using _server = preloaded('python3 -u -m http.server -d /tmp/www 7486');
    await guest.listening(7486, 'rdma', 30_000);
    const load = async () => {
      const asked = request({ createConnection: () => client(7486) as never, path: '/small' }).end();
      const [answer] = (await once(asked, 'response')) as [IncomingMessage];
      return hashOf(await buffer(answer));
    };
    expect(new Set(await Promise.all(Array.from({ length: CONNECTIONS }, load)))).toEqual(new Set([sum]));

    let [open, most] = [0, 0];
    const waiting: (() => void)[] = [];
    const http = createHttpServer((_, answer) => {
      // answers when all are there
      waiting.push(() => answer.end('here'));
      if (waiting.length === CONNECTIONS) for (const go of waiting) go();
    });
    const server = await serve(7487, (socket) => {
      most = Math.max(most, ++open);
      socket.once('close', () => open--);
      http.emit('connection', socket);
    });
    const url = `http://${CARD.ipv4}:7487/[1-${CONNECTIONS}]`;
    const out = await output(preloaded(`curl -sS -Z --parallel-immediate --parallel-max ${CONNECTIONS} ${url}`));
    expect([out, most]).toEqual(['here'.repeat(CONNECTIONS), CONNECTIONS]);
    http.closeAllConnections();
    await closed(server);
  }, 120_000);

  test('keep-alives end a socket whose peer is silent', async () => {
    const gated = await OurDevice.open('packet', { gates: true });
    const listener = preloaded('nc.openbsd -l 7488');
    await environment.guest.listening(7488, 'rdma');
    const socket = connect({
      device: gated.device,
      host: GUEST.ipv4,
      port: 7488,
      keepAlive: true,
      keepAliveInitialDelay: 100,
      peerTimeout: 2000,
    });
    await once(socket, 'connect');
    // answered for some time
    await new Promise((resolve) => setTimeout(resolve, 500));
    expect(socket.readyState).toBe('open');
    Object.assign(gated.gates as object, { canSend: false, canReceive: false });
    const [error] = await once(socket, 'error');
    expect(error).toMatchObject({ code: 'ETIMEDOUT' });
    Object.assign(gated.gates as object, { canSend: true, canReceive: true });
    await gated.device.close({ force: true });
    await listener.kill();
  }, 60_000);

  test('a peer that is killed ends its sockets with ECONNRESET, as client and as server', async () => {
    const listener = preloaded('nc.openbsd -l 7484');
    await environment.guest.listening(7484, 'rdma');
    const socket = client(7484);
    await once(socket, 'connect');
    const [[error]] = await Promise.all([once(socket, 'error'), listener.kill()]);
    expect(error).toMatchObject({ code: 'ECONNRESET' });

    let accepted: (socket: Socket) => void = () => {};
    const connected = new Promise<Socket>((resolve) => {
      accepted = resolve;
    });
    const server = await serve(7485, accepted);
    const sender = preloaded(`nc.openbsd ${CARD.ipv4} 7485`);
    const served = await connected;
    served.resume();
    const [[reason]] = await Promise.all([once(served, 'error'), sender.kill()]);
    expect(reason).toMatchObject({ code: 'ECONNRESET' });
    await closed(server);
  }, 60_000);
});
