/**
 * wasm-roce/net: sockets and servers of `node:net` over RDMA, by the protocol of rsockets.
 *
 * The peers are programs of the same module, programs of librdmacm's rsockets (`rstream`, `rcopy`), and unchanged
 * programs of TCP under `librspreload.so`.
 *
 * @packageDocumentation
 */
import {
  RSOCKET_CHECKS,
  type RsocketOptions,
  type RsocketServerOptions,
  Server,
  Socket,
} from './protocols/rsocket/socket.js';
import { connectArguments } from './sockets/callarguments.js';
import { divideOptions, type SocketConnectOptions } from './sockets/options.js';

export { configure, type SharedDeviceSettings } from './deviceuse.js';
export {
  type MappedMemory,
  type RsocketOptions,
  type RsocketServerOptions,
  Server,
  Socket,
} from './protocols/rsocket/socket.js';
export type { OnRead, SocketAddress, SocketConnectOptions, SocketOptions } from './sockets/options.js';
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

/** Options of `connect`: those of the socket, and those of its connection. */
export interface NetConnectOptions extends RsocketOptions, SocketConnectOptions {
  /** Time of `setTimeout` in ms. Default: none. */
  readonly timeout?: number;
}

/** Connects a new socket; see `Socket.connect`. @throws TypeError, RangeError for wrong options */
export function connect(options: NetConnectOptions, onConnect?: () => void): Socket;
export function connect(port: number | string, host?: string, onConnect?: () => void): Socket;
export function connect(port: number | string, onConnect?: () => void): Socket;
export function connect(...call: unknown[]): Socket {
  const { options, listener } = connectArguments(call);
  const { timeout, ...others } = options as NetConnectOptions;
  const { socket: ofSocket, connect: ofConnection } = divideOptions(others, RSOCKET_CHECKS);
  const socket = new Socket(ofSocket);
  if (timeout) socket.setTimeout(timeout);
  return socket.connect(ofConnection as SocketConnectOptions, listener);
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
