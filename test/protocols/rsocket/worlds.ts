/** The two modules whose sockets and servers are compared: node:net and wasm-roce/net. */
import { once } from 'node:events';
import * as nodeNet from 'node:net';
import type { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import * as ourNet from '../../../src/net.js';
import { device, HOST, OWN_HOST, peer } from '../devices.js';

export type AnySocket = nodeNet.Socket;
export type AnyServer = nodeNet.Server;

/** The module of a program: one of the two, with the addresses of its network. */
export interface World {
  readonly host: string;
  /** Another address, on which nobody listens. */
  readonly other: string;
  /** Options of sockets that connect. */
  readonly near: object;
  createServer(options: nodeNet.ServerOpts, onConnection?: (socket: AnySocket) => void): AnyServer;
  connect(options: Partial<nodeNet.TcpNetConnectOpts> & { port: number }, onConnect?: () => void): AnySocket;
  socket(options?: nodeNet.SocketConstructorOpts): AnySocket;
}

/** Sockets of the programs whose event `close` has come since their last `connect`. */
const hasClosed = new WeakSet<Duplex>();

function watched(socket: AnySocket): AnySocket {
  const { connect } = socket;
  socket.connect = (...call: unknown[]) => {
    hasClosed.delete(socket);
    return Reflect.apply(connect, socket, call);
  };
  return socket.on('close', () => hasClosed.add(socket));
}

export const tcp: World = {
  host: '127.0.0.1',
  other: '127.0.0.9',
  near: {},
  createServer: (options, onConnection) => nodeNet.createServer(options, onConnection),
  connect: (options, onConnect) => watched(nodeNet.connect({ host: tcp.host, ...options }, onConnect)),
  socket: (options) => watched(new nodeNet.Socket(options)),
};

export const rsockets: World = {
  host: HOST,
  other: OWN_HOST,
  get near() {
    return { device };
  },
  createServer: (options, onConnection) =>
    ourNet.createServer({ ...options, device: peer } as ourNet.SocketServerOptions, onConnection as never) as never,
  connect: (options, onConnect) =>
    watched(ourNet.connect({ host: HOST, device, ...options } as never, onConnect) as never),
  socket: (options) => watched(new ourNet.Socket({ ...options, device } as ourNet.SocketOptions) as never),
};

/** The events, as a program sees them. */
export type Log = unknown[];

const EVENTS = ['lookup', 'connect', 'ready', 'end', 'finish', 'timeout', 'drain', 'error', 'close'];

/** Logs the events of a socket. */
export function follow(log: Log, name: string, socket: AnySocket): AnySocket {
  for (const event of EVENTS)
    socket.on(event, (first: unknown) => {
      // whether there was an error is undefined after the close of a socket of TCP that was never connected
      const value = event === 'close' ? first === true : first;
      const detail = value instanceof Error ? (value as NodeJS.ErrnoException).code : value;
      log.push(event === 'lookup' ? `${name} lookup` : `${name} ${event} ${detail ?? ''}`.trim());
    });
  return socket;
}

export const state = ({ connecting, pending, readyState, destroyed, readable, writable }: AnySocket) => ({
  ...{ connecting, pending, readyState, destroyed, readable, writable },
});

export async function listening(server: AnyServer, options: nodeNet.ListenOptions = { port: 0 }): Promise<number> {
  server.listen(options);
  await once(server, 'listening');
  return (server.address() as nodeNet.AddressInfo).port;
}

/** Events that follow each other at one end have a few turns of the event loop between them. */
export const turns = () => sleep(10);
export const closed = async (server: AnyServer) => {
  const result = await new Promise<unknown>((resolve) => server.close(resolve));
  await turns();
  return result;
};
export const ended = async (stream: Duplex) => {
  // `closed` is true as soon as a socket is destroyed, and the event follows
  await new Promise<void>((resolve) => {
    if (hasClosed.has(stream)) resolve();
    else stream.once('close', () => resolve());
  });
  await turns();
};

/** Programs; each returns what it saw. */
export type Programs = Readonly<Record<string, (world: World) => Promise<Log>>>;

/** Tests that each program has the same results over both modules. */
export function comparePrograms(programs: Programs): void {
  describe('a program has the same results over node:net and over wasm-roce/net', () => {
    test.each(Object.keys(programs))('%s', async (name) => {
      const program = programs[name] as (world: World) => Promise<Log>;
      expect(await program(rsockets)).toEqual(await program(tcp));
    });
  });
}
