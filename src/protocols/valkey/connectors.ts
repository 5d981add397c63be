/** Sockets of Valkey Over RDMA for clients of Valkey and Redis that open their sockets by themselves. */
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { rm } from 'node:fs/promises';
import { createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { bufferSizes, type SocketConnectOptions, type SocketOptions } from '../../sockets/options.js';
import { relay } from '../../sockets/relay.js';
import { ValkeySocket } from './socket.js';
import { VALKEY_CLIENT } from './transport.js';

/** Port of a server, if no other one is given. */
export const VALKEY_PORT = 6379;

/** The address of a server. */
export interface ValkeyOptions extends SocketOptions, Omit<SocketConnectOptions, 'port'> {
  /** Port of the server, `rdma-port` in its configuration. Default 6379. */
  readonly port?: number;
}

/** Returns a socket that connects. @throws TypeError, RangeError for wrong options */
export function connect(options: ValkeyOptions = {}, onConnect?: () => void): ValkeySocket {
  return new ValkeySocket(options).connect({ port: VALKEY_PORT, ...options }, onConnect);
}

/** The option `Connector` of `iovalkey` and `ioredis`. */
export interface Connector {
  /** Whether a server that answers is the one that is meant. */
  check(info: unknown): boolean;
  /** Returns a new connection. */
  connect(): Promise<ValkeySocket>;
  /** Ends the connection. */
  disconnect(): void;
}

/**
 * Returns the option `Connector` of `iovalkey` and `ioredis`, with which their connections are those of Valkey Over
 * RDMA. Everything else stays as it is: pipelines, Pub/Sub, the connection after the server has restarted.
 *
 * @example
 * ```ts
 * import Valkey from 'iovalkey';
 * import { connector } from 'wasm-roce/valkey';
 *
 * const valkey = new Valkey({ Connector: connector({ host: '192.0.2.7' }) });
 * ```
 */
export function connector(options: ValkeyOptions = {}): new (own?: { disconnectTimeout?: number }) => Connector {
  return class {
    readonly #disconnectTimeout: number;
    #socket: ValkeySocket | undefined;

    constructor({ disconnectTimeout = 2000 }: { disconnectTimeout?: number } = {}) {
      this.#disconnectTimeout = disconnectTimeout;
    }

    check(): boolean {
      return true;
    }

    async connect(): Promise<ValkeySocket> {
      this.#socket = connect(options);
      return this.#socket;
    }

    disconnect(): void {
      const socket = this.#socket;
      if (socket === undefined || socket.destroyed) return;
      const timer = setTimeout(() => socket.destroy(), this.#disconnectTimeout);
      socket.once('close', () => clearTimeout(timer));
      socket.end();
    }
  };
}

/** A local socket that leads to a server. */
export interface Bridge extends AsyncDisposable {
  /** Path of the socket. */
  readonly path: string;
  /** Ends all connections, and removes the socket. */
  close(): Promise<void>;
}

/**
 * Listens on a local (Unix) socket, and connects each client of it to a server over RDMA: for clients that take the
 * path of a socket and no connector of their own, as `redis` does.
 * @throws Error of `net` when the path cannot be used; TypeError, RangeError for wrong options
 *
 * @example
 * ```ts
 * import { createClient } from 'redis';
 * import { createBridge } from 'wasm-roce/valkey';
 *
 * await using bridge = await createBridge({ host: '192.0.2.7' });
 * const client = createClient({ socket: { path: bridge.path, tls: false } });
 * ```
 */
export async function createBridge(options: ValkeyOptions = {}): Promise<Bridge> {
  // not first when a client comes
  bufferSizes(VALKEY_CLIENT, options);
  const path = join(tmpdir(), `wasm-roce-${process.pid}-${randomUUID()}.sock`);
  const locals = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true }, (local) => {
    locals.add(local);
    void relay(local, connect(options)).then(() => locals.delete(local));
  });
  server.listen(path);
  await once(server, 'listening');
  const close = async () => {
    for (const local of locals) local.destroy();
    await new Promise((resolve) => server.close(resolve));
    await rm(path, { force: true });
  };
  return { path, close, [Symbol.asyncDispose]: close };
}
