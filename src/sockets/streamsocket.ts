/** A connection as a socket of `node:net`: the same properties, and the same events in their order. */

import type { EventEmitter } from 'node:events';
import { getDefaultAutoSelectFamilyAttemptTimeout, isIP } from 'node:net';
import { addAbortSignal, Duplex } from 'node:stream';
import { type Checks, checkOptions, wrongNumber, wrongType } from '../base/options.js';
import { clearTimeout, nextTick, queueMicrotask, setImmediate, setTimeout } from '../base/timers.js';
import { callProgram } from '../base/uncaught.js';
import { type CmId, VerbsError } from '../index.js';
import { ReadSide, WriteSide } from '../transport/duplexsides.js';
import { PEER_IDLE_MS, type PeerWatchOptions } from '../transport/peerwatch.js';
import { connectArguments } from './callarguments.js';
import {
  attemptTimedOut,
  brokenPipe,
  connectError,
  endedByPeer,
  neverConnected,
  noneConnected,
  reset,
} from './errors.js';
import { resolveHost } from './lookup.js';
import { OnReadSink } from './onread.js';
import {
  bufferSizes,
  connectOptions,
  familyOf,
  SOCKET_CHECKS,
  type SocketAddress,
  type SocketConnectOptions,
  type SocketOptions,
} from './options.js';
import type { BufferSizes, Protocol, Transport } from './protocol.js';
import { type Ends, StreamConnection } from './streamconnection.js';

/** Least time for an attempt to connect before the next address is tried (ms), as of `net.Socket`. */
const MIN_ATTEMPT_MS = 10;

/**
 * One end of a connection that carries a byte stream, by rsockets or another protocol. It behaves as a `net.Socket`.
 * `setNoDelay` has no effect.
 *
 * Events: `lookup`, `connect`, `ready`, `data`, `drain`, `end`, `timeout`, `error`, `close` (with whether there was an
 * error), as of `net.Socket`.
 */
export abstract class StreamSocket extends Duplex {
  /** Bytes that were read from the connection. */
  bytesRead = 0;
  /** Time of `setTimeout` in ms; undefined without one. */
  timeout: number | undefined;
  /** Addresses that `connect` has tried, `address:port`, where a host has several; undefined otherwise. */
  declare autoSelectFamilyAttemptedAddresses: string[];
  /** The server that has accepted the socket; null otherwise. */
  server: EventEmitter | null = null;
  readonly #protocol: Protocol;
  readonly #options: SocketOptions;
  readonly #sizes: BufferSizes;
  #connection: StreamConnection | undefined;
  #isConnecting = false;
  #isReset = false;
  /** Our end was said, in a protocol that cannot say it: the peer is taken to write no more. */
  #isPeerEndAssumed = false;
  #isRefed = true;
  #reading: ReadSide<Transport>;
  #writing = this.#newWriteSide();
  #finalCallback: ((error?: Error | null) => void) | undefined;
  #idleTimer: NodeJS.Timeout | undefined;
  /** Time that the peer may be silent until it is asked for a sign (ms); Infinity: it is not asked. */
  #peerIdle = PEER_IDLE_MS;

  /** @internal @throws TypeError, RangeError for wrong options */
  constructor(protocol: Protocol, options: SocketOptions = {}, checks: Checks<SocketOptions> = SOCKET_CHECKS) {
    const checked = checkOptions('a socket', options, checks);
    const { allowHalfOpen = false, signal, highWaterMark, keepAlive } = checked;
    super({ allowHalfOpen, emitClose: false, ...(highWaterMark !== undefined && { highWaterMark }) });
    this.#protocol = protocol;
    this.#options = checked;
    this.#sizes = bufferSizes(protocol, checked);
    this.#reading = this.#newReadSide();
    this.on('end', this.#onEnd);
    this.setKeepAlive(keepAlive ?? true, checked.keepAliveInitialDelay);
    // not by an option of Duplex, as an aborted signal destroys at once
    if (signal) addAbortSignal(signal, this);
  }

  /**
   * @internal Accepts a request.
   * @returns a function that starts events, to be called after the program has the socket
   * @throws as `StreamConnection.accept`
   */
  async accept(id: CmId): Promise<() => void> {
    const connection = this.#newConnection();
    await connection.accept(id);
    return () => this.#start(connection);
  }

  /** @internal The transport of an established connection. @throws VerbsError EINVAL */
  protected get transport(): Transport {
    const transport = this.#connection?.transport;
    if (transport === undefined) throw new VerbsError('EINVAL', 'the socket is not connected');
    return transport;
  }

  // ---- what programs of node:net call ----

  /**
   * Connects to a peer. The event `connect` follows, or `error` and `close`. A destroyed socket may connect again.
   * @throws TypeError, RangeError for wrong arguments; VerbsError EINVAL when it is connected or connecting
   */
  connect(options: SocketConnectOptions, onConnect?: () => void): this;
  connect(port: number | string, host?: string, onConnect?: () => void): this;
  connect(port: number | string, onConnect?: () => void): this;
  connect(...call: unknown[]): this {
    const { options, listener } = connectArguments(call);
    const checked = connectOptions(options);
    if (this.#connection !== undefined && !this.destroyed)
      throw new VerbsError('EINVAL', 'the socket is connected already');
    if (listener) this.once('connect', listener);
    if (this.destroyed) this.#renew();
    this.#isConnecting = true;
    if (checked.keepAlive !== undefined) this.setKeepAlive(checked.keepAlive, checked.keepAliveInitialDelay);
    this.#touch();
    void this.#connect(checked, this.#newConnection());
    return this;
  }

  /** Whether `connect` was called and the connection is not established yet. */
  get connecting(): boolean {
    return this.#isConnecting;
  }

  /** Whether the connection is not established yet. */
  get pending(): boolean {
    return this.#connection?.isEstablished !== true;
  }

  /** `opening`, `open`, `readOnly`, `writeOnly` or `closed`. */
  get readyState(): 'opening' | 'open' | 'readOnly' | 'writeOnly' | 'closed' {
    if (this.connecting) return 'opening';
    if (this.readable && this.writable) return 'open';
    if (this.readable) return 'readOnly';
    return this.writable ? 'writeOnly' : 'closed';
  }

  /** Bytes that the program has written, also those that wait. */
  get bytesWritten(): number {
    return this.#writing.bytesEnded + this.writableLength;
  }

  /** Bytes that wait in the stream. Node.js prefers `writableLength`. */
  get bufferSize(): number {
    return this.writableLength;
  }

  /** The peer's IP address; undefined before the connection is established. */
  get remoteAddress(): string | undefined {
    return this.#connection?.remote?.address;
  }
  /** The peer's port; undefined before the connection is established. */
  get remotePort(): number | undefined {
    return this.#connection?.remote?.port;
  }
  /** `IPv4` or `IPv6`; undefined before the connection is established. */
  get remoteFamily(): 'IPv4' | 'IPv6' | undefined {
    return familyOf(this.remoteAddress);
  }
  /** Our IP address; undefined before there is one, and after the close. */
  get localAddress(): string | undefined {
    return this.#connection?.local?.address;
  }
  /** Our port; undefined before there is one. */
  get localPort(): number | undefined {
    return this.#connection?.local?.port;
  }
  /** `IPv4` or `IPv6`; undefined before there is an address. */
  get localFamily(): 'IPv4' | 'IPv6' | undefined {
    return familyOf(this.localAddress);
  }

  /** Returns our address, or an empty object before there is one. */
  address(): SocketAddress | Record<string, never> {
    const { localAddress: address, localPort: port, localFamily: family } = this;
    return address !== undefined && port !== undefined && family !== undefined ? { address, family, port } : {};
  }

  /**
   * Emits `timeout` when nothing was read or written for this long. The connection stays open.
   * @param ms 0: never @throws TypeError, RangeError
   */
  setTimeout(ms: number, onTimeout?: () => void): this {
    if (typeof ms !== 'number') throw wrongType('the timeout', ms, 'a number');
    if (!(ms >= 0 && ms < 2 ** 31)) throw wrongNumber('the timeout', ms, 'from 0 to 2147483647 ms');
    if (onTimeout && ms > 0) this.once('timeout', onTimeout);
    else if (onTimeout) this.off('timeout', onTimeout);
    this.timeout = ms;
    this.#touch();
    return this;
  }

  /** Has no effect: data is always sent at once. */
  setNoDelay(_noDelay?: boolean): this {
    return this;
  }

  /**
   * Asks a silent peer for a sign, so that a connection without traffic ends when the peer is gone. This is the
   * default. Without it a peer that is gone is noticed only when it has something to acknowledge.
   * @param initialDelay time in ms that the peer may be silent until it is asked. Default 0: 15 s
   */
  setKeepAlive(enable = false, initialDelay = 0): this {
    const idle = initialDelay > 0 ? initialDelay : PEER_IDLE_MS;
    this.#peerIdle = enable ? idle : Number.POSITIVE_INFINITY;
    if (this.#connection) this.#connection.peerWatch = this.#peerWatch;
    return this;
  }

  /** Keeps the process running while the socket is open. This is the default. */
  ref(): this {
    this.#setRef(true);
    return this;
  }

  /** Lets the process exit although the socket is open. */
  unref(): this {
    this.#setRef(false);
    return this;
  }

  /** Reads no more until `resume`. */
  override pause(): this {
    if (this.#options.onread) this.#reading.pause();
    return super.pause();
  }

  /** Reads again. */
  override resume(): this {
    if (this.#options.onread) this._read();
    return super.resume();
  }

  /** Destroys the socket when all data is written. */
  destroySoon(): void {
    if (this.writable) this.end();
    if (this.writableFinished) this.destroy();
    else this.once('finish', () => this.destroy());
  }

  /** Destroys the socket at once: the peer sees a reset, and what was not acknowledged is lost. */
  resetAndDestroy(): this {
    this.#isReset = true;
    return this.destroy();
  }

  // ---- Duplex ----

  /** @internal */
  override _read(): void {
    this.#reading.request();
    queueMicrotask(() => this.#deliver());
  }

  /** @internal */
  override _write(chunk: Buffer, _encoding: BufferEncoding, callback: (error?: Error | null) => void): void {
    this.#writing.add(chunk);
    this.#writing.begin(callback);
    this.#send();
  }

  /** @internal */
  override _writev(chunks: { chunk: Buffer }[], callback: (error?: Error | null) => void): void {
    for (const { chunk } of chunks) this.#writing.add(chunk);
    this.#writing.begin(callback);
    this.#send();
  }

  /** @internal */
  override _final(callback: (error?: Error | null) => void): void {
    this.#finalCallback = callback;
    this.#sendEnd();
  }

  /** @internal */
  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    clearTimeout(this.#idleTimer);
    this.#isConnecting = false;
    const [connection, writing] = [this.#connection, this.#writing];
    const wasEstablished = connection?.isEstablished === true;
    // the bytes of the write under way are lost as far as they are not taken, and Node.js tells no error
    if (wasEstablished) nextTick(() => writing.refuse(null));
    const left = this.#isReset ? connection?.close() : connection?.leave(this.writableFinished);
    callback(error);
    void Promise.resolve(left).then(() => {
      // after the event `error`, which `callback` emits in the next tick
      setImmediate(() => {
        callProgram(() => this.emit('close', error !== null), false);
        if (!wasEstablished) writing.refuse(neverConnected());
      });
    });
  }

  // ---- connecting ----

  #newConnection(): StreamConnection {
    const connection = new StreamConnection(this.#protocol, this.#sizes, {
      onReadable: () => this.#isCurrent(connection) && this.#deliver(),
      onWritable: () => this.#isCurrent(connection) && this.#send(),
      onFailure: (error) => this.#isCurrent(connection) && this.#fail(error),
      onDisconnected: (isComplete) => this.#isCurrent(connection) && this.#onDisconnected(isComplete),
    });
    connection.isRefed = this.#isRefed;
    connection.peerWatch = this.#peerWatch;
    this.#connection = connection;
    return connection;
  }

  /** Whether a connection is that of the socket: neither destroyed, nor followed by another one. */
  #isCurrent(connection: StreamConnection): boolean {
    return this.#connection === connection && !this.destroyed;
  }

  get #peerWatch(): PeerWatchOptions {
    const { peerTimeout: timeout } = this.#options;
    return { idle: this.#peerIdle, ...(timeout !== undefined && { timeout }) };
  }

  #setRef(isRefed: boolean): void {
    this.#isRefed = isRefed;
    if (this.#connection) this.#connection.isRefed = isRefed;
  }

  /** Takes back what the last connection has left. */
  #renew(): void {
    // as net.Socket does, by a method that the types of Node.js leave out
    (this as unknown as { _undestroy(): void })._undestroy();
    // `#onEnd` has replaced it
    Reflect.deleteProperty(this, 'write');
    this.bytesRead = 0;
    this.#reading = this.#newReadSide();
    this.#writing = this.#newWriteSide();
    this.#isReset = false;
    this.#isPeerEndAssumed = false;
    this.#finalCallback = undefined;
  }

  async #connect(options: SocketConnectOptions, first: StreamConnection): Promise<void> {
    const { port, localAddress, localPort } = options;
    const ends = { port, ...(localAddress !== undefined && { localAddress }), ...(localPort && { localPort }) };
    const errors: Error[] = [];
    let connection = first;
    try {
      const addresses = await resolveHost(options, (error, address, family) =>
        callProgram(
          () => this.#isCurrent(connection) && this.emit('lookup', error, address, family, options.host),
          false,
        ),
      );
      const attempted: string[] = [];
      if (addresses.length > 1) this.autoSelectFamilyAttemptedAddresses = attempted;
      for (const [i, address] of addresses.entries()) {
        if (!this.#isCurrent(connection)) return;
        if (i > 0) connection = this.#newConnection();
        attempted.push(`${address}:${port}`);
        const isLast = i === addresses.length - 1;
        const error = await this.#attempt(connection, { ...ends, address }, isLast ? undefined : options);
        if (!this.#isCurrent(connection)) return;
        if (error === undefined) {
          this.#establish(connection);
          return;
        }
        errors.push(error);
      }
    } catch (error) {
      errors.push(error as Error);
    }
    if (this.#isCurrent(connection)) this.#fail(noneConnected(errors));
  }

  /**
   * Tries an address.
   * @param limits the time, where another address follows
   * @returns the error; undefined when the connection is established
   */
  async #attempt(
    connection: StreamConnection,
    ends: Ends,
    limits: SocketConnectOptions | undefined,
  ): Promise<Error | undefined> {
    const { address, port } = ends;
    const family = isIP(address);
    const tell = (event: string, ...more: unknown[]) => {
      if (!this.destroyed) callProgram(() => this.emit(event, address, port, family, ...more), false);
    };
    let isLate = false;
    const abandon = () => {
      isLate = true;
      tell('connectionAttemptTimeout');
      void connection.close();
    };
    const { autoSelectFamilyAttemptTimeout: ms = getDefaultAutoSelectFamilyAttemptTimeout() } = limits ?? {};
    const timer = limits && setTimeout(abandon, Math.max(ms, MIN_ATTEMPT_MS));
    tell('connectionAttempt');
    try {
      await connection.connect(this.#options.device, ends);
      return undefined;
    } catch (cause) {
      const error = isLate ? attemptTimedOut(address, port) : connectError(cause as Error, address, port);
      if (!isLate) tell('connectionAttemptFailed', error);
      return error;
    } finally {
      clearTimeout(timer);
    }
  }

  #establish(connection: StreamConnection): void {
    this.#isConnecting = false;
    callProgram(() => this.emit('connect'), false);
    callProgram(() => this.emit('ready'), false);
    this.#start(connection);
  }

  /** Begins to read and to write. */
  #start(connection: StreamConnection): void {
    if (!this.#isCurrent(connection)) return;
    connection.start();
    if (this.destroyed) return;
    this.#touch();
    if (!this.isPaused()) this.read(0);
    this.#send();
    this.#deliver();
    this.#sendEnd();
  }

  // ---- reading and writing ----

  #newReadSide(): ReadSide<Transport> {
    const onRead = (bytes: number) => {
      this.bytesRead += bytes;
      this.#touch();
    };
    const { onread } = this.#options;
    return new ReadSide<Transport>(this, onRead, onread && new OnReadSink(onread));
  }

  #newWriteSide(): WriteSide {
    return new WriteSide(() => this.#deliver());
  }

  /** Passes data to the reader as long as it wants more. */
  #deliver(): void {
    if (this.destroyed || this.#writing.isSettling) return;
    const isEnd = this.#connection?.call((transport) => {
      const isNew = this.#reading.deliver(transport);
      return (this.#isPeerEndAssumed && !transport.hasData && this.#reading.end()) || isNew;
    }, false);
    // `read` emits `end` also when nobody reads, as there is nothing to be read
    if (isEnd) callProgram(() => this.read(0), null);
  }

  /** Gives the transport what it has room for. */
  #send(): void {
    const connection = this.#connection;
    if (connection?.isEstablished !== true) return;
    if (!connection.isWritable) this.#writing.refuse(brokenPipe());
    else if (connection.call((transport) => this.#writing.send(transport), false) && !this.destroyed) this.#touch();
  }

  /** Tells the peer that no more follows. All data was taken by the transport before. */
  #sendEnd(): void {
    const [connection, callback] = [this.#connection, this.#finalCallback];
    if (callback === undefined || this.connecting) return;
    this.#finalCallback = undefined;
    if (connection?.isWritable !== true) {
      callback();
      return;
    }
    connection.end();
    if (!this.#protocol.hasHalfClose) void this.#awaitAnswer(connection);
    // `finish` and `close` have a turn of their own, as of a socket of TCP
    setImmediate(callback);
  }

  /** Our end cannot be told: the peer has some time to answer what was written, and to disconnect first. */
  async #awaitAnswer(connection: StreamConnection): Promise<void> {
    await connection.untilAnswered();
    if (this.#connection !== connection) return;
    this.#isPeerEndAssumed = true;
    this.#deliver();
  }

  /** A write after both ends fails with EPIPE, as that of `net.Socket`, which replaces `write` here, too. */
  readonly #onEnd = (): void => {
    if (this.allowHalfOpen) return;
    const { write } = this;
    this.write = (...call: unknown[]): boolean => {
      if (!this.writableEnded) return Reflect.apply(write, this, call);
      const error = endedByPeer();
      const callback = call.find((argument) => typeof argument === 'function');
      if (callback) nextTick(callback as (error: Error) => void, error);
      this.destroy(error);
      return false;
    };
  };

  /** Something was read or written: the time of `setTimeout` starts again. */
  #touch(): void {
    clearTimeout(this.#idleTimer);
    if (this.timeout) this.#idleTimer = setTimeout(() => this.emit('timeout'), this.timeout).unref();
  }

  // ---- the end ----

  /** The connection has ended. That is an error unless both ends have said that they write no more. */
  #onDisconnected(isComplete: boolean): void {
    if (!isComplete) {
      this.#fail(reset());
      return;
    }
    this.#send();
    this.#deliver();
  }

  /** The connection cannot be ended in order any more. */
  #fail(error: Error): void {
    this.#isReset = true;
    this.destroy(error);
  }
}
