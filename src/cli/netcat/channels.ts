/** The channels that the two ends join standard input and output to: the stream of a connection, or an rsocket. */
import { once } from 'node:events';
import type { Duplex } from 'node:stream';
import {
  type Connection,
  type ConnectionOptions,
  type ConnectionRequest,
  type Device,
  type Server,
  VerbsError,
} from '../../index.js';
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
  /** Refuses the client. */
  refuse(): Promise<void>;
}

/** The owner of a listener, as the listener sees it. */
export interface CallerListener {
  onCaller(caller: Caller): void;
  /** No more clients come. */
  onFailure(error: Error): void;
}

/** A listener on one device. */
export interface Listener {
  readonly port: number;
  /** Takes no more clients. */
  close(): Promise<void>;
}

/** The protocol by which ends find each other. */
export interface Channels {
  listen(device: Device, port: number, callers: CallerListener): Promise<Listener>;
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
    async listen(device, port, callers) {
      const server = await device.listen({ port });
      const onRequest = (request: ConnectionRequest) =>
        callers.onCaller({
          remoteAddress: request.remoteAddress,
          accept: async () => channelOf(await request.accept(options)),
          refuse: () => request.reject(),
        });
      takeAll(server, onRequest).catch((error) => callers.onFailure(error));
      return { port: server.address.port, close: () => server.close() };
    },
    connect: async (device, host, port, wait) => channelOf(await device.connect({ host, port, ...wait, ...options })),
  };
}

/** Passes requests on until the server is closed. @throws VerbsError EIO when the device has failed */
async function takeAll(server: Server, onRequest: (request: ConnectionRequest) => void): Promise<void> {
  for await (const request of server) onRequest(request);
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
    async listen(device, port, callers) {
      const server = createServer({ device, pauseOnConnect: true, ...options }, (socket) => {
        // a socket that fails while it waits reports its error when it is served
        socket.on('error', () => {});
        const channel = channelOf(socket);
        const { remoteAddress } = channel;
        callers.onCaller({ remoteAddress, accept: async () => channel, refuse: () => channel.close() });
      });
      server.listen(port);
      await once(server, 'listening');
      server.on('error', (error) => callers.onFailure(error));
      return {
        port: server.address()?.port ?? port,
        close: async () => void (server.listening && server.close()),
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
