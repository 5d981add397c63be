// The connector of clients of Valkey: which server it connects to. The servers speak as much RESP as a cluster needs.
import { once } from 'node:events';
import type { Duplex } from 'node:stream';
import { Cluster, Valkey } from 'iovalkey';
import { expect, test } from 'vitest';
import { connector, createServer, type ValkeyServer } from '../../../src/valkey.js';
import { device, HOST, peer, useDevices } from '../devices.js';

useDevices();

const PORTS = [7801, 7802] as const;
/** Slots of the keys of the test: `a` belongs to the second node, `b` to the first. */
const SLOTS = { a: 15_495, b: 3300 };

const bulk = (text: string) => `$${text.length}\r\n${text}\r\n`;
const node = (from: number, to: number, port: number) => `*3\r\n:${from}\r\n:${to}\r\n*2\r\n${bulk(HOST)}:${port}\r\n`;
const CLUSTER = `*2\r\n${node(0, 8191, PORTS[0])}${node(8192, 16_383, PORTS[1])}`;

/** Answers commands, which come one in a chunk or several, as a node that has some of the slots. */
function serve(socket: Duplex, isFirst: boolean): void {
  socket.on('error', () => {});
  socket.on('data', (data: Buffer) => {
    for (const command of data.toString().split('*').slice(1)) {
      const [name = '', key = ''] = [...command.matchAll(/\$\d+\r\n([^\r]*)/g)].map(([, word = '']) => word);
      const slot = SLOTS[key as 'a'];
      if (name.toLowerCase() === 'cluster')
        socket.write(key.toLowerCase() === 'slots' ? CLUSTER : bulk('cluster_state:ok'));
      else if (name.toLowerCase() === 'info') socket.write(bulk('cluster_enabled:1'));
      else if (slot === undefined) socket.write('+OK\r\n');
      else if (slot < 8192 === isFirst) socket.write(bulk(`${key} of ${isFirst ? 'first' : 'second'}`));
      else socket.write(`-MOVED ${slot} ${HOST}:${PORTS[isFirst ? 1 : 0]}\r\n`);
    }
  });
}

async function servers(): Promise<ValkeyServer[]> {
  return Promise.all(
    PORTS.map(async (port, i) => {
      const server = createServer({ device: peer }, (socket) => serve(socket, i === 0));
      server.listen(port);
      await once(server, 'listening');
      return server;
    }),
  );
}

const closed = (all: ValkeyServer[]) => Promise.all(all.map((server) => server[Symbol.asyncDispose]()));

test.each([
  ['the connector names a node', { host: HOST, port: PORTS[0] }],
  ['the connector names none', {}],
])('a cluster reaches each of its nodes: %s', async (_, options) => {
  const all = await servers();
  const cluster = new Cluster([{ host: HOST, port: PORTS[1] }], {
    redisOptions: { Connector: connector({ device, ...options }) as never },
  });
  expect([await cluster.get('a'), await cluster.get('b')]).toEqual(['a of second', 'b of first']);
  cluster.disconnect();
  await closed(all);
});

test.each([
  ['the client', { host: HOST, port: PORTS[1] }, { port: PORTS[0] }, 'a of second'],
  ['the connector, where the client has its defaults', {}, { host: HOST, port: PORTS[1] }, 'a of second'],
])('a client connects to the server of %s', async (_, client, options, found) => {
  const all = await servers();
  const Connector = connector({ device, ...options }) as never;
  const valkey = new Valkey({ ...client, Connector, retryStrategy: () => null });
  expect(await valkey.get('a')).toBe(found);
  valkey.disconnect();
  await closed(all);
});

test.each(['sentinels', 'tls'])('a client with the option %s is refused by name', (name) => {
  expect(() => new (connector({ device }))({ [name]: [{}] })).toThrow(`the option ${name}`);
});
