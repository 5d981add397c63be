/** A server of Valkey Over RDMA in front of one that is reached over TCP. */
import { once } from 'node:events';
import { connect as connectTcp } from 'node:net';
import { relay } from '../../sockets/relay.js';
import { divideServerOptions, type SocketListenOptions, type SocketServerOptions } from '../../sockets/streamserver.js';
import type { StreamSocket } from '../../sockets/streamsocket.js';
import { VALKEY_PORT } from './connectors.js';
import { ValkeyServer } from './socket.js';

/** Options of `createProxy`. */
export interface ProxyOptions
  extends Omit<SocketServerOptions, 'pauseOnConnect' | 'captureRejections'>,
    Omit<SocketListenOptions, 'port'> {
  /** Port, in the port space of rdma_cm; 0 for any. Default 6379. */
  readonly port?: number;
  /** The server behind it: Valkey, Redis, or what else speaks RESP. */
  readonly to: { readonly host: string; readonly port: number };
  /** Called when the server behind cannot be reached, or resets: the client is disconnected then. */
  readonly onError?: (error: Error, client: StreamSocket) => void;
}

/** A proxy that listens. */
export interface ValkeyProxy extends AsyncDisposable {
  /** The port that it listens on. */
  readonly port: number;
  /** Number of clients. */
  readonly clients: number;
  /** Ends all connections, and listens no more. */
  close(): Promise<void>;
}

/**
 * Listens for clients of Valkey Over RDMA, and connects each of them to a server over TCP.
 * @throws as `server.listen`
 */
export async function createProxy(options: ProxyOptions): Promise<ValkeyProxy> {
  const { to, onError, ...others } = options;
  const { server: ofServer, listen } = divideServerOptions(others);
  const clients = new Set<StreamSocket>();
  const server = new ValkeyServer(ofServer, (client) => {
    clients.add(client);
    const tcp = connectTcp({ ...to, noDelay: true });
    tcp.once('error', (error) => onError?.(error, client));
    void relay(client, tcp).then(() => clients.delete(client));
  });
  server.listen({ port: VALKEY_PORT, ...listen });
  await once(server, 'listening');
  const close = async () => {
    for (const client of clients) client.destroy();
    await server[Symbol.asyncDispose]();
  };
  return {
    port: server.address()?.port as number,
    get clients() {
      return clients.size;
    },
    close,
    [Symbol.asyncDispose]: close,
  };
}
