/**
 * wasm-roce/dgram: sockets of `node:dgram` over RDMA, by the protocol of datagram rsockets.
 *
 * The peers are programs of the same module, and programs of librdmacm's datagram rsockets (`udpong`).
 *
 * @packageDocumentation
 */
import type { RemoteInfo } from 'node:dgram';
import { type DatagramOptions, Socket } from './protocols/rsocket/datagram/socket.js';

export type { DatagramData, Done } from './protocols/rsocket/datagram/sendarguments.js';
export { type BindOptions, type DatagramOptions, Socket } from './protocols/rsocket/datagram/socket.js';

/** Creates a socket. @throws TypeError, RangeError for wrong options */
export function createSocket(
  options: DatagramOptions | 'udp4' | 'udp6',
  onMessage?: (message: Buffer, rinfo: RemoteInfo) => void,
): Socket {
  return new Socket(options, onMessage);
}

/** The default export, as of `node:dgram`: `import dgram from 'wasm-roce/dgram'`. */
const dgram = {
  /** See `Socket`. */
  Socket,
  /** See `createSocket`. */
  createSocket,
};
export default dgram;
