/** Sockets and servers of Valkey Over RDMA. */

import type { SocketOptions } from '../../sockets/options.js';
import { type SocketServerOptions, StreamServer } from '../../sockets/streamserver.js';
import { StreamSocket } from '../../sockets/streamsocket.js';
import { VALKEY_CLIENT, VALKEY_SERVER } from './transport.js';

/**
 * One end of a connection of Valkey Over RDMA: a stream of RESP, which a client of Valkey writes and reads. It behaves
 * as a `net.Socket`, but for its end: the protocol cannot say that one end writes no more. After `end` the peer has
 * 200 ms to answer what was written; then the socket disconnects. A disconnect of the peer is its end.
 *
 * Its buffers have 64 KiB to 16 MiB, and 1 MiB without an option. Do not change `receiveBytes` of connections to one
 * server of Valkey 8: it is the server's memory too.
 */
export class ValkeySocket extends StreamSocket {
  /** @throws TypeError, RangeError for wrong options */
  constructor(options: SocketOptions = {}) {
    super(VALKEY_CLIENT, options);
  }
}

class AcceptedSocket extends StreamSocket {
  constructor(options: SocketOptions) {
    super(VALKEY_SERVER, options);
  }
}

/** Listens for clients of Valkey Over RDMA. It behaves as a `net.Server`. */
export class ValkeyServer extends StreamServer<StreamSocket> {
  /** @throws TypeError, RangeError for wrong options */
  constructor(options: SocketServerOptions = {}, onConnection?: (socket: StreamSocket) => void) {
    super(VALKEY_SERVER, options, onConnection);
  }

  /** @internal */
  protected override newSocket(options: SocketOptions): StreamSocket {
    return new AcceptedSocket(options);
  }
}
