/**
 * wasm-roce/valkey: Valkey and Redis over RDMA, by the protocol of Valkey Over RDMA.
 *
 * A client of Valkey gets its connections here, by a connector or by a socket of its own; and a server that is reached
 * over TCP gets clients over RDMA, by a proxy.
 *
 * @packageDocumentation
 */
import type { ServerOptions } from './ulp/server.js';
import type { StreamSocket } from './ulp/socket.js';
import { ValkeyServer } from './ulp/valkey/socket.js';

export { type ServerListenOptions, type ServerOptions, StreamServer } from './ulp/server.js';
export { StreamSocket } from './ulp/socket.js';
export type { SocketAddress, SocketConnectOptions, SocketOptions } from './ulp/socketoptions.js';
export {
  type Bridge,
  type Connector,
  connect,
  connector,
  createBridge,
  VALKEY_PORT,
  type ValkeyOptions,
} from './ulp/valkey/connectors.js';
export { createProxy, type ProxyOptions, type ValkeyProxy } from './ulp/valkey/proxy.js';
export { ValkeyServer, ValkeySocket } from './ulp/valkey/socket.js';

/** Creates a server; what it sends and receives is RESP. @throws TypeError, RangeError for wrong options */
export function createServer(options: ServerOptions = {}, onConnection?: (socket: StreamSocket) => void): ValkeyServer {
  return new ValkeyServer(options, onConnection);
}
