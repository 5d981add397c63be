// TLS and what runs over it: the same programs over node:net and over wasm-roce/net.
import { once } from 'node:events';
import * as http2 from 'node:http2';
import * as https from 'node:https';
import type { Duplex } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import * as tls from 'node:tls';
import { useDevices } from '../devices.js';
import { type AnySocket, closed, comparePrograms, type Log, listening, type World } from './worlds.js';

useDevices();

// a key that both ends have: no certificate is needed
const KEY = Buffer.alloc(16, 7);
const CIPHERS = { ciphers: 'PSK-AES128-GCM-SHA256', maxVersion: 'TLSv1.2' } as const;
const OF_SERVER = { ...CIPHERS, pskCallback: () => KEY } as tls.TLSSocketOptions;
const OF_CLIENT = {
  ...CIPHERS,
  pskCallback: () => ({ psk: KEY, identity: 'test' }),
  checkServerIdentity: () => undefined,
};

const secured = (raw: AnySocket, more: tls.ConnectionOptions = {}) =>
  tls.connect({ ...OF_CLIENT, ...more, socket: raw } as tls.ConnectionOptions);

/** A server of an upper protocol, whose connections are sockets of the world. */
async function serving(world: World, upper: { emit(name: string, socket: Duplex): boolean }) {
  const server = world.createServer({}, (socket) => void upper.emit('connection', socket));
  return { server, port: await listening(server, { port: 0, host: world.host }) };
}

/** Requests with bodies in both directions, by an agent with few connections that it keeps. */
async function requests(world: World, count: number): Promise<{ results: string[]; connections: number }> {
  const web = https.createServer(OF_SERVER as https.ServerOptions, (request, response) => {
    request.resume().on('end', () => response.end(Buffer.alloc(100_000, 3)));
  });
  const { server, port } = await serving(world, web);
  let connections = 0;
  const agent = new https.Agent({ keepAlive: true, maxSockets: 4 });
  Object.assign(agent, {
    createConnection: () => {
      connections++;
      return secured(world.connect({ port }));
    },
  });
  const request = async () => {
    const sent = https.request({ host: world.host, port, agent, method: 'POST' });
    sent.end(Buffer.alloc(50_000));
    try {
      const [response] = await once(sent, 'response');
      return `${(await buffer(response)).length} bytes`;
    } catch (error) {
      return `${error}`;
    }
  };
  const results = await Promise.all(Array.from({ length: count }, request));
  agent.destroy();
  await closed(server);
  return { results, connections };
}

comparePrograms({
  async 'https: requests with bodies over connections that are kept'(world) {
    const { results, connections } = await requests(world, 60);
    return [...new Set(results), connections];
  },

  async 'http2: streams with bodies in both directions'(world) {
    const web = http2.createSecureServer({ ...OF_SERVER, ALPNProtocols: ['h2'] } as http2.SecureServerOptions);
    web.on('stream', (stream) => {
      stream.respond({ ':status': 200 });
      stream.pipe(stream);
    });
    const { server, port } = await serving(world, web);
    const session = http2.connect('https://name', {
      createConnection: () => secured(world.connect({ port }), { ALPNProtocols: ['h2'] }),
    });
    const exchange = async (bytes: number) => {
      const stream = session.request({ ':method': 'POST' });
      stream.end(Buffer.alloc(bytes, 5));
      return (await buffer(stream)).length;
    };
    const lengths = await Promise.all([1, 1000, 300_000, 1_000_000].map(exchange));
    session.close();
    await once(session, 'close');
    await closed(server);
    return lengths;
  },

  async 'an echo, and the end of the client'(world) {
    const log: Log = [];
    const server = world.createServer({ allowHalfOpen: true }, (raw) => {
      const socket = new tls.TLSSocket(raw, { ...OF_SERVER, isServer: true } as tls.TLSSocketOptions);
      socket.on('error', (error) => log.push(`server ${error.message}`));
      socket.pipe(socket);
    });
    const port = await listening(server, { port: 0, host: world.host });
    const raw = world.connect({ port, allowHalfOpen: true } as { port: number });
    const socket = secured(raw);
    await once(socket, 'secureConnect');
    socket.end(Buffer.alloc(1 << 22, 7));
    log.push((await buffer(socket)).length);
    await closed(server);
    return log;
  },

  async 'a server that sends and ends'(world) {
    const server = world.createServer({}, (raw) => {
      new tls.TLSSocket(raw, { ...OF_SERVER, isServer: true } as tls.TLSSocketOptions).end(Buffer.alloc(1 << 21, 1));
    });
    const socket = secured(world.connect({ port: await listening(server, { port: 0, host: world.host }) }));
    const { length } = await buffer(socket);
    await closed(server);
    return [length];
  },

  async 'a client that is destroyed in the middle'(world) {
    const accepted: tls.TLSSocket[] = [];
    const server = world.createServer({}, (raw) => {
      const socket = new tls.TLSSocket(raw, { ...OF_SERVER, isServer: true } as tls.TLSSocketOptions);
      socket.on('error', () => {});
      accepted.push(socket);
      const timer = setInterval(() => socket.write(Buffer.alloc(10_000)), 1);
      socket.on('close', () => clearInterval(timer));
    });
    const socket = secured(world.connect({ port: await listening(server, { port: 0, host: world.host }) }));
    await once(socket, 'data');
    socket.destroy();
    for (const one of accepted) await new Promise((resolve) => (one.closed ? resolve(0) : one.on('close', resolve)));
    await closed(server);
    return [accepted.length];
  },
});
