/** Listening, and what comes of it. */
import { type CmAddress, type CmId, createCmId, type RejectReasonName } from '../cm/index.js';
import type { Device } from '../verbs/context.js';
import type { Pd } from '../verbs/pd.js';
import type { WaitOptions } from '../verbs/waiting.js';
import type { Connection, ConnectionOptions } from './connection.js';
import { attach, ID_OPTIONS, prepared } from './dial.js';

export interface ListenOptions {
  /** 0 = any that is free; `server.address` tells which. */
  readonly port: number;
  /** One of the device's addresses; `0.0.0.0` all of IPv4. Default `::`, all. */
  readonly host?: string;
  /** Requests that may wait; more are refused. Default 1024. */
  readonly backlog?: number;
}

export interface AcceptOptions extends ConnectionOptions {
  /** What the client gets with the answer, up to 196 bytes; it comes filled up with zeros. */
  readonly privateData?: Uint8Array;
  /** Domain of the connection's memory. Default: one of its own. */
  readonly pd?: Pd;
}

export interface RefuseOptions {
  /** What the client gets to know, up to 148 bytes. */
  readonly privateData?: Uint8Array;
  /** Default `CONSUMER_DEFINED`. */
  readonly reason?: RejectReasonName;
}

/** Somebody wants to connect: `accept` or `reject`, or the client is left to wait until it gives up. */
export class ConnectionRequest {
  readonly #id: CmId;

  /** @internal */
  constructor(id: CmId) {
    this.#id = id;
  }

  get remoteAddress(): string {
    return this.#id.remoteAddress?.address ?? '';
  }
  get remotePort(): number {
    return this.#id.remoteAddress?.port ?? 0;
  }
  /** What the client sent along, filled up with zeros to 56 bytes. */
  get privateData(): Uint8Array {
    return this.#id.request?.privateData ?? new Uint8Array(0);
  }

  /**
   * Resolves when the client is connected.
   * @throws TypeError, RangeError; CmError ECONNREFUSED, ETIMEDOUT, ECONNRESET when the client has given up; VerbsError ENOMEM,
   * EINVAL the second time. The client is refused then
   */
  async accept({ privateData, ...options }: AcceptOptions = {}): Promise<Connection> {
    let connection: Connection | undefined;
    try {
      connection = await prepared(this.#id, options);
      const established = await this.#id.accept(privateData && { privateData });
      return attach(connection, this.#id, established?.privateData);
    } catch (error) {
      await this.#id.close();
      await connection?.close();
      throw error;
    }
  }

  /** @throws TypeError, RangeError; VerbsError EINVAL when it was answered before */
  async reject(options: RefuseOptions = {}): Promise<void> {
    await this.#id.reject(options);
    await this.#id.close();
  }
}

/**
 * Takes connections until it is closed: `for await (const request of server)`. While somebody waits, the process runs.
 * A device that has never listened or connected leaves clients without an answer: another card may have its address.
 */
export class Server implements AsyncIterable<ConnectionRequest>, AsyncDisposable {
  readonly #id: CmId;

  private constructor(id: CmId) {
    this.#id = id;
  }

  /** @internal @throws as `Device.listen` */
  static async listen(device: Device, { port, host = '::', backlog = 1024 }: ListenOptions): Promise<Server> {
    const id = createCmId(device, ID_OPTIONS);
    try {
      await id.bindAddr(host, port);
      await id.listen({ backlog });
      return new Server(id);
    } catch (error) {
      await id.close();
      throw error;
    }
  }

  get address(): CmAddress {
    return this.#id.localAddress as CmAddress;
  }

  /**
   * The next request; undefined when there is none any more because the server is closed.
   * @throws the signal's reason; VerbsError ETIMEDOUT, EIO when the device fails
   */
  async next(wait: WaitOptions = {}): Promise<ConnectionRequest | undefined> {
    const { channel } = this.#id;
    if (channel.isClosed) return undefined;
    try {
      return new ConnectionRequest(await this.#id.getRequest(wait));
    } catch (error) {
      if (channel.isClosed) return undefined;
      throw error;
    }
  }

  /** Requests as they come; ends when the server is closed. */
  async *[Symbol.asyncIterator](): AsyncGenerator<ConnectionRequest, void, void> {
    for (let request = await this.next(); request !== undefined; request = await this.next()) yield request;
  }

  /** No more requests: those that wait are refused. Connections live on. */
  async close(): Promise<void> {
    this.#id.channel.close();
    await this.#id.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}
