/**
 * wasm-roce/rpc: calls over RDMA, with messages of bytes, whose meaning is up to the program.
 *
 * Short messages go by SEND, long ones stay in the sender's memory until the receiver has read them by RDMA READ.
 *
 * @packageDocumentation
 */
import { RpcClient, type RpcConnectOptions } from './protocols/rpc/client.js';
import { RpcServer, type RpcServerOptions } from './protocols/rpc/server.js';

export type { CallOptions, RpcClient, RpcConnectOptions } from './protocols/rpc/client.js';
export { RPC_PORT } from './protocols/rpc/limits.js';
export type { CallContext, MethodHandler, StreamHandler } from './protocols/rpc/servedclient.js';
export type { RpcServer, RpcServerOptions } from './protocols/rpc/server.js';
export { RpcError, type RpcStatus } from './protocols/rpc/status.js';
export type { RpcStream } from './protocols/rpc/stream.js';

/**
 * Serves methods and streams until it is closed.
 * @throws TypeError, RangeError for wrong options; VerbsError EADDRINUSE, EADDRNOTAVAIL, ENOMEM; as `openDevice`
 */
export function createServer(options: RpcServerOptions): Promise<RpcServer> {
  return RpcServer.open(options);
}

/**
 * Connects to a server.
 * @throws TypeError, RangeError for wrong options; CmError, VerbsError when it is not reached; RpcError UNAVAILABLE
 * when it is no server of this protocol; the signal's reason; as `openDevice`
 */
export function connect(options: RpcConnectOptions): Promise<RpcClient> {
  return RpcClient.connect(options);
}
