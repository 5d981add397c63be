/** The channels that the two ends join standard input and output to: the stream of a connection, or an rsocket. */
import { once } from 'node:events';
import type { Duplex } from 'node:stream';
import { type Connection, type ConnectionOptions, type Device, VerbsError } from '../../index.js';
import { connect, createServer, type Socket } from '../../net.js';
import { failure } from '../exit.js';

/** A stream in both directions between two programs. */
export interface Channel {
  readonly stream: Duplex;
  readonly remoteAddress: string;
  readonly remotePort: number;
  /** Frees everything when the stream has ended. */
  close(): Promise<void>;
}

/** Limit of a wait, and a signal that ends it. */
export interface Wait {
  /** Milliseconds. Absent: no limit. */
  readonly timeout?: number;
  readonly signal: AbortSignal;
}

/** A client that can be accepted. */
export interface Caller {
  readonly remoteAddress: string;
  accept(): Promise<Channel>;
}

export interface Listener extends AsyncDisposable {
  readonly port: number;
  /** @throws VerbsError ETIMEDOUT; the reason of the signal */
  next(wait: Wait): Promise<Caller>;
  close(): Promise<void>;
}

/** The protocol by which ends find each other. */
export interface Channels {
  listen(device: Device, port: number): Promise<Listener>;
  /** @throws as `device.connect` */
  connect(device: Device, host: string, port: number, wait: Wait): Promise<Channel>;
}

/** Larger messages are faster: each costs a request, an answer and two copies. */
const MESSAGE_BYTES = 65_536;

/** The watch of the other end. */
export type WatchOptions = Required<Pick<ConnectionOptions, 'keepAlive' | 'peerTimeout'>>;

/** Streams of connections between two programs of this project. */
export function connectionChannels(watch: WatchOptions): Channels {
  const options = { messageBytes: MESSAGE_BYTES, ...watch };
  const channelOf = (connection: Connection): Channel => ({
    stream: connection.stream(),
    remoteAddress: connection.remoteAddress,
    remotePort: connection.remotePort,
    close: () => connection.close(),
  });
  return {
    async listen(device, port) {
      const server = await device.listen({ port });
      return {
        port: server.address.port,
        async next(wait) {
          const request = await server.next(wait);
          if (request === undefined) throw new VerbsError('ECANCELED', 'the listener was closed');
          return {
            remoteAddress: request.remoteAddress,
            accept: async () => channelOf(await request.accept(options)),
          };
        },
        close: () => server.close(),
        [Symbol.asyncDispose]: () => server.close(),
      };
    },
    connect: async (device, host, port, wait) => channelOf(await device.connect({ host, port, ...wait, ...options })),
  };
}

/** Rsockets: the other program may be one of librdmacm, or one of TCP under its librspreload.so. */
export function rsocketChannels({ keepAlive, peerTimeout }: WatchOptions): Channels {
  const watch = { keepAlive: keepAlive > 0, keepAliveInitialDelay: keepAlive, peerTimeout };
  const options = { allowHalfOpen: true, ...watch };
  const channelOf = (socket: Socket): Channel => ({
    stream: socket,
    remoteAddress: socket.remoteAddress ?? '',
    remotePort: socket.remotePort ?? 0,
    async close() {
      if (!socket.closed) await new Promise((resolve) => socket.destroy().once('close', resolve));
    },
  });
  return {
    async listen(device, port) {
      const waiting: Socket[] = [];
      const server = createServer({ device, pauseOnConnect: true, ...options }, (socket) => {
        // a socket that fails while it waits reports its error when it is served
        socket.on('error', () => {});
        waiting.push(socket);
      });
      server.listen(port);
      await once(server, 'listening');
      const close = async () => {
        if (server.listening) server.close();
        for (const socket of waiting.splice(0)) socket.destroy();
      };
      return {
        port: server.address()?.port ?? port,
        async next({ timeout, signal }) {
          const late = AbortSignal.timeout(timeout ?? 2 ** 31 - 1);
          const either = AbortSignal.any([signal, late]);
          while (waiting.length === 0)
            await once(server, 'connection', { signal: either }).catch((error: Error) => {
              signal.throwIfAborted();
              throw late.aborted ? new VerbsError('ETIMEDOUT', 'no client has connected') : error;
            });
          const socket = waiting.shift() as Socket;
          return { remoteAddress: socket.remoteAddress ?? '', accept: async () => channelOf(socket) };
        },
        close,
        [Symbol.asyncDispose]: close,
      };
    },
    async connect(device, host, port, { timeout, signal }) {
      signal.throwIfAborted();
      const socket = connect({ device, host, port, ...options });
      socket.pause();
      const late = AbortSignal.timeout(timeout ?? 2 ** 31 - 1);
      try {
        await once(socket, 'connect', { signal: AbortSignal.any([signal, late]) });
      } catch (error) {
        socket.on('error', () => {}).destroy();
        signal.throwIfAborted();
        if (late.aborted) throw new VerbsError('ETIMEDOUT', `no connection within ${timeout} ms`);
        const { code, message } = error as VerbsError;
        // of the program there, not of this host
        throw code === 'EOPNOTSUPP' ? failure(message, { cause: error as Error }) : error;
      }
      return channelOf(socket);
    },
  };
}
