/** Connections that come in, as a server of `node:net`. */
import { EventEmitter } from 'node:events';
import { isIPv6 } from 'node:net';
import { callProgram } from '../base/uncaught.js';
import { type DeviceUse, useDevice } from '../deviceuse.js';
import { type CmId, createCmId, type Device } from '../index.js';
import { acceptAll, refuse } from '../transport/acceptor.js';
import { memoryShares } from '../transport/memoryshares.js';
import { alreadyListens, checkPort, notRunning } from './errors.js';
import { bufferSizes, familyOf, type SocketAddress, type SocketOptions } from './options.js';
import type { Protocol } from './protocol.js';
import type { StreamSocket } from './streamsocket.js';

/** Options of `createServer`. */
export interface SocketServerOptions extends Omit<SocketOptions, 'signal'> {
  /** Whether the sockets are paused until the program calls `resume`. Default false. */
  readonly pauseOnConnect?: boolean;
  /** Whether the sockets send keep-alives. Default false. */
  readonly keepAlive?: boolean;
  /** Time between keep-alives in ms. Default 0: two hours, as in Linux. */
  readonly keepAliveInitialDelay?: number;
}

/** Options of `listen`. */
export interface SocketListenOptions {
  /** Port, in the port space of rdma_cm; 0 for any. Default 0. */
  readonly port?: number;
  /** Name or address of ours. Default: all addresses of the device. */
  readonly host?: string;
  /** Connections that may wait to be accepted. Default 511. */
  readonly backlog?: number;
  /** Closes the server when it is aborted. */
  readonly signal?: AbortSignal;
}

/** Connections that may wait to be accepted, as of `net.Server`. */
const BACKLOG = 511;
/** Bytes of the device's memory that a connection takes beside its buffers, about. */
const QUEUE_BYTES = 131_072;

/**
 * Listens for connections, by any protocol of byte streams. It behaves as a `net.Server`.
 *
 * Events: `listening`, `connection`, `error`, `close`, and `drop` for a connection above `maxConnections`, or of an
 * address whose connections have more of the device's memory than they leave free.
 */
export abstract class StreamServer<S extends StreamSocket> extends EventEmitter {
  /** Most connections at once; further ones are refused. Undefined: any number. */
  maxConnections: number | undefined;
  readonly #options: SocketServerOptions;
  /** Bytes of the device's memory that a connection takes at first. */
  readonly #connectionBytes: number;
  readonly #sockets = new Set<S>();
  /** Connections that are accepted and not established yet. */
  #pending = 0;
  #id: CmId | undefined;
  #device: DeviceUse | undefined;
  #isListening = false;
  #isStarted = false;
  #isRefed = true;

  /** @internal @throws TypeError, RangeError for wrong options */
  constructor(protocol: Protocol, options: SocketServerOptions = {}, onConnection?: (socket: S) => void) {
    super();
    // wrong options are told now and not with the first connection
    const { receive, send } = bufferSizes(protocol, options);
    this.#connectionBytes = receive.bytes + send.bytes + QUEUE_BYTES;
    this.#options = options;
    if (onConnection) this.on('connection', onConnection);
  }

  /** @internal Creates the socket of a connection. */
  protected abstract newSocket(options: SocketOptions): S;

  /** Whether the server listens. */
  get listening(): boolean {
    return this.#isListening;
  }

  /**
   * Listens. The event `listening` follows, or `error`.
   * @throws Error ERR_SERVER_ALREADY_LISTEN; RangeError ERR_SOCKET_BAD_PORT
   */
  listen(options: SocketListenOptions, onListening?: () => void): this;
  listen(port?: number, host?: string, backlog?: number, onListening?: () => void): this;
  listen(port: number, onListening: () => void): this;
  listen(port: number, host: string, onListening: () => void): this;
  listen(to: SocketListenOptions | number = {}, ...rest: (string | number | (() => void) | undefined)[]): this {
    if (this.#isStarted) throw alreadyListens();
    const host = rest.find((argument) => typeof argument === 'string');
    const backlog = rest.find((argument) => typeof argument === 'number');
    const listener = rest.find((argument) => typeof argument === 'function');
    const options =
      typeof to === 'number'
        ? { port: to, ...(host !== undefined && { host }), ...(backlog !== undefined && { backlog }) }
        : to;
    const port = checkPort(options.port ?? 0, 0);
    if (listener) this.once('listening', listener);
    this.#isStarted = true;
    options.signal?.addEventListener('abort', () => this.close(), { once: true });
    void this.#listen({ ...options, port });
    return this;
  }

  /** Our address and port; null before the server listens. */
  address(): SocketAddress | null {
    const local = this.#isListening ? this.#id?.localAddress : undefined;
    return local ? { ...local, family: isIPv6(local.address) ? 'IPv6' : 'IPv4' } : null;
  }

  /** Counts the open connections. */
  getConnections(callback: (error: Error | null, count: number) => void): this {
    process.nextTick(callback, null, this.#sockets.size);
    return this;
  }

  /**
   * Stops listening. The event `close` follows when the last connection has ended.
   * @param onClose called then; with an error when the server did not listen
   */
  close(onClose?: (error?: Error) => void): this {
    if (!this.#isStarted) {
      if (onClose) process.nextTick(onClose, notRunning());
      return this;
    }
    if (onClose) this.once('close', onClose);
    void this.#stop();
    return this;
  }

  /** Closes the server and waits for `close`. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#isStarted) await new Promise<void>((resolve) => this.close(() => resolve()));
  }

  /** Keeps the process running while the server listens. This is the default. */
  ref(): this {
    this.#isRefed = true;
    this.#id?.channel.ref();
    return this;
  }

  /** Lets the process exit although the server listens. */
  unref(): this {
    this.#isRefed = false;
    this.#id?.channel.unref();
    return this;
  }

  async #listen({ port = 0, host, backlog = BACKLOG }: SocketListenOptions): Promise<void> {
    try {
      this.#device = await useDevice(this.#options.device, host);
      const id = createCmId(this.#device.device);
      this.#id = id;
      if (!this.#isRefed) id.channel.unref();
      await id.bindAddr(host ?? '::', port);
      await id.listen({ backlog });
    } catch (error) {
      await this.#stopListening();
      this.#isStarted = false;
      const described = Object.assign(error as Error, { syscall: 'listen', ...(host && { address: host }), port });
      callProgram(() => this.emit('error', described), false);
      return;
    }
    if (!this.#isStarted) return;
    this.#isListening = true;
    void acceptAll(
      this.#id,
      (request) => this.#accept(request),
      (error) => this.#fail(error),
    );
    callProgram(() => this.emit('listening'), false);
  }

  async #accept(id: CmId): Promise<void> {
    const isFull = this.maxConnections !== undefined && this.#sockets.size + this.#pending >= this.maxConnections;
    const [memory, client] = [memoryShares(id.device as Device), id.remoteAddress?.address ?? ''];
    if (isFull || !memory.take(client, this.#connectionBytes)) {
      callProgram(() => this.emit('drop', dropped(id)), false);
      await refuse(id, { reason: 'NO_RESOURCES' });
      return;
    }
    const release = () => memory.release(client, this.#connectionBytes);
    const { pauseOnConnect, keepAlive, keepAliveInitialDelay, device: _, ...options } = this.#options;
    const socket = this.newSocket(options);
    let start: () => void;
    this.#pending++;
    try {
      start = await socket.accept(id);
    } catch {
      // A peer that speaks another protocol, or that has given up, concerns nobody else.
      release();
      return;
    } finally {
      this.#pending--;
    }
    this.#add(socket, release);
    if (pauseOnConnect) socket.pause();
    if (keepAlive) socket.setKeepAlive(true, keepAliveInitialDelay);
    callProgram(() => this.emit('connection', socket), false);
    start();
  }

  #add(socket: S, release: () => void): void {
    this.#sockets.add(socket);
    socket.once('close', () => {
      release();
      this.#sockets.delete(socket);
      this.#emitCloseIfEnded();
    });
  }

  #fail(error: Error): void {
    callProgram(() => this.emit('error', error), false);
    void this.#stop();
  }

  async #stop(): Promise<void> {
    this.#isStarted = false;
    this.#isListening = false;
    await this.#id?.close();
    this.#id = undefined;
    this.#emitCloseIfEnded();
  }

  #emitCloseIfEnded(): void {
    if (this.#isStarted || this.#sockets.size > 0) return;
    void this.#stopListening().then(() => callProgram(() => this.emit('close'), false));
  }

  async #stopListening(): Promise<void> {
    const [id, device] = [this.#id, this.#device];
    this.#id = undefined;
    this.#device = undefined;
    await id?.close();
    await device?.close();
  }
}

/** The argument of the event `drop`: the connection. */
function dropped({ localAddress, remoteAddress }: CmId) {
  return {
    localAddress: localAddress?.address,
    localPort: localAddress?.port,
    localFamily: familyOf(localAddress?.address),
    remoteAddress: remoteAddress?.address,
    remotePort: remoteAddress?.port,
    remoteFamily: familyOf(remoteAddress?.address),
  };
}
