/**
 * wasm-roce/valkey: Valkey and Redis over RDMA, by the protocol of Valkey Over RDMA.
 *
 * A client of Valkey gets its connections here, by a connector or by a socket of its own; and a server that is reached
 * over TCP gets clients over RDMA, by a proxy.
 *
 * @packageDocumentation
 */

import { ValkeyServer } from './protocols/valkey/socket.js';
import type { SocketServerOptions } from './sockets/streamserver.js';
import type { StreamSocket } from './sockets/streamsocket.js';

export {
  type Bridge,
  type ClientOptions,
  type Connector,
  connect,
  connector,
  createBridge,
  VALKEY_PORT,
  type ValkeyOptions,
} from './protocols/valkey/connectors.js';
export { createProxy, type ProxyOptions, type ValkeyProxy } from './protocols/valkey/proxy.js';
export { ValkeyServer, ValkeySocket } from './protocols/valkey/socket.js';
export type { OnRead, SocketAddress, SocketConnectOptions, SocketOptions } from './sockets/options.js';
export { type SocketListenOptions, type SocketServerOptions, StreamServer } from './sockets/streamserver.js';
export { StreamSocket } from './sockets/streamsocket.js';

/** Creates a server; what it sends and receives is RESP. @throws TypeError, RangeError for wrong options */
export function createServer(
  options: SocketServerOptions = {},
  onConnection?: (socket: StreamSocket) => void,
): ValkeyServer {
  return new ValkeyServer(options, onConnection);
}
