/** Connection requests of clients (rdma_cm's passive side). */
import { type InspectOptionsStylized, inspect } from 'node:util';
import { NumberMap } from '../../base/numbermap.js';
import { bytes, type Checks, checkOptions, oneOf } from '../../base/options.js';
import { performance } from '../../base/timers.js';
import { waitFor } from '../../base/waiting.js';
import { type CmId, RejectReason, type RejectReasonName } from '../../cm/index.js';
import { checkPrivateData, PRIVATE_DATA_BYTES } from '../../cm/parameters.js';
import { VerbsError } from '../../errors.js';
import { Endpoints } from '../../transport/endpoints.js';
import type { ReceivePools } from '../../transport/pools/receivepool.js';
import { inspectAs } from '../../verbs/diagnose/describe.js';
import type { Pd } from '../../verbs/objects/pd.js';
import { Connection } from './connection.js';
import { CONNECTION_CHECKS, type ConnectionOptions, type ConnectionSettings, connectionSettings } from './options.js';
import { CmPeer } from './peer.js';
import { decodePrivateData, encodePrivateData, type PeerData } from './privatedata.js';
import { Resources } from './resources.js';

/** Time that an accepted client has to get ready (ms). */
const READY_TIMEOUT = 30_000;
/** When memory is exhausted, clients that are not ready after this time make room for others (ms). */
const MIN_READY_TIME = 1000;

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

/** The checks of `AcceptOptions`. */
export const ACCEPT_CHECKS: Checks<AcceptOptions> = CONNECTION_CHECKS;
const REJECT_CHECKS: Checks<RejectOptions> = { privateData: bytes, reason: oneOf(...Object.keys(RejectReason)) };

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
   * Private data that the client has passed. Of a client without this project, or with more than 40 bytes, all 56 bytes
   * with rdma_cm's padding.
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
      const settings = connectionSettings(options);
      const data = encodePrivateData(checkPrivateData(privateData, limit), settings.messageBytes, limit);
      return await this.#accept(settings, data, pd);
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

  async #accept(settings: ConnectionSettings, privateData: Uint8Array, pd: Pd | undefined): Promise<Connection> {
    const id = this.#id;
    let resources: Resources | undefined;
    let established: Promise<unknown>;
    try {
      resources = await this.#allocate(settings, pd);
      await id.useQp(resources.qp);
      const { responderResources = 0, initiatorDepth = 0 } = id.request ?? {};
      const param = {
        privateData,
        responderResources: Math.min(settings.readDepth, responderResources),
        initiatorDepth: Math.min(settings.readDepth, initiatorDepth),
        ...settings.retries,
      };
      established = waitFor(id.accept(param), 'the client did not get ready', { timeout: READY_TIMEOUT });
    } catch (error) {
      // Application errors are rethrown unchanged.
      if (!(error instanceof VerbsError)) {
        await resources?.close();
        throw error;
      }
      established = Promise.reject(error);
    }
    const connection = new Connection(id.device, settings, resources, new CmPeer(id, this.#data));
    const number = this.#halfOpen.add(connection);
    established
      .then(
        () => connection.onEstablished(),
        (error) => connection.fail(error),
      )
      .finally(() => this.#halfOpen.delete(number));
    return connection;
  }

  /** Clients that are not ready make room for this one. @throws VerbsError ENOMEM when there are none */
  async #allocate(settings: ConnectionSettings, pd: Pd | undefined): Promise<Resources> {
    for (;;) {
      try {
        this.#endpoints.assertOpen();
        return await Resources.allocate(this.#id.device, settings, this.#pools, pd);
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
