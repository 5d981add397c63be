/** The protocols above the verbs: each as a service at one device and a client at another, in a few lines. */
import { deepEqual, equal } from 'node:assert/strict';
import { once } from 'node:events';
import type { Device } from '../../src/index.js';
import * as net from '../../src/net.js';
import * as nvme from '../../src/nvme.js';
import * as rpc from '../../src/rpc.js';
import * as valkey from '../../src/valkey.js';
import { HOST } from './hosts.js';
import { MemoryStorage } from './nvme/memorystorage.js';

export const NQN = 'nqn.2026-01.com.example:disks';
/** The devices of the client, and of the service at `HOST`. */
export interface Ends {
  readonly device: Device;
  readonly peer: Device;
  /** Address of the service. Default `HOST`. */
  readonly host?: string;
  /** Port of a service of byte streams. Default 7000. */
  readonly port?: number;
}

export interface Protocol {
  /** Serves at `peer`. @returns ends the service */
  serve(ends: Ends): Promise<() => Promise<unknown>>;
  /** Talks to the service from `device`. @throws when it is not served */
  talk(ends: Ends): Promise<void>;
}

const PORT = 7000;
const hello = Buffer.from('hello');

export function streamProtocol({ createServer, connect }: typeof net | typeof valkey): Protocol {
  return {
    async serve({ peer, port = PORT }) {
      const server = createServer({ device: peer }, (socket: net.StreamSocket) => {
        socket.on('error', () => {});
        socket.pipe(socket);
      });
      await once(server.listen(port), 'listening');
      return () => server[Symbol.asyncDispose]();
    },
    async talk({ device, host = HOST, port = PORT }) {
      const socket = connect({ device, host, port });
      const closed = new Promise((resolve) => socket.once('close', resolve));
      try {
        const data = Buffer.alloc(300_000, 'hello');
        socket.write(data.subarray(0, 5));
        socket.write(data.subarray(5));
        const parts: Buffer[] = [];
        let bytes = 0;
        for await (const part of socket as AsyncIterable<Buffer>) {
          parts.push(part);
          bytes += part.length;
          if (bytes === data.length) break;
        }
        deepEqual(Buffer.concat(parts), data);
      } finally {
        socket.on('error', () => {}).destroy();
        await closed;
      }
    },
  };
}

export const PROTOCOLS = {
  net: streamProtocol(net),
  valkey: streamProtocol(valkey),
  rpc: {
    async serve({ peer }) {
      const server = await rpc.createServer({
        device: peer,
        methods: { echo: (request) => request },
        streams: {
          async echo(stream) {
            for await (const message of stream) await stream.write(message);
          },
        },
      });
      return () => server.close();
    },
    async talk({ device, host = HOST }) {
      await using client = await rpc.connect({ device, host });
      for (const bytes of [5, 100_000]) equal((await client.call('echo', Buffer.alloc(bytes))).length, bytes);
      const stream = client.stream('echo');
      await stream.write(hello);
      deepEqual(await stream.read(), hello);
      await stream.end();
      equal(await stream.read(), undefined);
    },
  },
  nvme: {
    async serve({ peer }) {
      const storage = new MemoryStorage(2 ** 20);
      const target = await nvme.createTarget({ device: peer, subsystems: [{ nqn: NQN, namespaces: [{ storage }] }] });
      return () => target.close();
    },
    async talk({ device, host = HOST }) {
      await using controller = await nvme.connect({ device, host, nqn: NQN });
      const disk = controller.namespace(1);
      const data = Buffer.alloc(200_704, 7);
      await disk.write(0, data);
      deepEqual(await disk.read(0, data.length), data);
      await disk.flush();
    },
  },
  messages: {
    async serve({ peer }) {
      const server = await peer.listen({ port: PORT });
      server.on('connection', (connection) => {
        void (async () => {
          for await (const { data } of connection) await connection.send(data);
        })().catch((error) => connection.destroy(error));
      });
      return () => server.close();
    },
    async talk({ device, host = HOST }) {
      const connection = await device.connect({ host, port: PORT });
      try {
        await connection.send(hello);
        deepEqual((await connection.receive())?.data, hello);
      } finally {
        await connection.close().catch(() => {});
      }
    },
  },
  'messages as a stream': {
    async serve({ peer }) {
      const server = await peer.listen({ port: PORT });
      server.on('connection', (connection) => {
        const stream = connection.stream();
        stream.on('error', () => {}).pipe(stream);
      });
      return () => server.close();
    },
    async talk({ device, host = HOST }) {
      const connection = await device.connect({ host, port: PORT });
      const stream = connection.stream();
      const closed = new Promise((resolve) => connection.once('close', resolve));
      try {
        stream.write(hello);
        deepEqual((await once(stream, 'data'))[0], hello);
      } finally {
        stream.on('error', () => {}).destroy();
        await closed;
      }
    },
  },
  datagrams: {
    serve: async () => async () => {},
    async talk({ device, peer, host = HOST }) {
      // the queue pair of a socket is that of all its peers
      await using echo = await peer.createSocket().bind(PORT);
      echo.on('error', () => {});
      echo.on('message', (message, rinfo) => void echo.send(message, rinfo).catch(() => {}));
      await using socket = await device.createSocket().bind();
      await socket.send(hello, PORT, host, { timeout: 1000 });
      deepEqual((await socket.receive({ timeout: 1000 }))?.data, hello);
    },
  },
} satisfies Record<string, Protocol>;
