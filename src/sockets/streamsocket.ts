/** A connection as a socket of `node:net`: the same properties, and the same events in their order. */

import { lookup } from 'node:dns';
import { isIP, isIPv6 } from 'node:net';
import { addAbortSignal, Duplex } from 'node:stream';
import { wrongNumber, wrongType } from '../base/options.js';
import { transition } from '../base/transitions.js';
import { callProgram } from '../base/uncaught.js';
import { within } from '../base/within.js';
import { type DeviceUse, useDevice } from '../deviceuse.js';
import { type CmId, createCmId, type Device, VerbsError } from '../index.js';
import { untilDisconnected } from '../transport/disconnect.js';
import { ReadSide, WriteSide } from '../transport/duplexsides.js';
import { brokenPipe, connectError, failureOf, reset } from './errors.js';
import {
  bufferSizes,
  connectOptions,
  familyOf,
  type SocketAddress,
  type SocketConnectOptions,
  type SocketOptions,
} from './options.js';
import type { BufferSizes, Protocol, Transport } from './protocol.js';
import { ESTABLISHED, NEXT, type StreamState } from './streamstate.js';

/** Time between keep-alives, as in Linux (ms). */
const KEEP_ALIVE_MS = 7_200_000;
/**
 * Time in which a peer has to acknowledge the last bytes, to disconnect when it has closed, and to answer a disconnect
 * (ms). Stock peers repeat a message after half a second.
 */
const LEAVE_MS = 5000;
/** Time in which our end answers the peer's repetitions, or the peer what we wrote, before we disconnect first (ms). */
const LINGER_MS = 200;

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
  readonly #protocol: Protocol;
  readonly #options: SocketOptions;
  readonly #sizes: BufferSizes;
  #transport: Transport | undefined;
  #id: CmId | undefined;
  /** The peer's address, also after the close. */
  #remote: CmId['remoteAddress'];
  #device: DeviceUse | undefined;
  /** Settles when the connection before has left nothing. */
  #left: Promise<void> | undefined;
  /** Settles when the allocation that has begun has ended. */
  #opening: Promise<void> | undefined;
  #state: StreamState = 'idle';
  /** An error of an accepted socket, which waits until the program knows the socket. */
  #earlyError: Error | undefined;
  /** Our end was said before that of the peer was known. */
  #endedFirst = false;
  #isReset = false;
  /** Our end was said, in a protocol that cannot say it: the peer is taken to write no more. */
  #isPeerEndAssumed = false;
  #isRefed = true;
  #reading = this.#newReadSide();
  #writing = new WriteSide();
  #finalCallback: ((error?: Error | null) => void) | undefined;
  /** Called when everything is acknowledged, or never will be; and when the peer has disconnected. */
  #onIdle: (() => void) | undefined;
  #onDisconnect: (() => void) | undefined;
  #idleTimer: NodeJS.Timeout | undefined;
  #keepAliveTimer: NodeJS.Timeout | undefined;

  /** @internal @throws TypeError, RangeError for wrong options */
  constructor(protocol: Protocol, options: SocketOptions = {}) {
    const { allowHalfOpen = false, signal } = options;
    super({ allowHalfOpen, emitClose: false });
    this.#protocol = protocol;
    this.#options = options;
    this.#sizes = bufferSizes(protocol, options);
    // not by an option of Duplex, as an aborted signal destroys at once
    if (signal) addAbortSignal(signal, this);
  }

  /**
   * @internal Accepts a request.
   * @returns a function that starts events, to be called after the program has the socket
   * @throws as `id.accept`; VerbsError EOPNOTSUPP when the peer speaks another protocol, ENOMEM
   */
  async accept(id: CmId): Promise<() => void> {
    this.#id = id;
    this.#setState('accepting');
    try {
      const transport = await this.#open(id.device as Device, id);
      transport.onPeerData(id.request?.privateData ?? new Uint8Array(0));
      await id.accept({ ...this.#protocol.connParam, privateData: transport.privateData });
      this.#setState('accepted');
      this.#remote = id.remoteAddress;
      return () => this.#start(transport);
    } catch (error) {
      await this.#free();
      throw error;
    }
  }

  /** @internal The transport of an established connection. @throws VerbsError EINVAL */
  protected get transport(): Transport {
    if (this.#transport === undefined || !this.#isEstablished)
      throw new VerbsError('EINVAL', 'the socket is not connected');
    return this.#transport;
  }

  // ---- what programs of node:net call ----

  /**
   * Connects to a peer. The event `connect` follows, or `error` and `close`. A socket that was closed may connect
   * again.
   * @throws TypeError, RangeError for wrong arguments; VerbsError EINVAL when it is connected or connecting
   */
  connect(options: SocketConnectOptions, onConnect?: () => void): this;
  connect(port: number, host?: string, onConnect?: () => void): this;
  connect(port: number, onConnect?: () => void): this;
  connect(to: SocketConnectOptions | number, ...rest: (string | (() => void) | undefined)[]): this {
    const options = connectOptions(to, rest[0]);
    if (!NEXT[this.#state].includes('connecting')) throw new VerbsError('EINVAL', 'the socket is connected already');
    const listener = rest.find((argument) => typeof argument === 'function');
    if (listener) this.once('connect', listener as () => void);
    if (this.destroyed) this.#renew();
    this.#setState('connecting');
    if (options.keepAlive) this.setKeepAlive(true, options.keepAliveInitialDelay);
    this.#touch();
    void this.#connect(options);
    return this;
  }

  /** Whether `connect` was called and the connection is not established yet. */
  get connecting(): boolean {
    return this.#state === 'connecting';
  }

  /** Whether the connection is not established yet. */
  get pending(): boolean {
    return !this.#isEstablished;
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

  /** The peer's IP address; undefined before the connection is established. */
  get remoteAddress(): string | undefined {
    return this.#remote?.address;
  }
  /** The peer's port; undefined before the connection is established. */
  get remotePort(): number | undefined {
    return this.#remote?.port;
  }
  /** `IPv4` or `IPv6`; undefined before the connection is established. */
  get remoteFamily(): 'IPv4' | 'IPv6' | undefined {
    return familyOf(this.remoteAddress);
  }
  /** Our IP address; undefined before there is one, and after the close. */
  get localAddress(): string | undefined {
    return this.#id?.localAddress?.address;
  }
  /** Our port; undefined before there is one. */
  get localPort(): number | undefined {
    return this.#id?.localAddress?.port;
  }
  /** `IPv4` or `IPv6`; undefined before there is an address. */
  get localFamily(): 'IPv4' | 'IPv6' | undefined {
    return familyOf(this.localAddress);
  }

  /** Returns our address, or an empty object before there is one. */
  address(): SocketAddress | Record<string, never> {
    const { localAddress: address, localPort: port, localFamily: family } = this;
    return address !== undefined && port !== undefined && family !== undefined ? { address, port, family } : {};
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
   * Sends keep-alives, so that a connection without traffic ends when the peer's adapter does not answer.
   * @param initialDelay time between them in ms. Default 0: two hours, as in Linux
   */
  setKeepAlive(enable = false, initialDelay = 0): this {
    clearInterval(this.#keepAliveTimer);
    const interval = initialDelay > 0 ? initialDelay : KEEP_ALIVE_MS;
    this.#keepAliveTimer = enable ? setInterval(() => this.#probe(), interval).unref() : undefined;
    return this;
  }

  /** Keeps the process running while the socket is open. This is the default. */
  ref(): this {
    this.#isRefed = true;
    this.#updateRef();
    return this;
  }

  /** Lets the process exit although the socket is open. */
  unref(): this {
    this.#isRefed = false;
    this.#updateRef();
    return this;
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
    const isOrderly = error === null && !this.#isReset && NEXT[this.#state].includes('leaving');
    this.#setState(isOrderly ? 'leaving' : this.#isEstablished ? 'closing' : 'cancelling');
    clearTimeout(this.#idleTimer);
    clearInterval(this.#keepAliveTimer);
    const left = isOrderly ? this.#leave(this.#transport as Transport) : this.#free();
    this.#left = left
      .catch(() => {})
      .then(() => {
        // unless the program connects again
        if (this.#state !== 'connecting') this.#setState('closed');
        callback(error);
        // after the event `error`, which `callback` emits in the next tick
        setImmediate(() => this.emit('close', error !== null));
      });
  }

  // ---- states ----

  #setState(to: StreamState): void {
    this.#state = transition(NEXT, this.#state, to, 'a socket');
  }

  /** Whether there is a connection, or the rest of one. */
  get #isEstablished(): boolean {
    return ESTABLISHED.includes(this.#state);
  }

  /** Whether the peer has disconnected, or we wait for it no more. */
  get #isDisconnected(): boolean {
    return this.#state === 'disconnected' || this.#state === 'closing';
  }

  // ---- connecting ----

  /** Takes back what the last connection has left. */
  #renew(): void {
    // as net.Socket does, by a method that the types of Node.js leave out
    (this as unknown as { _undestroy(): void })._undestroy();
    this.bytesRead = 0;
    this.#reading = this.#newReadSide();
    this.#writing = new WriteSide();
    this.#endedFirst = false;
    this.#isReset = false;
    this.#isPeerEndAssumed = false;
    this.#finalCallback = undefined;
    this.#remote = undefined;
  }

  async #connect(options: SocketConnectOptions): Promise<void> {
    const { port, host = 'localhost', family = 0, localAddress, localPort = 0, lookup: resolve = lookup } = options;
    let address = host;
    try {
      await this.#left;
      if (isIP(host) === 0) address = await this.#lookUp(resolve, host, family);
      this.#assertAlive();
      this.#device = await useDevice(this.#options.device, address);
      this.#assertAlive();
      const id = createCmId(this.#device.device);
      this.#id = id;
      this.#updateRef();
      if (localAddress !== undefined || localPort !== 0)
        await id.bindAddr(localAddress ?? (isIPv6(address) ? '::' : '0.0.0.0'), localPort);
      await id.resolveAddr(address, port);
      await id.resolveRoute();
      const transport = await this.#open(this.#device.device, id);
      this.#assertAlive();
      const { privateData } = await id.connect({
        ...this.#protocol.connParam,
        privateData: transport.privateData,
      });
      this.#assertAlive();
      transport.onPeerData(privateData);
      this.#establish(transport);
    } catch (error) {
      if (this.destroyed) await this.#free();
      else this.destroy(connectError(error as Error, address, port));
    }
  }

  /** Ends `#connect` when the socket was destroyed meanwhile. */
  #assertAlive(): void {
    if (this.destroyed) throw new VerbsError('ECANCELED', 'the socket was destroyed');
  }

  /** Resolves a name, and emits `lookup`. */
  #lookUp(resolve: typeof lookup, host: string, family: number): Promise<string> {
    return new Promise((done, fail) => {
      resolve(host, { family }, (error, address, found) => {
        this.emit('lookup', error, address, found, host);
        if (error) fail(error);
        else done(address);
      });
    });
  }

  #open(device: Device, id: CmId): Promise<Transport> {
    const opening = this.#allocate(device, id);
    this.#opening = opening.then(
      () => {},
      () => {},
    );
    return opening;
  }

  /** Allocates the memory and the queue pair of the connection. */
  async #allocate(device: Device, id: CmId): Promise<Transport> {
    const transport = await this.#protocol.open(device, this.#sizes, {
      onReadable: () => this.#deliver(),
      onWritable: () => this.#send(),
      onFailure: (error) => this.#onFailure(error),
    });
    this.#transport = transport;
    const qp = await id.createQp(transport.pd, transport.qpOptions);
    transport.use(qp);
    return transport;
  }

  #establish(transport: Transport): void {
    this.#setState('open');
    this.#remote = this.#id?.remoteAddress;
    callProgram(() => this.emit('connect'), false);
    callProgram(() => this.emit('ready'), false);
    this.#start(transport);
  }

  /** Begins to read and to write. */
  #start(transport: Transport): void {
    if (this.destroyed) return;
    if (this.#earlyError) {
      this.destroy(this.#earlyError);
      return;
    }
    if (this.#state === 'accepted') this.#setState('open');
    this.#updateRef();
    void this.#awaitDisconnect();
    this.#touch();
    this.#use(() => transport.start(), undefined);
    if (!this.isPaused()) this.read(0);
    this.#send();
    this.#deliver();
    this.#sendEnd();
  }

  // ---- reading and writing ----

  #newReadSide(): ReadSide {
    return new ReadSide(this, (bytes) => {
      this.bytesRead += bytes;
      this.#touch();
    });
  }

  /** Passes data to the reader as long as it wants more. */
  #deliver(): void {
    const transport = this.#transport;
    if (transport === undefined || !this.#isEstablished || this.destroyed) return;
    let isEnd = this.#use(() => this.#reading.deliver(transport), false);
    if (this.#isPeerEndAssumed && !transport.hasData) isEnd = this.#reading.end() || isEnd;
    // `read` emits `end` also when nobody reads, as there is nothing to be read
    if (isEnd) callProgram(() => this.read(0), null);
  }

  /** Gives the transport what it has room for. */
  #send(): void {
    const transport = this.#transport;
    if (transport === undefined || !this.#isEstablished) return;
    if (transport.isPeerGone || this.#isDisconnected) this.#writing.refuse(brokenPipe());
    else if (this.#use(() => this.#writing.send(transport), false) && !this.destroyed) this.#touch();
    if (transport.isIdle) this.#onIdle?.();
  }

  /** Tells the peer that no more follows. All data was taken by the transport before. */
  #sendEnd(): void {
    const [transport, callback] = [this.#transport, this.#finalCallback];
    if (callback === undefined || this.connecting) return;
    this.#finalCallback = undefined;
    if (transport === undefined || !this.#isEstablished || transport.isPeerGone || this.#isDisconnected) {
      callback();
      return;
    }
    this.#endedFirst = !transport.isPeerEnded;
    this.#use(() => transport.end(transport.isPeerEnded), undefined);
    if (!this.#protocol.hasHalfClose) void this.#awaitAnswer(transport);
    // `finish` and `close` have a turn of their own, as of a socket of TCP
    setImmediate(callback);
  }

  /** Our end cannot be told: the peer has some time to answer what was written, and to disconnect first. */
  async #awaitAnswer(transport: Transport): Promise<void> {
    await within(LEAVE_MS, this.#idle(transport));
    await within(LINGER_MS, this.#disconnect());
    this.#isPeerEndAssumed = true;
    this.#deliver();
  }

  /** Resolves when the peer has disconnected. */
  #disconnect(): Promise<void> {
    if (this.#isDisconnected) return Promise.resolve();
    return new Promise((resolve) => {
      this.#onDisconnect = resolve;
    });
  }

  /** Resolves when everything is acknowledged, or nothing more will be. */
  #idle(transport: Transport): Promise<void> {
    if (transport.isIdle || this.#isDisconnected) return Promise.resolve();
    return new Promise((resolve) => {
      this.#onIdle = resolve;
    });
  }

  /** Something was read or written: the time of `setTimeout` starts again. */
  #touch(): void {
    clearTimeout(this.#idleTimer);
    if (this.timeout) this.#idleTimer = setTimeout(() => this.emit('timeout'), this.timeout).unref();
  }

  // ---- the end ----

  async #awaitDisconnect(): Promise<void> {
    const id = this.#id as CmId;
    if (await untilDisconnected(id)) this.#onDisconnected();
    else if (!this.destroyed) this.destroy(new VerbsError('ECANCELED', 'the device was closed'));
  }

  /** The connection has ended. That is an error unless both ends have said that they write no more. */
  #onDisconnected(): void {
    const transport = this.#transport;
    if (this.#state === 'leaving') this.#setState('closing');
    else if (this.#state === 'open') this.#setState('disconnected');
    // it is our own disconnect
    else return;
    this.#onDisconnect?.();
    if (transport === undefined) return;
    const isComplete = this.#use(() => transport.disconnected(), false);
    this.#onIdle?.();
    if (this.destroyed) return;
    if (!isComplete) this.destroy(reset());
    else {
      this.#send();
      this.#deliver();
    }
  }

  /** Calls the transport. An exception of the transport ends this socket alone. */
  #use<T>(call: () => T, otherwise: T): T {
    try {
      return call();
    } catch (error) {
      this.#fail(failureOf(error as Error));
      return otherwise;
    }
  }

  #onFailure(cause: Error): void {
    if (!this.destroyed) this.#fail(failureOf(cause));
  }

  #fail(error: Error): void {
    if (this.#state === 'accepting' || this.#state === 'accepted') this.#earlyError ??= error;
    else this.destroy(error);
  }

  /** Ends the connection in order: what was written arrives, and the peer learns of the end. */
  async #leave(transport: Transport): Promise<void> {
    const isSaid = this.writableFinished && (transport.isPeerEnded || this.#endedFirst);
    const isPeerLast = this.#endedFirst || transport.isPeerGone;
    if (!transport.isPeerGone && !(isSaid && transport.isPeerEnded)) this.#use(() => transport.end(true), undefined);
    await within(LEAVE_MS, this.#idle(transport));
    // The peer's end was the last message: it disconnects when it knows that we have it. An ACK may be lost, and an
    // adapter that repeats for ever, as rxe does, would never know without our queue pair.
    if (isPeerLast && transport.isPeerEnded)
      await within(transport.isPeerGone ? LEAVE_MS : LINGER_MS, this.#disconnect());
    transport.stop();
    await this.#free();
  }

  /** Sends a keep-alive. It may be due earlier than the connection. */
  #probe(): void {
    if (this.#isEstablished && !this.destroyed) this.#use(() => this.#transport?.probe(), undefined);
  }

  /** Disconnects, and frees everything. A second call does nothing. */
  async #free(): Promise<void> {
    if (this.#state === 'leaving') this.#setState('closing');
    const [id, device] = [this.#id, this.#device];
    this.#device = undefined;
    this.#transport?.stop();
    if (id?.state === 'ESTABLISHED') await id.disconnect({}, { timeout: LEAVE_MS }).catch(() => {});
    await id?.close();
    await this.#opening;
    const transport = this.#transport;
    this.#transport = undefined;
    if (this.#id === id) this.#id = undefined;
    await transport?.close();
    await device?.close();
  }

  #updateRef(): void {
    if (this.#isRefed) this.#id?.channel.ref();
    else this.#id?.channel.unref();
  }
}
