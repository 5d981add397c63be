/** Sockets and servers of rsockets. */
import { anything, type Checks, wrongNumber, wrongType } from '../../base/options.js';
import { SOCKET_CHECKS, type SocketOptions } from '../../sockets/options.js';
import { SERVER_CHECKS, type SocketServerOptions, StreamServer } from '../../sockets/streamserver.js';
import { StreamSocket } from '../../sockets/streamsocket.js';
import { type RsocketTransport, rsocketProtocol } from './transport.js';
import { MAPPINGS_UNIT, MAX_EXACT_MAPPINGS, MAX_MAPPINGS } from './wire.js';

/** Options of a socket of rsockets. */
export interface RsocketOptions extends SocketOptions {
  /**
   * Mappings that the peer may make, for `iowrite`: 0 to 128, or a multiple of 256 up to 32512. Default 0. It is the
   * option RDMA_IOMAPSIZE of rsockets.
   */
  readonly iomapSize?: number;
}

/** Options of a server of rsockets. */
export interface RsocketServerOptions extends SocketServerOptions {
  /** As of a socket. */
  readonly iomapSize?: number;
}

/** Checks of the options of a socket; `iomapSizeOf` checks the mappings. */
export const RSOCKET_CHECKS: Checks<RsocketOptions> = { ...SOCKET_CHECKS, iomapSize: anything };
const RSOCKET_SERVER_CHECKS: Checks<RsocketServerOptions> = { ...SERVER_CHECKS, iomapSize: anything };

/** Memory of ours that the peer writes. It exists until the socket is closed. */
export interface MappedMemory {
  /** Offset of its first byte for the peer. */
  readonly offset: number;
  /** The memory. Nothing tells when the peer has written. */
  readonly buffer: Buffer;
}

/**
 * One end of a connection of rsockets. It behaves as a `net.Socket`, and most of what takes one works with it: HTTP,
 * WebSocket, gRPC. The peer may be a program of librdmacm, or a program of TCP under its `librspreload.so`.
 * `setNoDelay` has no effect.
 *
 * The options `receiveBytes` and `sendBytes` have 4096 bytes to 256 MiB, an even number. Without them, buffers are
 * small and grow with use, up to 1 MiB.
 *
 * @example
 * ```ts
 * import { connect } from 'wasm-roce/net';
 *
 * const socket = connect({ host: '192.0.2.7', port: 7471 });
 * socket.write('hello');
 * for await (const data of socket) console.log(`${data}`);
 * ```
 */
export class Socket extends StreamSocket {
  /** @throws TypeError, RangeError for wrong options */
  constructor(options: RsocketOptions = {}) {
    super(rsocketProtocol(iomapSizeOf(options)), options, RSOCKET_CHECKS);
  }

  /**
   * Maps memory that the peer writes at offsets, by `iowrite` or `riowrite`. Data that is written later arrives
   * after the mapping. Each mapping takes an entry of the peer's `iomapSize`, and a credit of a stock peer for ever.
   * @param bytes length @param offset offset of its first byte. Default 0
   * @returns when the peer's adapter has acknowledged it
   * @throws VerbsError EINVAL when the socket is not connected, the peer's table is full, or offsets are mapped
   * already; ENOMEM; ECANCELED when the socket ends before; RangeError
   */
  async iomap(bytes: number, offset = 0): Promise<MappedMemory> {
    if (!Number.isInteger(bytes) || bytes < 1 || bytes >= 2 ** 32)
      throw wrongNumber('the length', bytes, 'an integer from 1 to 4294967295');
    const mr = await (this.transport as RsocketTransport).map(bytes, offsetOf(offset));
    return { offset, buffer: mr.buffer };
  }

  /**
   * Writes to memory that the peer has mapped, by `iomap` or `riomap`. It overtakes data that waits in the socket. A
   * `write` after the returned promise has resolved tells the peer that the bytes are there.
   * @param data bytes, which do not change before the promise is settled @param offset offset of the first one
   * @returns when the peer's adapter has acknowledged all
   * @throws VerbsError EINVAL when the socket is not connected, or the peer has not mapped all of it; ECANCELED when
   * the socket ends before; TypeError, RangeError
   */
  async iowrite(data: Uint8Array, offset: number): Promise<void> {
    if (!(data instanceof Uint8Array)) throw wrongType('the data', data, 'a Uint8Array');
    await (this.transport as RsocketTransport).writeMapped(data, offsetOf(offset));
  }
}

/**
 * Listens for rsockets. It behaves as a `net.Server`; an HTTP server takes its sockets by `http.emit('connection',
 * socket)`.
 */
export class Server extends StreamServer<Socket> {
  /** @throws TypeError, RangeError for wrong options */
  constructor(options: RsocketServerOptions = {}, onConnection?: (socket: Socket) => void) {
    super(rsocketProtocol(iomapSizeOf(options)), options, onConnection, RSOCKET_SERVER_CHECKS);
  }

  /** @internal */
  protected override newSocket(options: RsocketOptions): Socket {
    return new Socket(options);
  }
}

/** @throws RangeError */
function iomapSizeOf({ iomapSize = 0 }: RsocketOptions): number {
  const isExact = iomapSize <= MAX_EXACT_MAPPINGS || iomapSize % MAPPINGS_UNIT === 0;
  if (!Number.isInteger(iomapSize) || iomapSize < 0 || iomapSize > MAX_MAPPINGS || !isExact)
    throw wrongNumber(
      'iomapSize',
      iomapSize,
      `0 to ${MAX_EXACT_MAPPINGS}, or a multiple of ${MAPPINGS_UNIT} up to ${MAX_MAPPINGS}`,
    );
  return iomapSize;
}

/** @throws RangeError */
function offsetOf(offset: number): bigint {
  if (!Number.isSafeInteger(offset) || offset < 0)
    throw wrongNumber('the offset', offset, `an integer from 0 to ${Number.MAX_SAFE_INTEGER}`);
  return BigInt(offset);
}
