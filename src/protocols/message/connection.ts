/**
 * A connection as Node programs use it: messages, access to the peer's memory, or a stream. It owns one RC queue pair,
 * which the connection manager (rdma_cm) has connected.
 */

import { EventEmitter } from 'node:events';
import type { Duplex } from 'node:stream';
import { type InspectOptionsStylized, inspect } from 'node:util';
import { type Checks, checkOptions, checkU32, wrongType } from '../../base/options.js';
import { setImmediate } from '../../base/timers.js';
import { WAIT_CHECKS, type WaitOptions, waitFor } from '../../base/waiting.js';
import { VerbsError } from '../../errors.js';
import { CallMemory } from '../../transport/callmemory.js';
import { Endpoints } from '../../transport/endpoints.js';
import { type BuildRequest, memoryFor, type Slot, type SlotInPlace, stage } from '../../transport/sendqueue.js';
import type { AccessFlags } from '../../verbs/access.js';
import { inspectAs } from '../../verbs/diagnose/describe.js';
import type { Context } from '../../verbs/objects/context.js';
import type { Mr, RemoteMemory } from '../../verbs/objects/mr.js';
import type { Pd } from '../../verbs/objects/pd.js';
import type { Qp } from '../../verbs/objects/qp.js';
import type { Sge } from '../../verbs/work/wr.js';
import { type EndReason, Lifecycle } from './lifecycle.js';
import { type Message, MessageQueue } from './messages.js';
import { type AtomicOptions, OneSided, type ReadOptions, type WriteOptions } from './onesided.js';
import type { ConnectionSettings } from './options.js';
import type { Peer } from './peer.js';
import type { Resources } from './resources.js';
import { ConnectionStream } from './stream.js';

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
  readonly #settings: ConnectionSettings;
  /** Undefined when there was no memory for them: the connection ends by that error. */
  readonly #resources: Resources | undefined;
  readonly #peer: Peer;
  readonly #messages: MessageQueue;
  readonly #oneSided: OneSided;
  readonly #life: Lifecycle;
  #stream: ConnectionStream | undefined;
  #keepsProcessAlive = false;
  /** Among the endpoints of the device. */
  readonly #endpoint: number;

  /**
   * @internal The application is about to get the connection. If it ends before, the application learns it once it has
   * added its listeners.
   * @param resources those that rdma_cm has connected, or is about to
   */
  constructor(device: Context, settings: ConnectionSettings, resources: Resources | undefined, peer: Peer) {
    super();
    this.messageBytes = settings.messageBytes;
    this.#device = device;
    this.#settings = settings;
    this.#resources = resources;
    this.#peer = peer;
    this.#messages = resources?.messages ?? new MessageQueue();
    const callMemory = (memory: Uint8Array, access: AccessFlags) => this.#callMemory(memory, access);
    this.#oneSided = new OneSided({ submit: (...request) => this.#submit(...request), callMemory }, this.messageBytes);
    this.#life = new Lifecycle(settings.closeTimeout, {
      drained: () => resources?.sendQueue.idle(),
      stop: (reason, isLocal) => this.#stop(reason, isLocal),
      free: () => this.#free(),
      // without a queue pair there is nothing to read
      announce: () => resources !== undefined && this.emit('end'),
      onClosed: (error) => this.#onClosed(error),
    });
    this.#endpoint = Endpoints.of(device).add(this);
    this.ref();
    resources?.watch({
      onProgress: () => this.#life.onProgress(),
      onFailure: (error) => this.fail(error),
    });
    peer.watch(this);
  }

  /** @internal The peer is ready to receive. */
  onEstablished(): void {
    if (this.#life.reason !== undefined) return;
    try {
      this.#resources?.addBuffers();
    } catch (error) {
      this.fail(error as Error);
      return;
    }
    this.#life.onReady();
    this.#resources?.start(this.#settings.peerWatch);
  }

  /** @internal The peer has disconnected, or with `error` is lost. */
  onDisconnected(error?: Error): void {
    this.#resources?.deliverCompletions();
    // If an error of this queue pair was the reason, its asynchronous event is delivered first.
    setImmediate(() => this.#life.ended(error));
  }

  /** @internal The connection has failed, or could not be established. */
  fail(error: Error): void {
    this.#life.ended(error);
  }

  /**
   * Protection domain of the connection; regions that the peer may access belong to it. Unless it was given, it is
   * closed with the connection, or with the last object of the application in it, if that is later.
   */
  get pd(): Pd {
    return this.qp.pd;
  }
  /**
   * The RC queue pair, for counters and attributes. Its completions and receives belong to the connection.
   * @throws VerbsError ENOMEM for an accepted connection that got no queue pair, which `close` reports too
   */
  get qp(): Qp {
    if (this.#resources === undefined) throw this.#noQueuePair();
    return this.#resources.qp;
  }
  /** Largest message in bytes that the peer receives, if it has said so when the connection was established. */
  get peerMessageBytes(): number | undefined {
    return this.#peer.messageBytes;
  }
  /** The peer's IP address. */
  get remoteAddress(): string {
    return this.#peer.address;
  }
  /** The peer's port. */
  get remotePort(): number {
    return this.#peer.port;
  }
  /**
   * Private data that the peer has passed with its connection request or reply. rdma_cm pads that of a peer without
   * this project with zeros, and that of more than 40 bytes of a request or 180 of a reply.
   */
  get privateData(): Uint8Array {
    return this.#peer.privateData;
  }
  /** Whether neither end has closed the connection. */
  get isOpen(): boolean {
    return this.#life.state === 'open';
  }

  /**
   * Sends a message. Resolves when the peer's adapter has acknowledged it. At most `sends` requests are in flight;
   * others wait.
   * @param message text, which is sent as UTF-8; bytes; or a scatter/gather element of registered memory. Do not change
   * the latter two before the promise settles. Long bytes are not copied
   * @throws TypeError, RangeError for wrong arguments; VerbsError EMSGSIZE when longer than `messageBytes` or
   * `peerMessageBytes`, EBUSY when the connection is a stream, ECONNRESET when the connection has ended, ETIMEDOUT
   * after `timeout`; the signal's reason; WcError when the request failed
   */
  async send(message: string | Uint8Array | Sge, options: SendOptions = {}): Promise<void> {
    if (this.#stream !== undefined) throw this.#streamError();
    const { imm, ...wait } = checkOptions('send', options, SEND_CHECKS);
    const data = typeof message === 'string' ? Buffer.from(message) : message;
    if (typeof data !== 'object' || data === null)
      throw wrongType('the message', data, 'text, bytes or a scatter/gather element');
    const { length } = data;
    const { messageBytes, peerMessageBytes = Number.POSITIVE_INFINITY } = this;
    // Registered memory needs no room of ours.
    const ours = data instanceof Uint8Array ? messageBytes : Number.POSITIVE_INFINITY;
    if (length > Math.min(ours, peerMessageBytes)) {
      const limit = ours <= peerMessageBytes ? `messageBytes ${ours}` : `the peer's messageBytes ${peerMessageBytes}`;
      const text = `the message has ${length} bytes, at most ${limit} are allowed`;
      throw new VerbsError('EMSGSIZE', text);
    }
    const memory = data instanceof Uint8Array ? this.#callMemory(data, []) : undefined;
    try {
      await this.post(() => ({ data, imm }), memory?.part(0, length) ?? memoryFor(data), wait);
    } finally {
      memory?.end();
    }
  }

  /**
   * @internal Sends a message that `build` makes when the request is posted. Also used by the stream.
   * @param memory the data in place; or room for data that is no registered memory, of which `build` gets the actual
   * size
   */
  post(
    build: (room: number) => { data: Uint8Array | Sge; imm: number | undefined },
    memory: number | SlotInPlace,
    wait: WaitOptions = {},
  ): Promise<void> {
    return this.#submit(
      'no acknowledgement of the SEND',
      wait,
      memory,
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
    if (this.#resources === undefined) throw this.#noQueuePair();
    return this.#resources.share(source, { access });
  }

  /**
   * Writes to the peer's memory (RDMA WRITE). Resolves when the peer's adapter has acknowledged all of it. Long data is
   * sent in several requests.
   * @param remote the peer's `mr.remote`
   * @param data bytes, as for `send`; or one scatter/gather element of registered memory
   * @throws RangeError outside the region; otherwise as `send`
   */
  write(remote: RemoteMemory, data: Uint8Array | Sge, options: WriteOptions = {}): Promise<void> {
    return this.#oneSided.write(remote, data, options);
  }

  /**
   * Reads the peer's memory (RDMA READ). A long part is read in several requests.
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
    const stream = new ConnectionStream(this, this.#settings.receives);
    this.#stream = stream;
    this.#resources?.redirect((message) => stream.onMessage(message), this.#streamError());
    const { reason } = this.#life;
    if (reason !== undefined) stream.onConnectionEnd(reason.cause, false);
    return stream;
  }

  /** Keeps the process running while the connection is open. This is the default. */
  ref(): this {
    if (!this.#keepsProcessAlive && this.isOpen) {
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
   * EBUSY while memory windows are bound to memory that was shared: a later call tries again
   */
  async close(wait: WaitOptions = {}): Promise<void> {
    await waitFor(this.#life.close(), 'the connection was not closed', wait, () => this.destroy());
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
    this.#life.destroy(error);
  }

  /** Returns a short description as plain data, for `JSON.stringify` and `console.log`. */
  toJSON(): Record<string, unknown> {
    const { remoteAddress, remotePort, messageBytes } = this;
    return { remoteAddress, remotePort, state: this.#life.state, messageBytes };
  }

  /** @internal */
  [inspect.custom](depth: number, options: InspectOptionsStylized): string {
    return inspectAs(this, depth, options);
  }

  /** See `SendQueue.submit`. */
  #submit<T>(
    timeoutText: string,
    wait: WaitOptions,
    memory: number | SlotInPlace,
    build: BuildRequest,
    finish: (slot: Slot) => T,
  ): Promise<T> {
    if (!this.isOpen) return Promise.reject(new VerbsError('ECONNRESET', `the connection is ${this.#life.state}`));
    if (this.#resources === undefined) return Promise.reject(this.#noQueuePair());
    return this.#resources.sendQueue.submit(timeoutText, wait, memory, build, finish);
  }

  /** See `CallMemory.over`. */
  #callMemory(memory: Uint8Array, access: AccessFlags): CallMemory | undefined {
    return this.isOpen && this.#resources ? CallMemory.over(this.#resources.qp.pd, memory, access) : undefined;
  }

  #noQueuePair(): Error {
    return this.#life.earlyError ?? new VerbsError('EINVAL', 'the connection has no queue pair');
  }

  #streamError(): VerbsError {
    return new VerbsError('EBUSY', 'the connection is a stream, which sends and receives all messages');
  }

  #stop(reason: EndReason, isLocal: boolean): void {
    this.unref();
    if (this.#resources === undefined) this.#messages.end(reason.cause);
    else this.#resources.stop(reason);
    this.#stream?.onConnectionEnd(reason.cause, isLocal);
  }

  async #free(): Promise<void> {
    await this.#peer.disconnect().catch(() => {});
    await this.#resources?.free();
  }

  #onClosed(error: Error | undefined): void {
    Endpoints.of(this.#device).delete(this.#endpoint);
    this.emit('close', error);
  }
}
