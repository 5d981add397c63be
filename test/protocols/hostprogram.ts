/**
 * A program that is driven from outside: reads calls as lines of JSON, `[name, ...arguments]`, and writes their results
 * as lines of JSON. A test imports the same calls to be the other end. It ends with its standard input.
 */

import * as nodeDgram from 'node:dgram';
import { once } from 'node:events';
import * as nodeNet from 'node:net';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import * as ourDgram from '../../src/dgram.js';
import * as ourNet from '../../src/net.js';
import * as nvme from '../../src/nvme.js';
import * as rpc from '../../src/rpc.js';

/** The module of the sockets. */
export type World = 'node' | 'ours';

type AnyNet = typeof nodeNet;
const netOf = (world: World): AnyNet => (world === 'node' ? nodeNet : (ourNet as unknown as AnyNet));
const dgramOf = (world: World) => (world === 'node' ? nodeDgram : (ourDgram as unknown as typeof nodeDgram));

const warnings: string[] = [];
const open: { close(): unknown }[] = [];

const codeOf = (error: unknown) => ({ code: (error as NodeJS.ErrnoException).code ?? String(error) });
const withText = (error: unknown) => ({ ...codeOf(error), message: (error as Error).message });

/** The calls. Their results are plain data. */
export const CALLS = {
  /** Listens, and greets each client by a name. @returns the address, or the error */
  async listen(world: World, options: nodeNet.ListenOptions, name = 'hello'): Promise<unknown> {
    const server = netOf(world).createServer((socket) => {
      socket.on('error', () => {}).resume();
      socket.end(name);
    });
    server.listen(options);
    const atOnce = server.address();
    try {
      await once(server, 'listening');
    } catch (error) {
      return codeOf(error);
    }
    open.push(server);
    return { atOnce, address: server.address() };
  },

  /** Listens, and sends each client its bytes back. */
  async echo(world: World, options: nodeNet.ListenOptions): Promise<void> {
    const server = netOf(world).createServer((socket) => socket.on('error', () => {}).pipe(socket));
    await once(server.listen(options), 'listening');
    open.push(server);
  },

  /** Connects. @returns the text of the server, and the addresses; or the error */
  async connect(world: World, options: nodeNet.TcpNetConnectOpts): Promise<unknown> {
    const socket = netOf(world).connect(options);
    try {
      await once(socket, 'connect');
      const { localAddress, remoteAddress } = socket;
      let text = '';
      socket.on('data', (data) => {
        text += data;
      });
      await once(socket, 'close');
      return { text, localAddress, remoteAddress };
    } catch (error) {
      return codeOf(error);
    }
  },

  /** Binds a socket that answers each message with the address it came from. @returns the port */
  async bind(world: World, type: 'udp4' | 'udp6', port = 0): Promise<number> {
    const socket = dgramOf(world).createSocket(type);
    socket.on('message', (message, { address, port }) => socket.send(`${message} from ${address}`, port, address));
    socket.bind(port);
    await once(socket, 'listening');
    open.push(socket);
    return socket.address().port;
  },

  /** Sends messages with one socket to several hosts. @returns the answers */
  async ask(world: World, type: 'udp4' | 'udp6', port: number, hosts: readonly string[]): Promise<unknown> {
    const socket = dgramOf(world).createSocket(type);
    const answers: string[] = [];
    for (const host of [...hosts, ...hosts]) {
      const answer = once(socket, 'message');
      socket.send('hi', port, host);
      answers.push(`${(await answer)[0]}`);
    }
    socket.close();
    return answers;
  },

  async serveCalls(port: number): Promise<number> {
    const server = await rpc.createServer({ port, methods: { echo: async (request) => request } });
    open.push(server);
    return server.port;
  },

  async call(host: string, port: number): Promise<string> {
    const client = await rpc.connect({ host, port });
    const answer = await client.call('echo', Buffer.from('hello'));
    await client.close();
    return `${answer}`;
  },

  async serveDisks(port: number): Promise<number> {
    const target = await nvme.createTarget({ port, subsystems: [{ nqn: NQN, namespaces: [] }] });
    open.push(target);
    return target.port;
  },

  async discover(host: string, port: number): Promise<unknown> {
    return (await nvme.discover({ host, port })).map(({ nqn, address }) => ({ nqn, address }));
  },

  /** Fails to listen. @returns the error */
  async fails(options: nodeNet.ListenOptions): Promise<unknown> {
    const server = netOf('ours').createServer().listen(options);
    return withText((await once(server, 'error'))[0]);
  },

  async warnings(): Promise<string[]> {
    return warnings.splice(0);
  },

  async closeAll(): Promise<void> {
    await Promise.all(open.splice(0).map((each) => new Promise<unknown>((resolve) => resolve(closeOf(each)))));
  },
} as const;

export const NQN = 'nqn.2014-08.org.nvmexpress:uuid:00000000-0000-0000-0000-000000000001';

function closeOf(each: { close(...call: unknown[]): unknown }): unknown {
  return each.close.length > 0 ? new Promise((resolve) => each.close(resolve)) : each.close();
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  process.on('warning', ({ message }) => warnings.push(message));
  console.log('ready');
  for await (const line of createInterface({ input: process.stdin })) {
    const [name, ...call] = JSON.parse(line);
    const result = await Promise.resolve(Reflect.apply(CALLS[name as keyof typeof CALLS], CALLS, call)).catch(codeOf);
    console.log(JSON.stringify(result ?? null));
  }
  process.exit(0);
}
