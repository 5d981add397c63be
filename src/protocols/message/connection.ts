/**
 * A connection as Node programs use it: messages, access to the peer's memory, or a stream. It owns one RC queue pair,
 * which the connection manager (rdma_cm) has connected.
 */

import { EventEmitter } from 'node:events';
import type { Duplex } from 'node:stream';
import { type InspectOptionsStylized, inspect } from 'node:util';
import { type Checks, checkBoolean, checkInteger, checkOptions, checkU32, show } from '../../base/options.js';
import { WAIT_CHECKS, type WaitOptions, waitFor } from '../../base/waiting.js';
import { Deferred } from '../../cm/deferred.js';
import { checkRetries } from '../../cm/parameters.js';
import { toError } from '../../cm/qpstates.js';
import { LIMITS, WcStatus } from '../../device/codes.js';
import { invalidType, VerbsError } from '../../errors.js';
import { onFatalEvent } from '../../transport/disconnect.js';
import type { AccessFlags } from '../../verbs/access.js';
import { inspectAs } from '../../verbs/diagnose/describe.js';
import type { Context } from '../../verbs/objects/context.js';
import type { Mr, RemoteMemory } from '../../verbs/objects/mr.js';
import type { Pd } from '../../verbs/objects/pd.js';
import type { Qp } from '../../verbs/objects/qp.js';
import type { Wc } from '../../verbs/work/wc.js';
import type { Sge } from '../../verbs/work/wr.js';
import { Endpoints } from './endpoints.js';
import { EndReason } from './endreason.js';
import { type Message, MessageQueue } from './messages.js';
import { type AtomicOptions, memoryFor, OneSided, type ReadOptions, stage, type WriteOptions } from './onesided.js';
import { allocateParts, type Parts } from './parts.js';
import type { Peer } from './peer.js';
import { ReceivePools } from './receivepool.js';
import { type BuildRequest, completionError, type Slot } from './requests.js';
import { ConnectionStream } from './stream.js';

/** Sizes and keep-alive of a connection. */
export interface ConnectionOptions {
  /**
   * Largest message in bytes, in both directions, 64 to 2^30. A peer of this project is told, and refuses a longer
   * message itself; one of another peer ends the connection. Default 16384.
   */
  readonly messageBytes?: number;
  /**
   * Messages that may arrive before they are read, 8..16384; after that the peer waits. Each takes a receive buffer of
   * `messageBytes`, from those that connections share. Default 32.
   */
  readonly receives?: number;
  /**
   * Whether the connection has `receives` buffers of its own, `receives` * `messageBytes` of the device's memory from
   * when it is established until it is closed, so that no other connection can slow it down. Default false: the
   * connections of a server share buffers, and so do those that the device has made by `connect`. An idle connection
   * then takes about 7 KiB of the device's memory. See `receivePoolBytes`.
   */
  readonly ownReceives?: boolean;
  /**
   * Requests in flight, 1..16384. Further requests wait in order. A request takes memory for its bytes only while it is
   * in flight. Default 16.
   */
  readonly sends?: number;
  /**
   * Keep-alive interval in milliseconds. When nothing was heard from the peer for one interval, a WRITE of zero bytes
   * probes it; a peer that does not acknowledge ends the connection. 0 = no probes. Default 10000.
   */
  readonly keepAlive?: number;
  /**
   * Milliseconds that `close` waits for a peer that acknowledges nothing of what was sent; then the connection is
   * destroyed. 0 = no limit. Default 30000.
   */
  readonly closeTimeout?: number;
  /**
   * Retries after timeouts and sequence errors without progress, as the attribute of a queue pair: 0 to 7, or
   * `Infinity`. The connection fails after the last one. Default: `connect` asks for 7 at both ends, `accept` takes
   * what the client asks for. `Infinity` is for our end alone (the other asks for it itself), and outlives any loss and
   * outage: then only the program, or `closeTimeout`, gives up a peer that has vanished.
   */
  readonly retryCnt?: number;
}

const SEND_CHECKS: Checks<SendOptions> = { ...WAIT_CHECKS, imm: checkU32 };

/** Options of `connection.send`. */
export interface SendOptions extends WaitOptions {
  /** Immediate data sent with the message (SEND_WITH_IMM), 32 bits. Default: none. */
  readonly imm?: number;
}

/**
 * A reliable connection to one peer, from `device.connect` or `request.accept`. It sends and receives messages, reads
 * and writes memory that the peer shares, or becomes a stream of bytes. Receives are reposted automatically, slow
 * readers apply backpressure, and keep-alives detect dead peers.
 *
 * Events: `end` once, while `qp` still exists, so that its counters can be read; then `close`, with the error that
 * ended the connection, or with none when one of the two ends closed it. An open connection keeps the process running;
 * see `unref`.
 *
 * @example
 * ```ts
 * const connection = await device.connect({ host: '10.0.0.2', port: 7471 });
 * await connection.send(Buffer.from('hello'));
 * for await (const { data } of connection) console.log(data.toString());
 * await connection.close();
 * ```
 */
export class Connection extends EventEmitter<{ end: []; close: [error?: Error] }> implements AsyncIterable<Message> {
  /** Largest message in bytes, in both directions; see also `peerMessageBytes`. */
  readonly messageBytes: number;
  readonly #device: Context;
  readonly #receives: number;
  readonly #ownReceives: boolean;
  readonly #sends: number;
  readonly #keepAlive: number;
  readonly #closeTimeout: number;
  /** @internal Retries of the queue pair, if the application has said how many. */
  readonly retryCnt: number | undefined;
  readonly #messages = new MessageQueue();
  readonly #oneSided: OneSided;
  /** Most connections share none. */
  #sharedMrs: Set<Mr> | undefined;
  #parts: Parts | undefined;
  #keepAliveTimer: NodeJS.Timeout | undefined;
  /** A completion showed the peer to be alive since the timer last fired. */
  #hasHeardPeer = true;
  #peer: Peer | undefined;
  #stream: ConnectionStream | undefined;
  /** Draining: pending requests complete, new ones are refused. */
  #state: 'connecting' | 'open' | 'draining' | 'closing' | 'closed' = 'connecting';
  /** The application has had the time to add its listeners. Until then the connection does not end by itself. */
  #isHandedOver = false;
  /** The end of the connection, if it came before that. */
  #earlyEnd: { readonly error: Error | undefined } | undefined;
  /** Resolves when the peer is ready to receive, or the connection has ended. */
  readonly #ready = new Deferred<void>();
  #keepsProcessAlive = false;
  /** Among the endpoints of the device; 0 = not one of them. */
  #endpoint = 0;
  /** `close` waits for the peer. */
  #draining: Promise<void> | undefined;
  #closeTimer: NodeJS.Timeout | undefined;
  #cleanup: Promise<void> | undefined;
  #endReason: EndReason | undefined;

  /**
   * @internal Use `prepare`.
   * @throws TypeError, RangeError for wrong options
   */
  constructor(
    device: Context,
    {
      messageBytes = 16384,
      receives = 32,
      ownReceives = false,
      sends = 16,
      keepAlive = 10_000,
      closeTimeout = 30_000,
      retryCnt,
    }: ConnectionOptions,
  ) {
    super();
    this.messageBytes = checkInteger('messageBytes', messageBytes, 64, 2 ** 30);
    this.#receives = checkInteger('receives', receives, 8, 16384);
    this.#ownReceives = checkBoolean('ownReceives', ownReceives);
    this.#sends = checkInteger('sends', sends, 1, 16384);
    this.#keepAlive = checkInteger('keepAlive', keepAlive, 0, 2 ** 31 - 1);
    this.#closeTimeout = checkInteger('closeTimeout', closeTimeout, 0, 2 ** 31 - 1);
    this.retryCnt = retryCnt === undefined ? undefined : checkRetries('retryCnt', retryCnt);
    this.#device = device;
    this.#oneSided = new OneSided((...request) => this.#submit(...request), messageBytes);
  }

  /**
   * @internal Creates a connection whose queue pair the connection manager has yet to connect.
   * @throws TypeError, RangeError for wrong options; VerbsError ENOMEM
   */
  static async prepare(device: Context, pd: Pd, options: ConnectionOptions = {}): Promise<Connection> {
    const connection = new Connection(device, options);
    await connection.allocate(new ReceivePools(device, { isKept: false }), pd);
    return connection;
  }

  /**
   * @internal Allocates the queue pair, and the first receive buffers that connections share.
   * @param pools has the shared receive buffers
   * @param domain protection domain. Default: a new one, which is closed with the connection
   * @throws VerbsError ENOMEM; nothing is left allocated then
   */
  async allocate(pools: ReceivePools, domain?: Pd): Promise<void> {
    const sizes = {
      messageBytes: this.messageBytes,
      receives: this.#receives,
      ownReceives: this.#ownReceives,
      sends: this.#sends,
    };
    const handlers = { onSent: (wc: Wc) => this.#onSent(wc), onReceived: (wc: Wc) => this.#onReceived(wc) };
    this.#use(await allocateParts(this.#device, sizes, handlers, pools, domain));
  }

  #use(parts: Parts): void {
    const { qp, receives, requests } = parts;
    receives.deliverTo((message) => this.#messages.push(message));
    requests.pause();
    this.#parts = parts;
    onFatalEvent(qp, (error) => this.fail(error));
  }

  /**
   * @internal Adds the connection's receive buffers. An accepted connection does this when the peer is ready, so that
   * peers that never get ready take no memory.
   * @throws VerbsError ENOMEM
   */
  addBuffers(): void {
    this.#parts?.receives.addBuffers();
  }

  /**
   * @internal The application is about to get the connection. If it has ended already, the application learns it once
   * it has added its listeners.
   */
  open(peer: Peer): void {
    this.#peer = peer;
    this.#state = 'open';
    this.#endpoint = Endpoints.of(this.#device).add(this);
    this.ref();
    setImmediate(() => {
      this.#isHandedOver = true;
      if (this.#earlyEnd !== undefined) this.#shutdown(this.#earlyEnd.error);
    });
  }

  /**
   * @internal READs and atomics that each end may have outstanding at the other: 16, as adapters have, or `sends`. The
   * card keeps 80 bytes for each.
   */
  get readDepth(): number {
    return Math.min(Math.max(this.#sends, 16), LIMITS.maxRdAtomic);
  }

  /** @internal The peer is ready to receive. */
  onEstablished(): void {
    if (this.#endReason !== undefined) return;
    try {
      this.addBuffers();
    } catch (error) {
      this.fail(error as Error);
      return;
    }
    this.#parts?.requests.resume();
    this.#ready.resolve();
    if (this.#keepAlive > 0) this.#keepAliveTimer = setInterval(() => this.#probePeer(), this.#keepAlive).unref();
  }

  /** @internal The peer has disconnected, or with `error` is lost. */
  onDisconnected(error?: Error): void {
    this.#deliverCompletions();
    // If an error of this queue pair was the reason, its asynchronous event is delivered first.
    setImmediate(() => this.#end(error));
  }

  /** @internal The connection has failed, or could not be established. */
  fail(error: Error): void {
    this.#end(error);
  }

  /** Protection domain of the connection; regions that the peer may access belong to it. */
  get pd(): Pd {
    return this.qp.pd;
  }
  /**
   * The RC queue pair, for counters and attributes. Its completions and receives belong to the connection.
   * @throws VerbsError ENOMEM for an accepted connection that got no queue pair, which `close` reports too
   */
  get qp(): Qp {
    if (this.#parts !== undefined) return this.#parts.qp;
    throw this.#earlyEnd?.error ?? new VerbsError('EINVAL', 'the connection has no queue pair');
  }
  /** Largest message in bytes that the peer receives, if it has said so when the connection was established. */
  get peerMessageBytes(): number | undefined {
    return this.#peer?.messageBytes;
  }
  /** The peer's IP address. Undefined before the connection is established. */
  get remoteAddress(): string | undefined {
    return this.#peer?.address;
  }
  /** The peer's port. Undefined before the connection is established. */
  get remotePort(): number | undefined {
    return this.#peer?.port;
  }
  /**
   * Private data of the peer's connection request or reply: what the peer has passed. Of a peer without this project,
   * and beyond 40 bytes of a request or 180 of a reply, it is padded with zeros by rdma_cm.
   */
  get privateData(): Uint8Array {
    return this.#peer?.privateData ?? new Uint8Array(0);
  }
  /** Whether neither end has closed the connection. */
  get isOpen(): boolean {
    return this.#state === 'open';
  }

  /**
   * Sends a message. Resolves when the peer's adapter has acknowledged it. At most `sends` requests are in flight;
   * others wait.
   * @param message text, which is sent as UTF-8; bytes, which are copied when the request is posted; or a
   * scatter/gather element of registered memory. Do not change the latter two before the promise settles
   * @throws TypeError, RangeError for wrong arguments; VerbsError EMSGSIZE when longer than `messageBytes` or
   * `peerMessageBytes`, EBUSY when the connection is a stream, ECONNRESET when the connection has ended, ETIMEDOUT
   * after `timeout`; the signal's reason; WcError when the request failed
   */
  async send(message: string | Uint8Array | Sge, options: SendOptions = {}): Promise<void> {
    if (this.#stream !== undefined) throw this.#streamError();
    const { imm, ...wait } = checkOptions('send', options, SEND_CHECKS);
    const data = typeof message === 'string' ? Buffer.from(message) : message;
    if (typeof data !== 'object' || data === null)
      throw invalidType(`the message is ${show(data)}, must be text, bytes or a scatter/gather element`);
    const { length } = data;
    const { messageBytes, peerMessageBytes = Number.POSITIVE_INFINITY } = this;
    // Registered memory needs no room of ours.
    const ours = data instanceof Uint8Array ? messageBytes : Number.POSITIVE_INFINITY;
    if (length > Math.min(ours, peerMessageBytes)) {
      const limit = ours <= peerMessageBytes ? `messageBytes ${ours}` : `the peer's messageBytes ${peerMessageBytes}`;
      const text = `the message has ${length} bytes, at most ${limit} are allowed`;
      throw new VerbsError('EMSGSIZE', text);
    }
    return this.post(() => ({ data, imm }), memoryFor(data), wait);
  }

  /**
   * @internal Sends a message that `build` makes when the request is posted. Also used by the stream.
   * @param bytes room for data that is no registered memory, of which `build` gets the actual size
   */
  post(
    build: (room: number) => { data: Uint8Array | Sge; imm: number | undefined },
    bytes: number,
    wait: WaitOptions = {},
  ): Promise<void> {
    return this.#submit(
      'no acknowledgement of the SEND',
      wait,
      bytes,
      (slot, wrId) => {
        const { data, imm } = build(slot.bytes.length);
        const sgList = stage(slot, data);
        return imm === undefined
          ? { opcode: 'SEND', wrId, signaled: true, solicited: true, sgList }
          : { opcode: 'SEND_WITH_IMM', wrId, signaled: true, solicited: true, sgList, immData: imm };
      },
      () => {},
    );
  }

  /**
   * Returns the next message, or undefined after the last one when one of the two ends has closed the connection.
   * @throws the error that ended the connection; VerbsError EBUSY when it is a stream, ETIMEDOUT after `timeout`; the
   * signal's reason; TypeError for wrong options
   */
  receive(wait: WaitOptions = {}): Promise<Message | undefined> {
    if (this.#stream !== undefined) return Promise.reject(this.#streamError());
    return this.#messages.next(wait);
  }

  /** Iterates over all messages until the connection ends. Leaving the loop does not close the connection. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Message, void, void> {
    for (let message = await this.receive(); message !== undefined; message = await this.receive()) yield message;
  }

  /**
   * Registers memory for the peer. Send `mr.remote` to the peer, which then uses `read`, `write`, `compareSwap` or
   * `fetchAdd`. The region is closed with the connection, or before by `mr.close()`.
   * @param source number of bytes to allocate, or memory of a region, as in `pd.regMr`
   * @param access rights of the region. Default: the peer may read, write and use atomics
   * @throws TypeError, RangeError for wrong arguments; VerbsError ENOMEM, EINVAL as `pd.regMr`
   */
  async share(
    source: number | Uint8Array | Mr,
    access: AccessFlags = ['localWrite', 'remoteRead', 'remoteWrite', 'remoteAtomic'],
  ): Promise<Mr> {
    const mr = await this.pd.regMr(source, { access });
    this.#sharedMrs ??= new Set();
    this.#sharedMrs.add(mr);
    return mr;
  }

  /**
   * Writes to the peer's memory (RDMA WRITE). Resolves when the peer's adapter has acknowledged all of it. Data longer
   * than `messageBytes` is sent in several requests.
   * @param remote the peer's `mr.remote`
   * @param data bytes, copied as by `send`; or one scatter/gather element of registered memory
   * @throws RangeError outside the region; otherwise as `send`
   */
  write(remote: RemoteMemory, data: Uint8Array | Sge, options: WriteOptions = {}): Promise<void> {
    return this.#oneSided.write(remote, data, options);
  }

  /**
   * Reads the peer's memory (RDMA READ). More than `messageBytes` is read in several requests.
   * @param remote the peer's `mr.remote`
   * @throws RangeError outside the region; otherwise as `send`
   */
  read(remote: RemoteMemory, options: ReadOptions = {}): Promise<Buffer> {
    return this.#oneSided.read(remote, options);
  }

  /**
   * Atomic compare-and-swap: replaces the 64-bit integer at `offset` of the peer's memory, in the peer's host byte
   * order, with `desired` if it equals `expected`.
   * @param remote the peer's `mr.remote`, whose region needs `remoteAtomic`
   * @returns the value before the operation
   * @throws as `read`
   */
  compareSwap(remote: RemoteMemory, expected: bigint, desired: bigint, options: AtomicOptions = {}): Promise<bigint> {
    return this.#oneSided.atomic(remote, options, {
      opcode: 'ATOMIC_CMP_AND_SWP',
      compareAdd: expected,
      swap: desired,
    });
  }

  /**
   * Atomic fetch-and-add: adds to the 64-bit integer at `offset` of the peer's memory, in the peer's host byte order,
   * modulo 2^64.
   * @param remote the peer's `mr.remote`, whose region needs `remoteAtomic`
   * @returns the value before the operation
   * @throws as `read`
   */
  fetchAdd(remote: RemoteMemory, add: bigint, options: AtomicOptions = {}): Promise<bigint> {
    return this.#oneSided.atomic(remote, options, { opcode: 'ATOMIC_FETCH_AND_ADD', compareAdd: add });
  }

  /**
   * Turns the connection into a stream of bytes. The peer must do the same. From then on `send` and `receive` are
   * refused. The connection closes when both ends have ended the stream; closing the connection ends the stream.
   * @throws VerbsError EBUSY when it is a stream already
   */
  stream(): Duplex {
    if (this.#stream !== undefined) throw this.#streamError();
    const stream = new ConnectionStream(this, this.#receives);
    this.#stream = stream;
    this.#parts?.receives.deliverTo((message) => stream.onMessage(message));
    this.#messages.redirect((message) => stream.onMessage(message), this.#streamError());
    if (this.#endReason !== undefined) stream.onConnectionEnd(this.#endReason.cause, false);
    return stream;
  }

  /** Keeps the process running while the connection is open. This is the default. */
  ref(): this {
    if (!this.#keepsProcessAlive && this.#state === 'open') {
      this.#keepsProcessAlive = true;
      this.#device.engine.ref();
    }
    return this;
  }

  /** Lets the process exit although the connection is open. */
  unref(): this {
    if (this.#keepsProcessAlive) this.#device.engine.unref();
    this.#keepsProcessAlive = false;
    return this;
  }

  /**
   * Closes the connection: refuses new requests, waits until pending ones are acknowledged, disconnects and frees all
   * resources. An accepted connection first waits until the client is ready. A second call waits for the same end.
   *
   * When the peer acknowledges nothing for `closeTimeout`, the connection is destroyed, and what is not acknowledged is
   * lost: `close` and the event `close` report ETIMEDOUT. A limit in `wait` does the same earlier.
   * @param wait limits the wait for the peer
   * @throws VerbsError ETIMEDOUT after `closeTimeout` or `timeout`; the signal's reason; the connection is closed then.
   * EBUSY when other objects still use the domain or shared memory
   */
  async close(wait: WaitOptions = {}): Promise<void> {
    await waitFor(this.#close(), 'the connection was not closed', wait, () => this.destroy());
  }

  async #close(): Promise<void> {
    if (this.#state === 'open') this.#state = 'draining';
    if (this.#state === 'draining') {
      this.#draining ??= this.#drain();
      await this.#draining;
    }
    // The peer may have closed the connection, or vanished, in the meantime.
    this.#shutdown(undefined, true);
    await this.#cleanup;
  }

  /** Same as `close`, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /**
   * Ends the connection at once; requests in flight are lost.
   * @param error reported to pending `receive` calls, the stream and `close` listeners. Default: none
   */
  destroy(error?: Error): void {
    this.#shutdown(error, true);
  }

  /** Returns a short description as plain data, for `JSON.stringify` and `console.log`. */
  toJSON(): Record<string, unknown> {
    const { remoteAddress, remotePort, messageBytes } = this;
    return { remoteAddress, remotePort, state: this.#state, messageBytes };
  }

  /** @internal */
  [inspect.custom](depth: number, options: InspectOptionsStylized): string {
    return inspectAs(this, depth, options);
  }

  #onSent(wc: Wc): void {
    this.#hasHeardPeer ||= wc.ok;
    if (wc.ok) this.#closeTimer?.refresh();
    try {
      const error = this.#parts?.requests.complete(wc);
      if (error !== undefined) this.#end(error);
    } catch (error) {
      this.#end(error as Error);
    }
  }

  #onReceived(wc: Wc): void {
    this.#hasHeardPeer ||= wc.ok;
    try {
      // After the end, readers have got it already.
      if (wc.ok && this.#endReason === undefined) {
        this.#parts?.receives.onCompletion(wc);
        return;
      }
      this.#parts?.receives.discard(wc);
      if (!wc.ok && wc.status !== WcStatus.WR_FLUSH_ERR) this.#end(completionError(wc));
    } catch (error) {
      this.#end(error as Error);
    }
  }

  /** Delivers all pending completions. */
  #deliverCompletions(): void {
    this.#parts?.sendPool.cq.drain();
    this.#parts?.receives.pool.cq.drain();
  }

  /** Probes a silent peer. */
  #probePeer(): void {
    try {
      if (!this.#hasHeardPeer) this.#parts?.requests.probe();
    } catch (error) {
      // The application has closed the queue pair or its device.
      this.#end(error as Error);
    }
    this.#hasHeardPeer = false;
  }

  /** Waits until the peer has acknowledged everything. @throws VerbsError ETIMEDOUT after it was given up */
  async #drain(): Promise<void> {
    const late = new Deferred<VerbsError>();
    const timeout = this.#closeTimeout;
    const text = `the peer has acknowledged nothing for ${timeout} ms (closeTimeout), and the connection was destroyed`;
    const onTimeout = () => late.resolve(new VerbsError('ETIMEDOUT', text));
    if (timeout > 0) this.#closeTimer = setTimeout(onTimeout, timeout);
    const drained = this.#ready.promise.then(() => this.#parts?.requests.idle());
    const error = await Promise.race([drained, late.promise]);
    clearTimeout(this.#closeTimer);
    this.#closeTimer = undefined;
    if (error === undefined || this.#state !== 'draining') return;
    this.#shutdown(error, true);
    await this.#cleanup;
    throw error;
  }

  /** See `Requests.submit`. */
  #submit<T>(
    timeoutText: string,
    wait: WaitOptions,
    bytes: number,
    build: BuildRequest,
    finish: (slot: Slot) => T,
  ): Promise<T> {
    if (this.#state !== 'open') return Promise.reject(new VerbsError('ECONNRESET', `the connection is ${this.#state}`));
    if (this.#parts === undefined) return Promise.reject(this.#earlyEnd?.error);
    return this.#parts.requests.submit(timeoutText, wait, bytes, build, finish);
  }

  #streamError(): VerbsError {
    return new VerbsError('EBUSY', 'the connection is a stream, which sends and receives all messages');
  }

  /** The connection has ended by itself. */
  #end(error: Error | undefined): void {
    if (this.#isHandedOver) this.#shutdown(error);
    else this.#earlyEnd ??= { error };
  }

  /** Starts the shutdown. Later calls do nothing. */
  #shutdown(error: Error | undefined, isLocal = false): void {
    if (this.#state === 'closing' || this.#state === 'closed') return;
    this.#state = 'closing';
    this.unref();
    clearInterval(this.#keepAliveTimer);
    this.#endReason = new EndReason(error);
    this.#ready.resolve();
    this.#parts?.requests.end(this.#endReason);
    this.#messages.end(error);
    this.#stream?.onConnectionEnd(error, isLocal);
    this.#cleanup = this.#closeResources();
    this.#cleanup.catch(() => {}).then(() => this.#onClosed(error));
    // Last, because a listener may throw. Without a queue pair there is nothing to read.
    if (this.#parts !== undefined) this.emit('end');
  }

  async #closeResources(): Promise<void> {
    await this.#peer?.disconnect().catch(() => {});
    // The card uses none of the memory any more, which others are about to get.
    await toError(this.#parts?.qp);
    this.#deliverCompletions();
    this.#parts?.requests.failInFlight();
    for (const mr of this.#sharedMrs ?? []) await mr.close();
    await this.#parts?.scope.close();
    this.#state = 'closed';
  }

  #onClosed(error: Error | undefined): void {
    Endpoints.of(this.#device).delete(this.#endpoint);
    this.emit('close', error);
  }
}
