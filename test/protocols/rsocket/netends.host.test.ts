// The ends of sockets and servers, and callbacks of writes: over node:net and over wasm-roce/net.
import { EventEmitter, getEventListeners, once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import * as ourNet from '../../../src/net.js';
import { eventually } from '../../kit/eventually.js';
import { useDevices } from '../devices.js';
import {
  type AnySocket,
  closed,
  comparePrograms,
  ended,
  follow,
  type Log,
  listening,
  type Programs,
  rsockets,
  state,
  tcp,
  type World,
} from './worlds.js';

useDevices();

const codeOf = (error: Error | null | undefined) => (error ? (error as NodeJS.ErrnoException).code : `${error}`);

/** More than all buffers take. */
const LARGE = Buffer.alloc(64 << 20);

/** Returns the events of a server whose client ends in some way after it has got a greeting. */
async function seen(
  world: World,
  end: (client: AnySocket, abort: AbortController) => Promise<void> | void,
  allowHalfOpen: boolean,
): Promise<Log> {
  const log: Log = [];
  let last: AnySocket | undefined;
  const server = world.createServer({ allowHalfOpen }, (socket) => {
    last = follow(log, 'server', socket);
    socket.on('data', (data) => log.push(`${data}`)).write('hello');
  });
  const port = await listening(server);
  const abort = new AbortController();
  const client = world.connect({ port, signal: abort.signal } as never).on('error', () => {});
  await once(client, 'connect');
  await end(client, abort);
  await ended(client);
  await eventually(() => expect(log).toContainEqual(expect.stringMatching(/server (end|error|close)/)));
  await sleep(20);
  last?.destroy();
  await closed(server);
  return log;
}

const WAYS: Readonly<Record<string, (client: AnySocket, abort: AbortController) => Promise<void> | void>> = {
  'destroy()': async (client) => {
    await once(client, 'data');
    client.destroy();
  },
  'destroy(error)': async (client) => {
    await once(client, 'data');
    client.destroy(new Error('enough'));
  },
  'a write and destroy(error)': async (client) => {
    await once(client, 'data');
    client.write('last words');
    client.destroy(new Error('enough'));
  },
  'leaving a for await': async (client) => {
    for await (const _ of client) break;
  },
  'an aborted signal': async (client, abort) => {
    await once(client, 'data');
    abort.abort();
  },
  'resetAndDestroy()': async (client) => {
    await once(client, 'data');
    client.resetAndDestroy();
  },
};

const PROGRAMS: Programs = {
  async 'the callback of each write and end is called once: destroy of a connected socket'(world) {
    const log: Log = [];
    const server = world.createServer({}, (socket) => socket.on('error', () => {}).pause());
    const port = await listening(server);
    const socket = follow(log, 'client', world.connect({ port }));
    await once(socket, 'connect');
    socket.write(LARGE, (error) => log.push('in flight', codeOf(error)));
    socket.write('waiting', (error) => log.push('waiting', codeOf(error)));
    socket.end('last', () => log.push('ended'));
    await sleep(20);
    socket.destroy();
    await ended(socket);
    socket.write('late', (error) => log.push('late', codeOf(error)));
    await sleep(10);
    server.close();
    return [log.filter((line) => line !== 'client close false').sort(), socket.destroyed];
  },

  async 'the callback of each write and end is called once: before the connection'(world) {
    const log: Log = [];
    const server = world.createServer({}, (socket) => socket.on('error', () => {}).resume());
    const port = await listening(server);
    for (const error of [undefined, Object.assign(new Error('why'), { code: 'EWHY' })]) {
      const socket = follow(log, 'client', world.connect({ port }));
      socket.write('first', (error) => log.push('first', codeOf(error)));
      socket.write('second', (error) => log.push('second', codeOf(error)));
      socket.end(() => log.push('ended'));
      socket.destroy(error);
      await ended(socket);
    }
    await closed(server);
    const refused = follow(log, 'refused', world.connect({ port }));
    refused.write('first', (error) => log.push('first', codeOf(error)));
    await ended(refused);
    return log;
  },

  async 'the callback of each write is called once: the peer resets'(world) {
    const log: Log = [];
    const server = world.createServer({}, (socket) => {
      socket.on('error', () => {}).once('readable', () => socket.resetAndDestroy());
    });
    const port = await listening(server);
    const socket = world.connect({ port }).on('error', () => log.push('error'));
    let calls = 0;
    socket.write(LARGE, (error) => log.push('in flight', error ? 'error' : '', ++calls));
    socket.write('waiting', (error) => log.push('waiting', error ? 'error' : '', ++calls));
    await ended(socket);
    await closed(server);
    return [log.length, calls];
  },

  async 'a write after both ends fails with EPIPE'(world) {
    const log: Log = [];
    const server = world.createServer({}, (socket) => socket.resume().end());
    const port = await listening(server);
    const socket = follow(log, 'client', world.connect({ port }));
    socket.on('connect', () => socket.end()).resume();
    socket.on('error', (error) => log.push(error.message, error.name));
    socket.on('end', () => log.push(socket.write('x', (error) => log.push('callback', codeOf(error)))));
    await ended(socket);
    const again = follow(log, 'again', socket.connect({ port, host: world.host }) as AnySocket);
    log.push(again.write('can be written again'));
    await ended(again);
    await closed(server);
    return log;
  },

  async 'a socket connects again right after destroy'(world) {
    const log: Log = [];
    const server = world.createServer({}, (socket) => socket.pipe(socket));
    const port = await listening(server);
    const socket = world.connect({ port });
    await once(socket, 'connect');
    for (let i = 0; i < 3; i++) {
      socket.destroy();
      socket.connect({ port, host: world.host });
      log.push(state(socket));
      await once(socket, 'connect');
      socket.write(`hello ${i}`);
      const [data] = await once(socket, 'data');
      log.push(`${data}`, socket.bytesRead, socket.bytesWritten, state(socket));
    }
    socket.destroy();
    socket.connect({ port, host: world.host });
    socket.destroy();
    await ended(socket);
    log.push(state(socket));
    await closed(server);
    return log;
  },

  async 'an error is emitted before close, and at once'(world) {
    const log: Log = [];
    const server = world.createServer({}, (socket) => socket.on('error', () => {}).resume());
    const port = await listening(server);
    const socket = world.connect({ port });
    await once(socket, 'connect');
    socket.on('error', () => log.push('error')).on('close', () => log.push('close'));
    socket.destroy(new Error('enough'));
    log.push(socket.closed);
    process.nextTick(() => log.push('next tick'));
    await ended(socket);
    await closed(server);
    return log;
  },

  async 'signals of listen: aborted before, at once, and while it listens'(world) {
    const log: Log = [];
    const watch = async (signal: AbortSignal, act: () => void) => {
      const server = world.createServer({});
      for (const event of ['listening', 'close', 'error']) server.on(event, () => log.push(event));
      server.listen({ port: 0, signal });
      act();
      await eventually(() => expect(log.at(-1)).toBe('close'));
      log.push(server.listening);
    };
    await watch(AbortSignal.abort(), () => {});
    const now = new AbortController();
    await watch(now.signal, () => now.abort());
    const later = new AbortController();
    await watch(later.signal, () => setTimeout(() => later.abort(), 50));
    return log;
  },

  async 'close: right after listen, twice, and of a server that does not listen'(world) {
    const log: Log = [];
    const server = world.createServer({});
    for (const event of ['listening', 'close', 'error']) server.on(event, () => log.push(event));
    server.close((error) => log.push(codeOf(error)));
    await sleep(10);
    server.listen(0).close((error) => log.push(codeOf(error)));
    await sleep(20);
    server.listen(0).close();
    server.close();
    await sleep(20);
    server.listen(0);
    await once(server, 'listening');
    log.push((server.address() as AddressInfo).port > 0);
    await closed(server);
    return log;
  },

  async 'captureRejections: a rejected listener ends its socket, or is an error of the server'(world) {
    const log: Log = [];
    EventEmitter.captureRejections = true;
    try {
      const server = world.createServer({}, async (socket) => {
        socket.on('error', (error) => log.push(error.message));
        throw new Error('of connection');
      });
      server.on('error', (error) => log.push(error.message));
      server.on('listening', async () => {
        throw new Error('of listening');
      });
      const port = await listening(server);
      const socket = follow(log, 'client', world.connect({ port })).resume();
      await ended(socket);
      await closed(server);
    } finally {
      EventEmitter.captureRejections = false;
    }
    return log.sort();
  },
};

comparePrograms(PROGRAMS);

describe('a server sees the same of a client that ends by', () => {
  const rows = Object.keys(WAYS).flatMap((way) => [false, true].map((allowHalfOpen) => [way, allowHalfOpen] as const));
  test.each(rows)('%s, allowHalfOpen %s', async (way, allowHalfOpen) => {
    const end = WAYS[way] as (typeof WAYS)[string];
    expect(await seen(rsockets, end, allowHalfOpen)).toEqual(await seen(tcp, end, allowHalfOpen));
  });
});

test('no connection is emitted after the close of its server, whenever it closes', async () => {
  for (let turns = 0; turns < 60; turns++) {
    const log: string[] = [];
    const server = rsockets.createServer({}, (socket) => {
      log.push('connection');
      socket.on('error', () => {}).resume();
    });
    for (const event of ['close', 'error']) server.on(event, () => log.push(event));
    const port = await listening(server);
    const socket = rsockets.connect({ port }).on('error', () => {});
    for (let i = 0; i < turns; i++) await new Promise((resolve) => setImmediate(resolve));
    server.close();
    await new Promise((resolve) => setImmediate(resolve));
    socket.destroy();
    await eventually(() => expect(log).toContain('close'));
    await sleep(1);
    expect(['close', 'connection,close']).toContain(log.join());
  }
});

test('a destroyed socket closes within a second, whatever is unread at both ends', async () => {
  const accepted: AnySocket[] = [];
  const server = rsockets.createServer({}, (socket) => {
    accepted.push(socket.on('error', () => {}).pause());
    socket.write(LARGE);
  });
  const port = await listening(server);
  for (const bytes of [0, 1000, 300_000, 64 << 20]) {
    const socket = rsockets.connect({ port });
    await once(socket, 'connect');
    socket.write(Buffer.alloc(bytes));
    await sleep(50);
    const begin = performance.now();
    socket.destroy();
    await once(socket, 'close');
    expect(performance.now() - begin).toBeLessThan(1000);
  }
  for (const socket of accepted) socket.destroy();
  await closed(server);
});

test('a signal has no listener after a listen that failed, and after a server that has closed', async () => {
  const { signal } = new AbortController();
  const server = rsockets.createServer({});
  const port = await listening(server, { port: 0, signal });
  const second = rsockets.createServer({});
  second.listen({ port, signal });
  await once(second, 'error');
  expect(getEventListeners(signal, 'abort')).toHaveLength(1);
  await closed(server);
  expect(getEventListeners(signal, 'abort')).toHaveLength(0);
});

test('sockets that are destroyed while their device opens leave it to the others', async () => {
  const host = '127.0.0.1';
  const server = ourNet.createServer((socket) => socket.pipe(socket));
  await once(server.listen(0, host), 'listening');
  const port = server.address()?.port ?? 0;
  const first = ourNet.connect({ host, port });
  await once(first, 'connect');
  for (let turns = 0; turns < 60; turns++) {
    const socket = ourNet.connect({ host, port });
    for (let i = 0; i < turns; i++) await (turns % 2 ? Promise.resolve() : new Promise((done) => setImmediate(done)));
    socket.destroy();
    await once(socket, 'close');
  }
  first.write('still there');
  expect(`${(await once(first, 'data'))[0]}`).toBe('still there');
  first.destroy();
  await new Promise((resolve) => server.close(resolve));
});
