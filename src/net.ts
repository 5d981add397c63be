/**
 * wasm-roce/net: sockets and servers of `node:net` over RDMA, by the protocol of rsockets.
 *
 * The peers are programs of the same module, programs of librdmacm's rsockets (`rstream`, `rcopy`), and unchanged
 * programs of TCP under `librspreload.so`.
 *
 * @packageDocumentation
 */
import { type RsocketOptions, type RsocketServerOptions, Server, Socket } from './protocols/rsocket/socket.js';
import type { SocketConnectOptions } from './sockets/options.js';

export {
  type MappedMemory,
  type RsocketOptions,
  type RsocketServerOptions,
  Server,
  Socket,
} from './protocols/rsocket/socket.js';
export type { SocketAddress, SocketConnectOptions, SocketOptions } from './sockets/options.js';
export { type SocketListenOptions, type SocketServerOptions, StreamServer } from './sockets/streamserver.js';
export { StreamSocket } from './sockets/streamsocket.js';

/** Creates a server. @throws TypeError, RangeError for wrong options */
export function createServer(options: RsocketServerOptions, onConnection?: (socket: Socket) => void): Server;
export function createServer(onConnection?: (socket: Socket) => void): Server;
export function createServer(
  options: RsocketServerOptions | ((socket: Socket) => void) = {},
  onConnection?: (socket: Socket) => void,
): Server {
  return typeof options === 'function' ? new Server({}, options) : new Server(options, onConnection);
}

/** Connects a new socket; see `Socket.connect`. @throws TypeError, RangeError for wrong options */
export function connect(options: RsocketOptions & SocketConnectOptions, onConnect?: () => void): Socket;
export function connect(port: number, host?: string, onConnect?: () => void): Socket;
export function connect(
  options: (RsocketOptions & SocketConnectOptions) | number,
  ...rest: (string | (() => void) | undefined)[]
): Socket {
  if (typeof options === 'number')
    return new Socket().connect(options, rest[0] as string | undefined, rest[1] as (() => void) | undefined);
  const { timeout, ...to } = options as RsocketOptions & SocketConnectOptions & { readonly timeout?: number };
  const socket = new Socket(to);
  if (timeout !== undefined) socket.setTimeout(timeout);
  return socket.connect(to, rest[0] as (() => void) | undefined);
}

/** Same as `connect`. */
export const createConnection = connect;

/** The default export, as of `node:net`: `import net from 'wasm-roce/net'`. */
const net = {
  /** See `Server`. */
  Server,
  /** See `Socket`. */
  Socket,
  /** See `connect`. */
  connect,
  /** See `createConnection`. */
  createConnection,
  /** See `createServer`. */
  createServer,
};
export default net;
