/** Sockets of Valkey Over RDMA for clients of Valkey and Redis that open their sockets by themselves. */
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { rm } from 'node:fs/promises';
import { createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { clearTimeout, setTimeout } from '../../base/timers.js';
import { invalidValue } from '../../errors.js';
import {
  bufferSizes,
  divideOptions,
  SOCKET_CHECKS,
  type SocketConnectOptions,
  type SocketOptions,
} from '../../sockets/options.js';
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
  const { socket, connect: to } = divideOptions(options, SOCKET_CHECKS);
  return new ValkeySocket(socket).connect({ port: VALKEY_PORT, ...to }, onConnect);
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

/** The options of a client that its connector sees. */
export interface ClientOptions {
  /** Name or address of the server. Clients have a default, `localhost`. */
  readonly host?: string;
  /** Port of the server. Clients have a default, 6379. */
  readonly port?: number;
  /** IP version. */
  readonly family?: number;
  /** Time in ms for a server to answer our end. Default 2000. */
  readonly disconnectTimeout?: number;
  /** Refused: a client with a connector does not ask them. */
  readonly sentinels?: unknown;
  /** Refused: the protocol has no TLS. */
  readonly tls?: unknown;
}

/**
 * Returns the option `Connector` of `iovalkey` and `ioredis`, with which their connections are those of Valkey Over
 * RDMA. Everything else stays as it is: pipelines, Pub/Sub, clusters, the connection after the server has restarted.
 * @param options the server, where the client has none of its own: a client whose host or port is not its default
 * `localhost` and 6379, as those of a cluster, connects to that
 *
 * @example
 * ```ts
 * import Valkey from 'iovalkey';
 * import { connector } from 'wasm-roce/valkey';
 *
 * const valkey = new Valkey({ host: '192.0.2.7', Connector: connector() });
 * const cluster = new Valkey.Cluster([{ host: '192.0.2.7' }], { redisOptions: { Connector: connector() } });
 * ```
 */
export function connector(options: ValkeyOptions = {}): new (client?: ClientOptions) => Connector {
  return class {
    readonly #disconnectTimeout: number;
    readonly #server: ValkeyOptions;
    #socket: ValkeySocket | undefined;

    /** @throws TypeError for options that a connector cannot follow */
    constructor(client: ClientOptions = {}) {
      for (const name of ['sentinels', 'tls'] as const)
        if (client[name])
          throw invalidValue(`the client has the option ${name}, which a connector over RDMA cannot follow`);
      this.#disconnectTimeout = client.disconnectTimeout ?? 2000;
      this.#server = { ...options, ...serverOf(client) };
    }

    check(): boolean {
      return true;
    }

    async connect(): Promise<ValkeySocket> {
      this.#socket = connect(this.#server);
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

/** Returns the server of a client, unless it is the default of clients. */
function serverOf({ host = 'localhost', port = VALKEY_PORT, family }: ClientOptions): Partial<ValkeyOptions> {
  if (host === 'localhost' && port === VALKEY_PORT) return {};
  return { host, port, ...(family && { family }) };
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
