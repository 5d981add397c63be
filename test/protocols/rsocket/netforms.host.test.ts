// The forms of listen and connect, their options and errors: over node:net and over wasm-roce/net.
import { once } from 'node:events';
import { Agent, createServer as createHttpServer, get } from 'node:http';
import type * as nodeNet from 'node:net';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import * as ourNet from '../../../src/net.js';
import { eventually } from '../../kit/eventually.js';
import { device, HOST, useDevices } from '../devices.js';
import { thrown } from '../thrown.js';
import {
  type AnyServer,
  type AnySocket,
  closed,
  comparePrograms,
  ended,
  follow,
  type Log,
  listening,
  type Programs,
  type World,
} from './worlds.js';

useDevices();

/** Calls `listen` with arguments, and returns whether it has listened on an expected port. */
async function listens(world: World, call: unknown[], port?: number): Promise<unknown> {
  const server = world.createServer({});
  const began = once(server, 'listening');
  Reflect.apply(server.listen, server, call);
  await began;
  const { port: found } = server.address() as nodeNet.AddressInfo;
  await closed(server);
  return port === undefined ? found > 0 : found === port;
}

/** Name, code, text and details of an error, without what differs between the networks. */
function shown(error: NodeJS.ErrnoException & { address?: string; port?: number }, world: World): unknown {
  const { name, code, errno, syscall, port } = error;
  const hide = (words: string) => words.replaceAll(world.host, 'HOST').replaceAll(String(port), 'PORT');
  return { name, code, errno, syscall, message: hide(error.message), address: hide(error.address ?? '') };
}

const failure = async (of: AnySocket | AnyServer) => (await once(of, 'error'))[0];

const PROGRAMS: Programs = {
  async 'listen: all forms of its arguments'(world) {
    let listeners = 0;
    const listener = () => void listeners++;
    const { host } = world;
    const forms: unknown[][] = [
      [],
      [listener],
      [null],
      [undefined],
      [undefined, listener],
      [null, listener],
      [0],
      ['0'],
      [0, listener],
      ['0', host],
      [0, host, listener],
      [0, 5],
      [0, 5, listener],
      [0, host, 5],
      [0, host, 5, listener],
      [0, undefined, undefined, listener],
      [{ port: 0 }],
      [{ port: '0' }, listener],
      [{ port: undefined }],
      [{ port: null }, listener],
      [{ port: 0, host, backlog: 5 }, listener],
      [{ port: 0, host: '' }],
      [{ port: 0, host: undefined, backlog: undefined, signal: undefined, exclusive: true }],
    ];
    const log: Log = [];
    for (const form of forms) log.push(await listens(world, form));
    return [...log, listeners, await listens(world, ['18099', host], 18_099), await listens(world, [18_098], 18_098)];
  },

  async 'connect: all forms of its arguments'(world) {
    const server = world.createServer({}, (socket) => socket.end());
    const port = await listening(server, { port: 0, host: world.host });
    let listeners = 0;
    const listener = () => void listeners++;
    const { host } = world;
    const forms: unknown[][] = [
      [port, host],
      [String(port), host, listener],
      [{ port, host }],
      [{ port: String(port), host }, listener],
      [{ port, host, family: 4, hints: 0, noDelay: true, keepAlive: true, keepAliveInitialDelay: 1000 }, listener],
      [{ port, host, localPort: 0, localAddress: undefined, lookup: undefined }],
      [{ port, host, path: null }],
    ];
    for (const form of forms) {
      const socket = world.socket();
      Reflect.apply(socket.connect, socket, form);
      await ended(socket.resume());
    }
    await closed(server);
    return [listeners];
  },

  async 'arguments that are wrong throw the same codes'(world) {
    const connects = [
      [{}],
      [{ port: null }],
      [{ port: {} }],
      [{ port: true }],
      [{ port: 'x' }],
      [{ port: '' }],
      [{ port: 1, host: 5 }],
      [{ port: 1, host: world.host, localAddress: 'x' }],
      [{ port: 1, host: 'localhost', lookup: 5 }],
      [70_000, world.host],
      [null],
      [undefined],
      [true],
    ];
    const lists = [[{}], [{ port: {} }], [{ port: 'x' }], [{ port: -1 }], [70_000], [{ port: 0, signal: 'x' }], [true]];
    const log: Log = [];
    for (const call of connects) {
      const socket = world.socket().on('error', () => {});
      log.push(thrown(() => Reflect.apply(socket.connect, socket, call)));
      socket.destroy();
    }
    for (const call of lists) {
      const server = world.createServer({});
      log.push(thrown(() => Reflect.apply(server.listen, server, call)));
    }
    log.push(thrown(() => world.createServer({ highWaterMark: 'x' } as never)));
    return log;
  },

  async 'the address is known as soon as a server listens on all addresses'(world) {
    const log: Log = [];
    const server = world.createServer({});
    server.listen(0);
    const now = server.address() as nodeNet.AddressInfo;
    log.push(server.listening, now.address, now.family, now.port > 0);
    await once(server, 'listening');
    log.push((server.address() as nodeNet.AddressInfo).port === now.port);
    await closed(server);
    server.listen(now.port);
    server.close();
    log.push(server.listening, server.address());
    await sleep(20);
    server.listen(now.port);
    await once(server, 'listening');
    await closed(server);
    return log;
  },

  async 'errors have the names, texts, numbers and calls of Node.js'(world) {
    const log: Log = [];
    const server = world.createServer({}, (socket) => {
      socket.once('data', () => socket.resetAndDestroy());
    });
    const port = await listening(server, { port: 0, host: world.host });
    const second = world.createServer({});
    second.listen({ port, host: world.host });
    log.push(shown(await failure(second), world));
    second.listen({ port: 0, host: world.host === HOST ? '10.9.9.9' : '192.0.2.9' });
    log.push((await failure(second)).code);
    const socket = world.connect({ port });
    socket.write('go');
    log.push(shown(await failure(socket), world));
    await ended(socket);
    await closed(server);
    const refused = world.connect({ port });
    log.push(shown(await failure(refused), world));
    await ended(refused);
    const unknown = world.connect({ port, host: 'name.invalid' });
    log.push({ ...(await failure(unknown)), errno: 0, code: 'a code of getaddrinfo' });
    await ended(unknown);
    return log;
  },

  async 'highWaterMark, bufferSize, server and what was written'(world) {
    const log: Log = [];
    let accepted: AnySocket | undefined;
    const server = world.createServer({ highWaterMark: 1000 }, (socket) => {
      accepted = socket.resume();
      socket.once('data', () => log.push('data'));
      log.push(socket.readableHighWaterMark, socket.writableHighWaterMark);
      log.push((socket as unknown as { server: unknown }).server === server);
    });
    const port = await listening(server);
    const socket = world.connect({ port, highWaterMark: 100 } as never);
    log.push(socket.readableHighWaterMark, socket.writableHighWaterMark, (socket as never as { server: null }).server);
    socket.write('1234');
    socket.cork();
    socket.write('12345');
    log.push(socket.bufferSize > 0, socket.writableLength, socket.bytesWritten);
    socket.uncork();
    await once(socket, 'connect');
    await eventually(() => expect(log.at(-1)).toBe('data'));
    socket.end(Buffer.alloc(1e6));
    log.push(socket.bytesWritten);
    await ended(socket.resume());
    log.push(socket.bytesWritten, accepted?.bytesRead);
    await closed(server);
    return log;
  },

  async 'onread: bytes go into memory of the program, which pauses and resumes'(world) {
    const log: Log = [];
    const server = world.createServer({}, (socket) => socket.end('hello world'));
    const port = await listening(server);
    let got = '';
    const socket = follow(
      log,
      'client',
      world.connect({
        port,
        onread: {
          buffer: Buffer.alloc(4),
          callback: (bytes: number, buffer: Buffer) => {
            got += buffer.toString('utf8', 0, bytes);
            if (got.length === 4) setTimeout(() => log.push(got, socket.resume() === socket), 20);
            return got.length !== 4;
          },
        },
      } as never),
    );
    await ended(socket);
    log.push(got, socket.bytesRead);
    const memories = [Buffer.alloc(3), Buffer.alloc(3)];
    let calls = 0;
    const made = world.connect({
      port,
      onread: { buffer: () => memories[calls++ % 2], callback: () => true },
    } as never);
    made.on('data', () => log.push('data'));
    await ended(made);
    log.push(
      calls > 2,
      memories.map((memory) => memory.length),
    );
    await closed(server);
    return log;
  },

  async 'onread: a pause within the callback holds until resume'(world) {
    const log: Log = [];
    const server = world.createServer({}, (socket) => socket.end('hello world'));
    const port = await listening(server);
    let got = '';
    const socket: AnySocket = world.connect({
      port,
      onread: {
        buffer: Buffer.alloc(4),
        callback(bytes: number, buffer: Buffer) {
          got += buffer.toString('utf8', 0, bytes);
          socket.pause();
          setTimeout(() => log.push(got, socket.resume() === socket), 20);
          return true;
        },
      },
    } as never);
    await ended(socket);
    log.push(got);
    await closed(server);
    return log;
  },

  async 'onread: no memory for bytes that have come is an error'(world) {
    const log: Log = [];
    const server = world.createServer({}, (socket) => {
      socket.on('error', () => {});
      socket.write('hello');
    });
    const port = await listening(server);
    for (const buffer of [Buffer.alloc(0), () => Buffer.alloc(0)]) {
      const socket = world.connect({ port, onread: { buffer, callback: () => log.push('called') > 0 } } as never);
      socket.on('error', (error: NodeJS.ErrnoException) => log.push(error.message, error.code, error.syscall));
      await new Promise((resolve) => socket.once('close', (hadError) => resolve(log.push(hadError))));
    }
    await closed(server);
    return log;
  },

  async 'all addresses of a name are tried'(world) {
    const log: Log = [];
    const server = world.createServer({}, (socket) => socket.end());
    const port = await listening(server, { port: 0, host: world.host });
    const found = [world.other, world.host].map((address) => ({ address, family: 4 }));
    for (const name of ['the second answers', 'none answers']) {
      if (name === 'none answers') await closed(server);
      const lookup = (_: string, options: { all?: boolean }, done: (error: null, found: unknown) => void) => {
        log.push(name, options.all);
        process.nextTick(done, null, found);
      };
      const socket = follow(log, 'client', world.connect({ port, host: 'name', lookup, ...world.near } as never));
      for (const event of ['connectionAttempt', 'connectionAttemptFailed'])
        socket.on(event as 'close', (...[, at, family, error]: unknown[]) =>
          log.push(event, at === port, family, (error as NodeJS.ErrnoException)?.code),
        );
      socket.on('error', (error) => log.push(error.name, error.message));
      await ended(socket.resume());
      log.push(socket.autoSelectFamilyAttemptedAddresses?.length);
    }
    return log.map((line) => (typeof line === 'string' ? line.replace(/lookup.*/, 'lookup') : line));
  },

  async 'createConnection of a request and of an agent'(world) {
    const log: Log = [];
    const http = createHttpServer((request, response) => response.end(request.url));
    const server = world.createServer({}, (socket) => http.emit('connection', socket));
    const port = await listening(server);
    const createConnection = ((options: nodeNet.TcpNetConnectOpts, done: () => void) =>
      world.connect({ ...options, ...world.near }, done)) as typeof nodeNet.connect;
    const ask = (options: object) =>
      new Promise((resolve, reject) => {
        const request = get({ host: world.host, port, path: '/path', ...options }, (response) =>
          text(response).then(resolve, reject),
        );
        request.on('error', reject);
      });
    const agent = new Agent({ keepAlive: true });
    Object.assign(agent, { createConnection });
    for (const options of [{ createConnection }, { agent }, { agent }]) log.push(await ask(options));
    agent.destroy();
    await closed(server);
    return log;
  },
};

comparePrograms(PROGRAMS);

test.each([
  ['a path to connect to', () => ourNet.connect('/run/socket'), /path is '\/run\/socket'.* no paths/],
  ['a path to listen on', () => new ourNet.Server().listen('socket'), /path is 'socket'.* no paths/],
  ['a path as an option', () => ourNet.connect({ port: 1, path: 'x' } as never), /path is 'x'/],
  ['an unknown option of a server', () => ourNet.createServer({ fd: 3 } as never), /no option 'fd'/],
  ['a number for the options of a server', () => ourNet.createServer(5 as never), /are 5, must be an object/],
  ['an unknown option of a socket', () => new ourNet.Socket({ port: 3 } as never), /no option 'port'/],
  ['an unknown option of connect', () => ourNet.connect({ prt: 3, host: HOST } as never), /no option 'prt'/],
  ['an unknown option of listen', () => new ourNet.Server().listen({ port: 0, ipv6only: true } as never), /'ipv6only'/],
  ['an option of sockets for connect', () => new ourNet.Socket().connect({ port: 1, device } as never), /'device'/],
])('%s is refused by name', (_, call, message) => {
  expect(call).toThrow(message);
});
