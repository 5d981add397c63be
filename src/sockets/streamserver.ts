/** Connections that come in, as a server of `node:net`. */
import { lookup } from 'node:dns/promises';
import { captureRejectionSymbol, EventEmitter } from 'node:events';
import { isIP, isIPv6 } from 'node:net';
import { whenAborted } from '../base/abort.js';
import { Deferred } from '../base/deferred.js';
import { type Checks, checkBoolean, checkOptions, hostName, integer } from '../base/options.js';
import { nextTick } from '../base/timers.js';
import { callProgram } from '../base/uncaught.js';
import { WAIT_CHECKS } from '../base/waiting.js';
import { type DeviceUse, useDevice } from '../deviceuse.js';
import { type CmId, createCmId, type Device } from '../index.js';
import { acceptAll, refuse } from '../transport/acceptor.js';
import { memoryShares } from '../transport/memoryshares.js';
import { listenArguments } from './callarguments.js';
import { alreadyListens, checkPort, isNoMemory, listenError, notRunning } from './errors.js';
import {
  bufferSizes,
  familyOf,
  pickOptions,
  SOCKET_CHECKS,
  type SocketAddress,
  type SocketOptions,
} from './options.js';
import type { Protocol } from './protocol.js';
import type { StreamSocket } from './streamsocket.js';

/** Options of `createServer`. */
export interface SocketServerOptions extends Omit<SocketOptions, 'signal' | 'onread'> {
  /** Whether the sockets are paused until the program calls `resume`. Default false. */
  readonly pauseOnConnect?: boolean;
  /** Whether a rejected promise of a listener is an error of the socket or of the server, as of `EventEmitter`. */
  readonly captureRejections?: boolean;
}

const { signal: _signal, onread: _onread, ...OF_SOCKETS } = SOCKET_CHECKS;
/** Checks of the options of a server. */
export const SERVER_CHECKS: Checks<SocketServerOptions> = {
  ...OF_SOCKETS,
  pauseOnConnect: checkBoolean,
  captureRejections: checkBoolean,
};

/** Options of `listen`. */
export interface SocketListenOptions {
  /** Port, in the port space of rdma_cm; 0 or undefined for any. A text with the number is a port, too. */
  readonly port: number | undefined;
  /** Name or address of ours. Default: all addresses of the device. */
  readonly host?: string;
  /** Connections that may wait to be accepted. Default 511. */
  readonly backlog?: number;
  /** Closes the server when it is aborted. */
  readonly signal?: AbortSignal;
  /** Has no effect: workers of `node:cluster` do not share a port. */
  readonly exclusive?: boolean;
}

const LISTEN_CHECKS: Checks<SocketListenOptions> = {
  port: (name, value) => checkPort(value, 0, name),
  host: hostName,
  backlog: integer(0, 2 ** 31 - 1),
  signal: WAIT_CHECKS.signal,
  exclusive: checkBoolean,
};

/** Divides options into those of a server, which checks them, and those of `listen`. */
export function divideServerOptions(options: SocketServerOptions & Partial<SocketListenOptions>): {
  readonly server: SocketServerOptions;
  readonly listen: Partial<SocketListenOptions>;
} {
  const isOfListen = (name: string) => Object.hasOwn(LISTEN_CHECKS, name);
  return { server: pickOptions(options, (name) => !isOfListen(name)), listen: pickOptions(options, isOfListen) };
}

/** Connections that may wait to be accepted, as of `net.Server`. */
const BACKLOG = 511;

/**
 * Listens for connections, by any protocol of byte streams. It behaves as a `net.Server`.
 *
 * Events: `listening`, `connection`, `error`, `close`, and `drop` for a connection that is refused: above
 * `maxConnections`, of an address whose connections have more of the device's memory than they leave free, or when that
 * memory is exhausted.
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
  /** The last call of `listen`. */
  #last: Listening | undefined;
  #isRefed = true;

  /** @internal @throws TypeError, RangeError for wrong options */
  constructor(
    protocol: Protocol,
    options: SocketServerOptions = {},
    onConnection?: (socket: S) => void,
    checks: Checks<SocketServerOptions> = SERVER_CHECKS,
  ) {
    const checked = checkOptions('a server of sockets', options, checks);
    const { captureRejections } = checked;
    super(captureRejections === undefined ? {} : { captureRejections });
    // wrong options are told now and not with the first connection
    this.#connectionBytes = protocol.connectionBytes(bufferSizes(protocol, checked));
    this.#options = checked;
    if (onConnection) this.on('connection', onConnection);
  }

  /** @internal Creates the socket of a connection. */
  protected abstract newSocket(options: SocketOptions): S;

  /** Whether the server listens. */
  get listening(): boolean {
    return this.#listening?.id !== undefined;
  }

  /**
   * Listens. The event `listening` follows, or `error`.
   * @throws TypeError, RangeError for wrong arguments; Error ERR_SERVER_ALREADY_LISTEN
   */
  listen(options: SocketListenOptions, onListening?: () => void): this;
  listen(port?: number | string | null, host?: string, backlog?: number, onListening?: () => void): this;
  listen(port: number | string | null | undefined, onListening: () => void): this;
  listen(port: number | string, host: string, onListening: () => void): this;
  listen(port: number | string, backlog: number, onListening?: () => void): this;
  listen(onListening: () => void): this;
  listen(...call: unknown[]): this {
    const { options, listener } = listenArguments(call);
    if (this.#listening !== undefined) throw alreadyListens();
    const checked = checkOptions('listen', options as SocketListenOptions, LISTEN_CHECKS);
    if (listener) this.once('listening', listener);
    const listening = new Listening({ ...checked, port: Number(checked.port) }, this.#last, () => this.close());
    this.#last = listening;
    try {
      this.#bindAtOnce(listening);
    } catch (error) {
      nextTick(() => this.#fail(listening, error as Error));
      return this;
    }
    void this.#listen(listening);
    return this;
  }

  /** Our address and port; null before the server has them: at once, unless the host is to be looked up. */
  address(): SocketAddress | null {
    const local = this.#listening?.id?.localAddress;
    return local ? { ...local, family: isIPv6(local.address) ? 'IPv6' : 'IPv4' } : null;
  }

  /** Counts the open connections. */
  getConnections(callback: (error: Error | null, count: number) => void): this {
    nextTick(callback, null, this.#sockets.size);
    return this;
  }

  /**
   * Stops listening. The event `close` follows when the last connection has ended.
   * @param onClose called then; with an error when the server did not listen
   */
  close(onClose?: (error?: Error) => void): this {
    const listening = this.#listening;
    if (onClose) this.once('close', () => onClose(...(listening ? [] : [notRunning()])));
    listening?.end();
    this.#emitCloseIfEnded();
    return this;
  }

  /** Closes the server and waits for `close`. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#listening !== undefined) await new Promise<void>((resolve) => this.close(() => resolve()));
  }

  /** Ends the connection of a listener of `connection` whose promise was rejected (`captureRejections`). */
  override [captureRejectionSymbol](error: Error, event: string | symbol, ...call: unknown[]): void {
    if (event === 'connection') (call[0] as S).destroy(error);
    else this.emit('error', error);
  }

  /** Keeps the process running while the server listens. This is the default. */
  ref(): this {
    this.#isRefed = true;
    this.#listening?.id?.channel.ref();
    return this;
  }

  /** Lets the process exit although the server listens. */
  unref(): this {
    this.#isRefed = false;
    this.#listening?.id?.channel.unref();
    return this;
  }

  /** The call of `listen` that is neither closed nor failed. */
  get #listening(): Listening | undefined {
    return this.#last?.isWanted ? this.#last : undefined;
  }

  /** All addresses of a device of the program need no wait: `address` tells the port at once, as that of Node.js. */
  #bindAtOnce(listening: Listening): void {
    const { device } = this.#options;
    const { host } = listening.options;
    if (device !== undefined && (host === undefined || isIP(host) !== 0)) this.#bind(listening, device, host);
  }

  #bind(listening: Listening, device: Device, host = '::'): void {
    const id = createCmId(device);
    listening.id = id;
    if (!this.#isRefed) id.channel.unref();
    id.bindNow(host, listening.options.port);
  }

  async #listen(listening: Listening): Promise<void> {
    const { host, backlog } = listening.options;
    const { device } = this.#options;
    try {
      await listening.portIsFree;
      if (listening.id === undefined) {
        const address = host !== undefined && isIP(host) === 0 ? (await lookup(host)).address : host;
        const use = await useDevice(device, address);
        listening.use(use);
        if (!listening.isWanted) return;
        this.#bind(listening, use.device, address);
      }
      await listening.id?.listen({ backlog: backlog || BACKLOG });
    } catch (error) {
      if (listening.isWanted) this.#fail(listening, error as Error);
      return;
    }
    if (!listening.isWanted) return;
    void acceptAll(
      listening.id as CmId,
      (request) => this.#accept(request, listening),
      (error) => this.#onDeviceFailure(error),
    );
    nextTick(() => {
      if (listening.isWanted) this.emit('listening');
    });
  }

  async #accept(id: CmId, listening: Listening): Promise<void> {
    const isFull = this.maxConnections !== undefined && this.#sockets.size + this.#pending >= this.maxConnections;
    const [memory, client] = [memoryShares(id.device as Device), id.remoteAddress?.address ?? ''];
    if (!listening.isWanted || isFull || !memory.take(client, this.#connectionBytes)) {
      if (listening.isWanted) callProgram(() => this.emit('drop', dropped(id)), false);
      await refuse(id, { reason: 'NO_RESOURCES' });
      return;
    }
    const release = listening.retain(() => memory.release(client, this.#connectionBytes));
    const { pauseOnConnect, captureRejections: _, ...options } = this.#options;
    const socket = this.newSocket(options);
    this.#pending++;
    const ends = dropped(id);
    const start = await socket.accept(id).catch((error) => {
      // A peer that speaks another protocol, or that has given up, concerns nobody else.
      if (isNoMemory(error) && listening.isWanted) callProgram(() => this.emit('drop', ends), false);
    });
    this.#pending--;
    if (start === undefined) {
      release();
      this.#emitCloseIfEnded();
      return;
    }
    this.#add(socket, release);
    if (!listening.isWanted) {
      // the server was closed meanwhile: the program does not know the socket, and gets no event after `close`
      socket.on('error', () => {}).destroy();
      return;
    }
    socket.server = this;
    if (pauseOnConnect) socket.pause();
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

  /** `listen` has failed. */
  #fail(listening: Listening, error: Error): void {
    const { host, port } = listening.options;
    listening.end();
    callProgram(() => this.emit('error', listenError(error, host, port)), false);
  }

  #onDeviceFailure(error: Error): void {
    callProgram(() => this.emit('error', error), false);
    this.close();
  }

  #emitCloseIfEnded(): void {
    if (this.#listening !== undefined || this.#sockets.size + this.#pending > 0) return;
    const freed = this.#last?.freed ?? Promise.resolve();
    void freed.then(() => callProgram(() => this.emit('close'), false));
  }
}

/** A call of `listen`: its id, and the device that the id and the accepted sockets use. */
class Listening {
  id: CmId | undefined;
  /** Resolves when it has left the port; undefined while it is wanted. */
  ended: Promise<void> | undefined;
  /** Resolves when the call before has left the port. */
  readonly portIsFree: Promise<void> | undefined;
  readonly #freed = new Deferred<void>();
  readonly #forgetSignal: () => void;
  #device: DeviceUse | undefined;
  /** The call itself, and the sockets. */
  #users = 1;

  /** @param last the call before @param onAbort called when the signal is aborted before the end */
  constructor(
    readonly options: SocketListenOptions & { readonly port: number },
    last: Listening | undefined,
    onAbort: () => void,
  ) {
    this.portIsFree = last?.ended;
    this.#forgetSignal = whenAborted(options.signal, onAbort);
  }

  /** Whether the server was not closed meanwhile, and `listen` has not failed. */
  get isWanted(): boolean {
    return this.ended === undefined;
  }

  /** Resolves when nothing is left. */
  get freed(): Promise<void> {
    return this.#freed.promise;
  }

  /** Uses a device as long as there are users. */
  use(device: DeviceUse): void {
    this.#device = device;
    if (this.#users === 0) void device.close().then(() => this.#freed.resolve());
  }

  /** Adds a user. @returns a function that removes it */
  retain(onRelease: () => void): () => void {
    this.#users++;
    return () => {
      onRelease();
      this.#release();
    };
  }

  /** Listens no more. The device stays open for the sockets. A second call does nothing. */
  end(): void {
    if (!this.isWanted) return;
    this.#forgetSignal();
    this.ended = Promise.resolve(this.id?.close());
    void this.ended.then(() => this.#release());
  }

  #release(): void {
    if (--this.#users > 0) return;
    void Promise.resolve(this.#device?.close()).then(() => this.#freed.resolve());
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
