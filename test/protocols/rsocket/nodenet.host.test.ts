// The same programs over node:net and over wasm-roce/net: what their sockets and servers do is compared.
import { once } from 'node:events';
import { pipeline } from 'node:stream/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'vitest';
import { eventually } from '../../kit/eventually.js';
import { useDevices } from '../devices.js';
import { thrown } from '../thrown.js';
import {
  type AnySocket,
  closed,
  comparePrograms,
  ended,
  follow,
  type Log,
  listening,
  type Programs,
  state,
} from './worlds.js';

useDevices();

const PROGRAMS: Programs = {
  async 'an echo: events of both ends, counts'(world) {
    const [near, far]: [Log, Log] = [[], []];
    const server = world.createServer({}, (socket) => follow(far, 'server', socket).pipe(socket));
    const port = await listening(server);
    const socket = follow(near, 'client', world.connect({ port }));
    near.push(state(socket));
    socket.write('hello');
    near.push(socket.bytesWritten, socket.writableLength);
    socket.end(' world');
    near.push(state(socket));
    socket.on('data', () => {});
    await ended(socket);
    near.push(state(socket), socket.bytesRead, socket.bytesWritten);
    await closed(server);
    return [near, far];
  },

  async 'allowHalfOpen at the server: it answers after our end'(world) {
    const [near, far]: [Log, Log] = [[], []];
    const server = world.createServer({ allowHalfOpen: true }, (socket) => {
      follow(far, 'server', socket).resume();
      socket.on('end', () => {
        far.push(state(socket));
        socket.end('late');
      });
    });
    const socket = follow(near, 'client', world.connect({ port: await listening(server) }));
    socket.on('data', (data) => near.push(`${data}`));
    socket.end();
    await ended(socket);
    await closed(server);
    return [near, far];
  },

  async 'allowHalfOpen at the client: it writes after the end of the server'(world) {
    const [near, far]: [Log, Log] = [[], []];
    const server = world.createServer({}, (socket) => {
      follow(far, 'server', socket);
      socket.on('data', (data) => far.push(`${data}`));
      socket.end('first');
    });
    const port = await listening(server);
    const socket = follow(near, 'client', world.connect({ port, allowHalfOpen: true }));
    socket.resume();
    await once(socket, 'end');
    near.push(state(socket));
    socket.end('second');
    await ended(socket);
    await closed(server);
    return [near, far];
  },

  async 'a socket that is paused gets nothing until it is resumed'(world) {
    const log: Log = [];
    const server = world.createServer({ pauseOnConnect: true }, async (socket) => {
      log.push(socket.isPaused());
      socket.on('data', (data) => log.push(`${data}`));
      await sleep(20);
      log.push('resumed');
      socket.resume();
    });
    const socket = world.connect({ port: await listening(server) });
    socket.end('hello');
    socket.resume();
    await ended(socket);
    await closed(server);
    return log;
  },

  async 'destroy before, while and after connecting, with an error and without'(world) {
    const log: Log = [];
    const server = world.createServer({}, (socket) => socket.on('error', () => {}).resume());
    const port = await listening(server);
    const never = follow(log, 'never', world.socket());
    never.destroy();
    await ended(never);
    const early = follow(log, 'early', world.connect({ port }));
    early.destroy();
    await ended(early);
    const failed = follow(log, 'failed', world.connect({ port }));
    failed.destroy(Object.assign(new Error('why'), { code: 'EWHY' }));
    await ended(failed);
    const late = follow(log, 'late', world.connect({ port }));
    await once(late, 'connect');
    late.destroy();
    await ended(late);
    log.push(state(late));
    const broken = follow(log, 'broken', world.connect({ port }));
    await once(broken, 'connect');
    broken.destroy(Object.assign(new Error('why'), { code: 'EWHY' }));
    await ended(broken);
    await closed(server);
    return log;
  },

  async 'writing after the end, after destroy, and what is no data'(world) {
    const log: Log = [];
    const server = world.createServer({}, (socket) => socket.on('error', () => {}).resume());
    const port = await listening(server);
    const socket = follow(log, 'ended', world.connect({ port }));
    await once(socket, 'connect');
    socket.end();
    socket.write('more', (error) => log.push((error as NodeJS.ErrnoException).code));
    await ended(socket);
    const gone = follow(log, 'gone', world.connect({ port }));
    await once(gone, 'connect');
    gone.destroy();
    gone.write('more', (error) => log.push((error as NodeJS.ErrnoException).code));
    await ended(gone);
    const wrong = world.connect({ port });
    log.push(
      thrown(() => wrong.write(7 as never)),
      thrown(() => wrong.write(null as never)),
    );
    wrong.destroy();
    await ended(wrong);
    await closed(server);
    return log;
  },

  async 'a peer that resets'(world) {
    const [near, far]: [Log, Log] = [[], []];
    const server = world.createServer({}, (socket) => {
      follow(far, 'server', socket);
      socket.once('data', () => socket.resetAndDestroy());
    });
    const socket = follow(near, 'client', world.connect({ port: await listening(server) }));
    socket.write('go');
    await ended(socket);
    near.push(state(socket));
    await closed(server);
    return [near, far];
  },

  async 'nobody listens'(world) {
    const log: Log = [];
    const server = world.createServer({});
    const port = await listening(server);
    await closed(server);
    const socket = follow(log, 'client', world.connect({ port }));
    const [error] = (await once(socket, 'error')) as [NodeJS.ErrnoException & { address: string; port: number }];
    log.push(error.code, error.syscall, error.address === world.host, error.port === port);
    await ended(socket);
    log.push(state(socket));
    return log;
  },

  async 'a timeout without traffic, and values that are none'(world) {
    const log: Log = [];
    const server = world.createServer({}, (socket) => socket.resume());
    const socket = follow(log, 'client', world.connect({ port: await listening(server) }));
    log.push(socket.timeout);
    await once(socket, 'connect');
    log.push(socket.setTimeout(30) === socket, socket.timeout);
    await once(socket, 'timeout');
    log.push(state(socket).readyState);
    socket.setTimeout(0);
    for (const value of [-1, Number.NaN, 'x', undefined]) log.push(thrown(() => socket.setTimeout(value as never)));
    socket.end();
    await ended(socket);
    await closed(server);
    return log;
  },

  async 'calls that return the socket or the server'(world) {
    const server = world.createServer({}, (socket) => socket.resume());
    const port = await listening(server);
    const socket = world.connect({ port });
    const same = [
      socket.setNoDelay() === socket,
      socket.setNoDelay(true) === socket,
      socket.setKeepAlive(true, 1000) === socket,
      socket.setKeepAlive() === socket,
      socket.ref() === socket,
      socket.unref() === socket,
      server.ref() === server,
      server.unref() === server,
      socket.pause() === socket,
      socket.resume() === socket,
      socket.setEncoding('utf8') === socket,
    ];
    await once(socket, 'connect');
    socket.end();
    await ended(socket);
    await closed(server);
    return same;
  },

  async 'addresses before, during and after'(world) {
    const log: Log = [];
    const server = world.createServer({}, (socket) => socket.resume());
    log.push(server.address(), server.listening);
    const port = await listening(server);
    log.push(server.listening);
    const socket = world.connect({ port });
    const shown = () => [
      Object.keys(socket.address()).sort(),
      socket.remoteAddress === world.host,
      socket.remotePort === port,
      socket.remoteFamily,
      typeof socket.localAddress,
      typeof socket.localPort,
      socket.localFamily,
    ];
    log.push(socket.remoteAddress, socket.remotePort, socket.remoteFamily);
    await once(socket, 'connect');
    log.push(shown());
    socket.destroy();
    await ended(socket);
    log.push([socket.remoteAddress === world.host, socket.remotePort === port, socket.address(), socket.localPort]);
    await closed(server);
    log.push(server.address(), server.listening);
    return log;
  },

  async 'errors of a server: listening twice, on a port that is taken, closing twice'(world) {
    const log: Log = [];
    const server = world.createServer({});
    log.push(((await closed(server)) as NodeJS.ErrnoException).code);
    const port = await listening(server, { port: 0, host: world.host });
    log.push(thrown(() => server.listen(0)));
    const second = world.createServer({});
    second.listen({ port, host: world.host });
    const [error] = (await once(second, 'error')) as [NodeJS.ErrnoException & { port: number }];
    log.push(error.code, error.syscall, error.port === port, second.listening);
    const third = await listening(second);
    log.push(typeof third);
    log.push(await closed(second), await closed(server));
    log.push(((await closed(server)) as NodeJS.ErrnoException).code);
    const again = await listening(server);
    log.push(typeof again, await closed(server));
    return log;
  },

  async 'arguments that are wrong'(world) {
    const log: Log = [];
    for (const port of [-1, 65536, 1.5, 'x', Number.NaN])
      log.push(thrown(() => world.socket().connect({ port: port as number, host: world.host })));
    log.push(thrown(() => world.socket().connect({} as never)));
    const server = world.createServer({});
    for (const port of [-1, 65536, 'x']) log.push(thrown(() => server.listen({ port: port as number })));
    return log;
  },

  async 'a server closes when its last connection has ended'(world) {
    const log: Log = [];
    let accepted: AnySocket | undefined;
    const server = world.createServer({}, (socket) => {
      accepted = socket.resume();
    });
    server.on('close', () => log.push('closed'));
    const port = await listening(server);
    const socket = world.connect({ port }).resume();
    await once(socket, 'connect');
    await eventually(() => expect(accepted !== undefined).toBe(true));
    const count = () => new Promise((resolve) => server.getConnections((_, connections) => resolve(connections)));
    log.push(await count());
    const done = closed(server);
    const late = world.connect({ port });
    log.push(((await once(late, 'error'))[0] as NodeJS.ErrnoException).code);
    log.push('ends', await count());
    socket.end();
    await done;
    log.push(await count());
    return log;
  },

  async 'maxConnections drops what is above it'(world) {
    const log: Log = [];
    const server = world.createServer({}, (socket) => socket.on('error', () => {}).resume());
    server.maxConnections = 1;
    const port = await listening(server);
    const first = world.connect({ port }).resume();
    await once(first, 'connect');
    const drop = once(server, 'drop');
    const second = world.connect({ port }).on('error', () => {});
    const [{ localPort, remoteFamily, localFamily, remotePort }] = await drop;
    log.push(localPort === port, typeof remoteFamily, typeof localFamily, typeof remotePort);
    await ended(second.resume());
    first.end();
    await ended(first);
    await closed(server);
    return log;
  },

  async 'signals that end a connection and a server'(world) {
    const log: Log = [];
    const stop = new AbortController();
    const server = world.createServer({}, (socket) => socket.on('error', () => {}).resume());
    server.on('close', () => log.push('server close'));
    const port = await listening(server, { port: 0, signal: stop.signal });
    const abort = new AbortController();
    const socket = follow(log, 'client', world.connect({ port, signal: abort.signal } as never));
    await once(socket, 'connect');
    abort.abort();
    await ended(socket);
    stop.abort();
    await eventually(() => expect(log.at(-1)).toBe('server close'));
    const aborted = world.socket({ signal: AbortSignal.abort() });
    log.push(((await once(aborted, 'error'))[0] as NodeJS.ErrnoException).code);
    return log;
  },

  async 'readable events, iteration, and pipeline'(world) {
    const log: Log = [];
    const server = world.createServer({}, (socket) => {
      pipeline(socket, socket).catch(() => {});
    });
    const port = await listening(server);
    const reader = world.connect({ port });
    reader.end('a readable');
    const chunks: Buffer[] = [];
    reader.on('readable', () => {
      for (let data = reader.read(); data !== null; data = reader.read()) chunks.push(data);
    });
    await once(reader, 'end');
    log.push(`${Buffer.concat(chunks)}`);
    await ended(reader);
    const iterated = world.connect({ port });
    iterated.setEncoding('utf8').end('an iteration');
    let found = '';
    for await (const piece of iterated) found += piece;
    log.push(found, typeof iterated.destroyed);
    await closed(server);
    return log;
  },

  async 'connect again after close'(world) {
    const log: Log = [];
    const server = world.createServer({}, (socket) => socket.end('hello'));
    const port = await listening(server);
    const socket = follow(log, 'client', world.socket());
    for (let i = 0; i < 2; i++) {
      socket.connect({ port, host: world.host });
      log.push(state(socket));
      socket.resume();
      await once(socket, 'close');
    }
    await closed(server);
    return log;
  },

  async 'destroySoon, and ends with data before the connection'(world) {
    const [near, far]: [Log, Log] = [[], []];
    const server = world.createServer({}, (socket) => {
      socket.setEncoding('utf8').on('data', (text: string) => far.push(text.length));
      socket.on('error', () => {});
    });
    const port = await listening(server);
    const socket = follow(near, 'client', world.connect({ port }));
    socket.write('x'.repeat(10));
    socket.destroySoon();
    await ended(socket);
    near.push(socket.bytesWritten);
    await closed(server);
    return [near, far];
  },
};

comparePrograms(PROGRAMS);
