/** Servers and connection requests (rdma_cm's passive side). */
import { EventEmitter } from 'node:events';
import { type InspectOptionsStylized, inspect } from 'node:util';
import {
  anything,
  bytes,
  type Checks,
  checkInteger,
  checkOptions,
  integer,
  nested,
  oneOf,
  text,
} from '../../base/options.js';
import { WAIT_CHECKS, type WaitOptions, waitFor } from '../../base/waiting.js';
import { type CmAddress, type CmId, createCmId, RejectReason, type RejectReasonName } from '../../cm/index.js';
import { checkPrivateData, PRIVATE_DATA_BYTES } from '../../cm/parameters.js';
import { VerbsError, withDetails } from '../../errors.js';
import { inspectAs } from '../../verbs/diagnose/describe.js';
import type { Context } from '../../verbs/objects/context.js';
import { NumberMap } from '../../verbs/objects/numbermap.js';
import type { Pd } from '../../verbs/objects/pd.js';
import { CM_ID_OPTIONS, CONNECTION_CHECKS, openConnection, prepareConnection, retriesOf } from './connect.js';
import { Connection, type ConnectionOptions } from './connection.js';
import { Endpoints } from './endpoints.js';
import { decodePrivateData, encodePrivateData, type PeerData } from './privatedata.js';
import { MAX_POOL_BYTES, ReceivePools } from './receivepool.js';

/** Time that an accepted client has to get ready (ms). */
const READY_TIMEOUT = 30_000;
/** When memory is exhausted, clients that are not ready after this time make room for others (ms). */
const MIN_READY_TIME = 1000;

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

/** Options of `request.accept`. */
export interface AcceptOptions extends ConnectionOptions {
  /**
   * Sent with the reply, at most 196 bytes. A client of another project receives 196 bytes. With more than 180 bytes
   * the client does not learn our `messageBytes`.
   */
  readonly privateData?: Uint8Array;
  /** Protection domain of the connection's queue pair and memory. Default: a new one, closed with the connection. */
  readonly pd?: Pd;
}

/** Options of `request.reject`. */
export interface RejectOptions {
  /** Sent with the rejection, at most 148 bytes. */
  readonly privateData?: Uint8Array;
  /** Reason of the REJ message (IBTA 12.6.7.2). Default `CONSUMER_DEFINED`, reason 28. */
  readonly reason?: RejectReasonName;
}

const ACCEPT_CHECKS: Checks<AcceptOptions> = CONNECTION_CHECKS;
const REJECT_CHECKS: Checks<RejectOptions> = { privateData: bytes, reason: oneOf(...Object.keys(RejectReason)) };
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
 * A connection request of a client, from `server.next`. Answer it with `accept` or `reject`; otherwise the client waits
 * until its own timeout.
 *
 * @example
 * ```ts
 * const request = await server.next();
 * if (request?.remoteAddress.startsWith('10.')) await request.accept({ messageBytes: 65536 });
 * else await request?.reject();
 * ```
 */
export class ConnectionRequest {
  readonly #id: CmId;
  readonly #halfOpen: HalfOpen;
  readonly #pools: ReceivePools;
  readonly #endpoints: Endpoints;
  /** Among these. */
  readonly #endpoint: number;
  readonly #data: PeerData;
  #isAnswered = false;

  /** @internal */
  constructor(id: CmId, halfOpen: HalfOpen, pools: ReceivePools) {
    this.#id = id;
    this.#halfOpen = halfOpen;
    this.#pools = pools;
    this.#data = decodePrivateData(id.request?.privateData ?? new Uint8Array(0));
    this.#endpoints = Endpoints.of(id.device);
    this.#endpoint = this.#endpoints.add(this);
  }

  /** The client's IP address. */
  get remoteAddress(): string {
    return this.#id.remoteAddress?.address ?? '';
  }
  /** The client's port. */
  get remotePort(): number {
    return this.#id.remoteAddress?.port ?? 0;
  }
  /**
   * Private data of the client: what it has passed. Of a client without this project, or with more than 40 bytes, all
   * 56 bytes with rdma_cm's padding.
   */
  get privateData(): Uint8Array {
    return this.#data.privateData;
  }

  /**
   * Accepts the request (rdma_accept). Does not wait for the client: requests of the connection do, until the client is
   * ready. No client can make it fail: a client that has given up, or that does not get ready, and one for which there
   * is no memory, ends its connection with the error.
   * @throws TypeError, RangeError for wrong options, after which the client is rejected; VerbsError EINVAL when the
   * request was answered before
   */
  async accept(accept: AcceptOptions = {}): Promise<Connection> {
    this.#answer('accept');
    const id = this.#id;
    try {
      const { privateData, pd, ...options } = checkOptions('accept', accept, ACCEPT_CHECKS);
      const limit = PRIVATE_DATA_BYTES.accept;
      const connection = new Connection(id.device, options);
      const data = encodePrivateData(checkPrivateData(privateData, limit), connection.messageBytes, limit);
      await this.#accept(connection, data, pd);
      return connection;
    } catch (error) {
      await id.close();
      throw error;
    }
  }

  /**
   * Rejects the request (rdma_reject). The client fails with CmError ECONNREFUSED. Does nothing when it has given up.
   * @throws TypeError, RangeError for wrong options; VerbsError EINVAL when the request was answered before
   */
  async reject(options: RejectOptions = {}): Promise<void> {
    checkOptions('reject', options, REJECT_CHECKS);
    this.#answer('reject');
    await this.#reject(options);
  }

  /** Returns a short description as plain data, for `JSON.stringify` and `console.log`. */
  toJSON(): Record<string, unknown> {
    const { remoteAddress, remotePort } = this;
    return { remoteAddress, remotePort, isAnswered: this.#isAnswered };
  }

  /** @internal */
  [inspect.custom](depth: number, options: InspectOptionsStylized): string {
    return inspectAs(this, depth, options);
  }

  /** @internal The device is closing: rejects the request. */
  close(): Promise<void> {
    return this.#reject({});
  }

  /** @internal The device is closing at once, which rejects the request. */
  destroy(): void {}

  #answer(call: string): void {
    if (this.#isAnswered) throw new VerbsError('EINVAL', `${call}: the request of ${this.remoteAddress} was answered`);
    this.#isAnswered = true;
    this.#endpoints.delete(this.#endpoint);
  }

  async #reject(options: RejectOptions): Promise<void> {
    try {
      if (this.#id.isAlive && this.#id.state === 'REQUESTED') await this.#id.reject(options);
    } finally {
      await this.#id.close();
    }
  }

  async #accept(connection: Connection, privateData: Uint8Array, pd: Pd | undefined): Promise<void> {
    const id = this.#id;
    let established: Promise<unknown>;
    try {
      await this.#prepare(connection, pd);
      const { responderResources = 0, initiatorDepth = 0 } = id.request ?? {};
      const param = {
        privateData,
        responderResources: Math.min(connection.readDepth, responderResources),
        initiatorDepth: Math.min(connection.readDepth, initiatorDepth),
        ...retriesOf(connection),
      };
      established = waitFor(id.accept(param), 'the client did not get ready', { timeout: READY_TIMEOUT });
    } catch (error) {
      // Application errors are rethrown unchanged.
      if (!(error instanceof VerbsError)) {
        await connection.close();
        throw error;
      }
      established = Promise.reject(error);
    }
    openConnection(connection, id, this.#data);
    const number = this.#halfOpen.add(connection);
    established
      .then(
        () => connection.onEstablished(),
        (error) => connection.fail(error),
      )
      .finally(() => this.#halfOpen.delete(number));
  }

  /** Clients that are not ready make room for this one. @throws VerbsError ENOMEM when there are none */
  async #prepare(connection: Connection, pd: Pd | undefined): Promise<void> {
    for (;;) {
      try {
        this.#endpoints.assertOpen();
        await prepareConnection(connection, this.#id, this.#pools, pd);
        return;
      } catch (error) {
        const isFull = error instanceof VerbsError && error.code === 'ENOMEM';
        if (!isFull || !(await this.#halfOpen.evictOldest())) throw error;
      }
    }
  }
}

/** @internal Accepted connections whose clients are not ready yet, oldest first. */
export class HalfOpen {
  readonly #all = new NumberMap<{ readonly connection: Connection; readonly acceptedAt: number }>();

  /** @returns the number of the connection, for `delete` */
  add(connection: Connection): number {
    return this.#all.add({ connection, acceptedAt: performance.now() });
  }

  delete(number: number): void {
    this.#all.delete(number);
  }

  /** Ends the oldest connection and frees its memory. @returns false if none is old enough */
  async evictOldest(): Promise<boolean> {
    for (const [number, { connection, acceptedAt }] of this.#all) {
      if (performance.now() - acceptedAt < MIN_READY_TIME) return false;
      this.#all.delete(number);
      connection.destroy(new VerbsError('ECONNRESET', 'the client was not ready, and made room for another one'));
      await connection.close().catch(() => {});
      return true;
    }
    return false;
  }
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
    const id = createCmId(device, CM_ID_OPTIONS);
    try {
      await id.bindAddr(host, port);
      await id.listen({ backlog });
      signal?.throwIfAborted();
    } catch (error) {
      await id.close();
      throw withDetails(error, { syscall: 'listen', address: host, port });
    }
    const server = new Server(id, accept, new ReceivePools(device, { maxBytes: receivePoolBytes, isKept: true }));
    if (signal !== undefined) {
      const onAbort = () => server.destroy();
      signal.addEventListener('abort', onAbort, { once: true });
      server.once('close', () => signal.removeEventListener('abort', onAbort));
    }
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
    Endpoints.of(this.#id.device).delete(this.#endpoint);
    this.#id.channel.close();
    void this.#id.close();
    void this.#pools.close();
    process.nextTick(() => this.emit('close', ...(error ? [error] : [])));
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
        process.nextTick(() => this.emit('connection', connection));
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
