/** Servers: listening rdma_cm ports. */
import { EventEmitter } from 'node:events';
import { type InspectOptionsStylized, inspect } from 'node:util';
import { whenAborted } from '../../base/abort.js';
import { anything, type Checks, checkInteger, checkOptions, integer, nested, text } from '../../base/options.js';
import { nextTick } from '../../base/timers.js';
import { WAIT_CHECKS, type WaitOptions } from '../../base/waiting.js';
import type { CmAddress, CmId } from '../../cm/index.js';
import { withDetails } from '../../errors.js';
import { listen } from '../../transport/acceptor.js';
import { Endpoints } from '../../transport/endpoints.js';
import { MAX_POOL_BYTES, ReceivePools } from '../../transport/pools/receivepool.js';
import { inspectAs } from '../../verbs/diagnose/describe.js';
import type { Context } from '../../verbs/objects/context.js';
import type { Connection } from './connection.js';
import { CM_ID_OPTIONS } from './options.js';
import { ACCEPT_CHECKS, type AcceptOptions, ConnectionRequest, HalfOpen } from './request.js';

/** Options of `device.listen`. */
export interface ListenOptions {
  /** rdma_cm port, 0..65535; 0 = any free port, see `server.address`. */
  readonly port: number;
  /** One of the device's addresses; `0.0.0.0` = all IPv4 addresses. Default `::`, all addresses. */
  readonly host?: string;
  /** Connection requests that may wait for `next`; more are rejected. Default 1024. */
  readonly backlog?: number;
  /**
   * Bytes of receive buffers that the server's connections share, for each `messageBytes` that they have. There are as
   * many buffers as all connections may hold (`receives` each) up to this limit. Beyond it, one buffer for each
   * connection, up to half of all, are left to connections that hold none; the peers of others repeat their messages.
   * Default: 16 MiB, or an eighth of the device's `memoryBytes` if that is less.
   */
  readonly receivePoolBytes?: number;
  /** Options of the connections that the event `connection` reports. Default: those of `request.accept`. */
  readonly accept?: AcceptOptions;
  /** Aborted: the server is closed. */
  readonly signal?: AbortSignal;
}

const LISTEN_CHECKS: Checks<ListenOptions> = {
  port: anything,
  host: text,
  backlog: integer(1, 0x7fffffff),
  receivePoolBytes: integer(1, MAX_POOL_BYTES),
  accept: nested(ACCEPT_CHECKS),
  signal: WAIT_CHECKS.signal,
};

/** Events of a server, with the arguments of their listeners. */
export interface ServerEvents {
  /** A client has connected. While this event has a listener, the server accepts all requests. */
  connection: [connection: Connection];
  /** The server was closed, or its device has failed with this error. */
  close: [error?: Error];
}

/**
 * A listening rdma_cm port, from `device.listen`. It takes connection requests until it is closed. There are two ways
 * to serve clients: `for await` and `next` give requests, to be accepted or rejected; the event `connection` gives
 * connections, because the server then accepts every request. Either keeps the process running; see `unref`.
 *
 * Events: `connection` with a `Connection`; `close` once, with an error if the device has failed.
 *
 * A device that has never listened or connected does not answer clients at all, because another card may have the same
 * address.
 *
 * @example
 * ```ts
 * const server = await device.listen({ port: 7471 });
 * for await (const request of server) {
 *   const connection = await request.accept();
 *   await connection.send(Buffer.from('welcome'));
 * }
 * ```
 */
export class Server extends EventEmitter<ServerEvents> implements AsyncIterable<ConnectionRequest>, AsyncDisposable {
  readonly #id: CmId;
  readonly #halfOpen = new HalfOpen();
  readonly #pools: ReceivePools;
  readonly #accept: AcceptOptions;
  /** Among the endpoints of the device. */
  readonly #endpoint: number;
  /** Ends the loop that accepts requests for the event `connection`. */
  #accepting: AbortController | undefined;
  #forgetSignal = (): void => {};
  #isClosed = false;

  private constructor(id: CmId, accept: AcceptOptions, pools: ReceivePools) {
    super();
    this.#id = id;
    this.#pools = pools;
    this.#accept = accept;
    this.#endpoint = Endpoints.of(id.device).add(this);
    const events = this as unknown as EventEmitter;
    events.on('newListener', (name) => {
      if (name === 'connection' && this.#accepting === undefined) void this.#acceptAll();
    });
    events.on('removeListener', (name) => {
      if (name !== 'connection' || this.listenerCount('connection') > 0) return;
      this.#accepting?.abort();
      this.#accepting = undefined;
    });
  }

  /** @internal @throws as `Device.listen` */
  static async listen(device: Context, options: ListenOptions): Promise<Server> {
    const checked = checkOptions('listen', options, LISTEN_CHECKS);
    const { port, host = '::', backlog = 1024, receivePoolBytes, accept = {}, signal } = checked;
    checkInteger('port', port, 0, 65535);
    signal?.throwIfAborted();
    Endpoints.of(device).assertOpen();
    const id = await listen(device, { host, port, backlog }, CM_ID_OPTIONS).catch((error) => {
      throw withDetails(error, { syscall: 'listen', address: host, port });
    });
    if (signal?.aborted) {
      await id.close();
      signal.throwIfAborted();
    }
    const server = new Server(id, accept, new ReceivePools(device, { maxBytes: receivePoolBytes, isKept: true }));
    server.#forgetSignal = whenAborted(signal, () => server.destroy());
    return server;
  }

  /** Local address and port that the server listens on. */
  get address(): CmAddress {
    return this.#id.localAddress as CmAddress;
  }

  /**
   * Waits for the next request. Returns undefined after the server was closed.
   * @throws the signal's reason; VerbsError ETIMEDOUT after `timeout`, EIO when the device has failed
   */
  async next(wait: WaitOptions = {}): Promise<ConnectionRequest | undefined> {
    const { channel } = this.#id;
    if (channel.isClosed) return undefined;
    try {
      return new ConnectionRequest(await this.#id.getRequest(wait), this.#halfOpen, this.#pools);
    } catch (error) {
      if (channel.isClosed) return undefined;
      throw error;
    }
  }

  /** Iterates over requests until the server is closed. */
  async *[Symbol.asyncIterator](): AsyncGenerator<ConnectionRequest, void, void> {
    for (let request = await this.next(); request !== undefined; request = await this.next()) yield request;
  }

  /** Keeps the process running while the server waits for requests. This is the default. */
  ref(): this {
    this.#id.channel.ref();
    return this;
  }

  /** Lets the process exit although the server waits for requests. */
  unref(): this {
    this.#id.channel.unref();
    return this;
  }

  /** Returns a short description as plain data, for `JSON.stringify` and `console.log`. */
  toJSON(): Record<string, unknown> {
    return { ...this.address, isListening: !this.#isClosed };
  }

  /** @internal */
  [inspect.custom](depth: number, options: InspectOptionsStylized): string {
    return inspectAs(this, depth, options);
  }

  /** Stops listening. Waiting requests are rejected; accepted connections stay open. */
  async close(): Promise<void> {
    this.destroy();
  }

  /** @internal Same as `close`, at once. */
  destroy(): void {
    this.#end();
  }

  #end(error?: Error): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#forgetSignal();
    Endpoints.of(this.#id.device).delete(this.#endpoint);
    this.#id.channel.close();
    void this.#id.close();
    void this.#pools.close();
    nextTick(() => this.emit('close', ...(error ? [error] : [])));
  }

  /** Accepts requests while the event `connection` has listeners. */
  async #acceptAll(): Promise<void> {
    const accepting = new AbortController();
    this.#accepting = accepting;
    const { signal } = accepting;
    try {
      for (let request = await this.next({ signal }); request !== undefined; request = await this.next({ signal })) {
        const connection = await request.accept(this.#accept);
        // Outside this loop, which an exception of a listener must not end.
        nextTick(() => this.emit('connection', connection));
      }
    } catch (error) {
      if (!signal.aborted) this.#end(error as Error);
    }
  }

  /** Same as `close`, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}
