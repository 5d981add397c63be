/** Connections that come in, as a server of `node:net`. */
import { lookup } from 'node:dns/promises';
import { captureRejectionSymbol, EventEmitter } from 'node:events';
import { isIP, isIPv6 } from 'node:net';
import { whenAborted } from '../base/abort.js';
import { ipBytes, ipText, isWildcard } from '../base/address.js';
import { Deferred } from '../base/deferred.js';
import { type Checks, checkBoolean, checkOptions, hostName, integer } from '../base/options.js';
import { type Closable, Scope } from '../base/scope.js';
import { clearInterval, nextTick, setInterval } from '../base/timers.js';
import { callProgram } from '../base/uncaught.js';
import { MAX_TIMER_MS, WAIT_CHECKS } from '../base/waiting.js';
import { type ServicePort, servicePort } from '../cm/hostport.js';
import type { DeviceUse } from '../deviceuse.js';
import { onEachDevice, type ServiceOnDevice } from '../eachdevice.js';
import { type CmAddress, type CmId, createCmId, type Device, VerbsError } from '../index.js';
import { interfaceByAddress } from '../link/interfaces.js';
import { withZone } from '../link/zones.js';
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
  /**
   * Name or address of ours. Default, and with `::`: all addresses of the device; without a device, of all interfaces
   * of the host, also of those that appear later. `0.0.0.0`: all IPv4 addresses.
   */
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
    return this.#listening?.local !== undefined;
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
    listening.keepAwake(this.#isRefed);
    const { host } = checked;
    try {
      // `address` tells the port at once, as that of Node.js, unless the host is to be looked up
      if (host === undefined || isIP(host) !== 0) this.#bind(listening, host);
    } catch (error) {
      nextTick(() => this.#fail(listening, error as Error));
      return this;
    }
    void this.#listen(listening);
    return this;
  }

  /** Our address and port; null before the server has them: at once, unless the host is to be looked up. */
  address(): SocketAddress | null {
    const local = this.#listening?.local;
    return local ? { address: local.address, family: isIPv6(local.address) ? 'IPv6' : 'IPv4', port: local.port } : null;
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
    this.#listening?.keepAwake(true);
    return this;
  }

  /** Lets the process exit although the server listens. */
  unref(): this {
    this.#isRefed = false;
    this.#listening?.keepAwake(false);
    return this;
  }

  /** The call of `listen` that is neither closed nor failed. */
  get #listening(): Listening | undefined {
    return this.#last?.isWanted ? this.#last : undefined;
  }

  /** @param host address of ours @throws VerbsError EADDRNOTAVAIL, EADDRINUSE */
  #bind(listening: Listening, host: string | undefined): void {
    const { device } = this.#options;
    if (device === undefined) listening.bindToHost(host);
    else listening.bindTo(device, host);
  }

  async #listen(listening: Listening): Promise<void> {
    const { host } = listening.options;
    try {
      await listening.portIsFree;
      if (listening.local === undefined) {
        const { address } = await lookup(host as string);
        if (!listening.isWanted) return;
        this.#bind(listening, address);
      }
      await listening.open(this.#options.device, (use) => this.#listenOn(use, listening));
    } catch (error) {
      if (listening.isWanted) this.#fail(listening, error as Error);
      return;
    }
    nextTick(() => {
      if (listening.isWanted) this.emit('listening');
    });
  }

  #listenOn(use: DeviceUse, listening: Listening): Promise<ServiceOnDevice> {
    return Scope.open(async (scope) => {
      const id = scope.add(listening.idOn(use.device));
      listening.bindId(id);
      await id.listen({ backlog: listening.options.backlog || BACKLOG });
      void acceptAll(
        id,
        (request) => this.#accept(request, use, listening),
        (error) => this.#onDeviceFailure(error),
      );
      return { port: (id.localAddress as CmAddress).port, close: () => id.close() };
    });
  }

  async #accept(id: CmId, use: DeviceUse, listening: Listening): Promise<void> {
    const isFull = this.maxConnections !== undefined && this.#sockets.size + this.#pending >= this.maxConnections;
    const [memory, client] = [memoryShares(use.device), id.remoteAddress?.address ?? ''];
    if (!listening.isWanted || isFull || !memory.take(client, this.#connectionBytes)) {
      if (listening.isWanted) callProgram(() => this.emit('drop', dropped(id)), false);
      await refuse(id, { reason: 'NO_RESOURCES' });
      return;
    }
    const release = listening.retain(use, () => memory.release(client, this.#connectionBytes));
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

/** A call of `listen`: its address, and what listens on the devices that have it. */
class Listening {
  /** The address and port; undefined before the host is looked up. */
  local: { readonly address: string; readonly port: number } | undefined;
  /** Resolves when it has left the port; undefined while it is wanted. */
  ended: Promise<void> | undefined;
  /** Resolves when the call before has left the port. */
  readonly portIsFree: Promise<void> | undefined;
  readonly #freed = new Deferred<void>();
  readonly #forgetSignal: () => void;
  /** Of a device of the program: it is bound before it listens. */
  #boundId: CmId | undefined;
  #port: ServicePort | undefined;
  #opening: Promise<Closable> | undefined;
  /** Keeps the process running. */
  #awake: NodeJS.Timeout | undefined;
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

  /** Whether the call keeps the process running, until its end. */
  keepAwake(isAwake: boolean): void {
    clearInterval(this.#awake);
    this.#awake = isAwake && this.isWanted ? setInterval(() => {}, MAX_TIMER_MS) : undefined;
  }

  /** Takes addresses of the host, whose devices are opened later. @throws VerbsError EADDRNOTAVAIL, EADDRINUSE */
  bindToHost(host: string | undefined): void {
    const address = isWildcard(host) ? (host ?? '::') : withZone(ipText(ipBytes(host)), interfaceByAddress(host));
    this.#port = servicePort('TCP', this.options.port, false);
    this.local = { address, port: this.#port.port };
  }

  /** Takes addresses of a device. @throws as `id.bindAddr` */
  bindTo(device: Device, host = '::'): void {
    this.#boundId = createCmId(device);
    this.#boundId.bindNow(host, this.options.port);
    this.local = this.#boundId.localAddress;
  }

  /** Opens a listener on each device that has the address. @throws as `onEachDevice` */
  async open(device: Device | undefined, listenOn: (use: DeviceUse) => Promise<ServiceOnDevice>): Promise<void> {
    const { address: host, port } = this.local as CmAddress;
    this.#opening = onEachDevice(device, { host, port }, listenOn);
    await this.#opening;
  }

  /** Returns an id for a device. @throws as `createCmId`; VerbsError ECANCELED after the end */
  idOn(device: Device): CmId {
    if (!this.isWanted) throw new VerbsError('ECANCELED', 'the server was closed');
    const id = this.#boundId ?? createCmId(device);
    // the call keeps the process running, also without a device
    id.channel.unref();
    return id;
  }

  /** Binds an id, if it is not bound. @throws as `id.bindAddr` */
  bindId(id: CmId): void {
    const { address, port } = this.local as CmAddress;
    if (id !== this.#boundId) id.bindNow(address, port);
  }

  /** Adds a user of the call and of a device. @returns a function that removes it */
  retain(use: DeviceUse, onRelease: () => void): () => void {
    this.#users++;
    const own = use.share();
    return () => {
      onRelease();
      void own.close().then(() => this.#release());
    };
  }

  /** Listens no more. The devices stay open for the sockets. A second call does nothing. */
  end(): void {
    if (!this.isWanted) return;
    this.#forgetSignal();
    this.ended = this.#end();
    this.keepAwake(false);
  }

  async #end(): Promise<void> {
    const opened = await this.#opening?.catch(() => undefined);
    await opened?.close();
    await this.#boundId?.close();
    this.#port?.close();
    this.#release();
  }

  #release(): void {
    if (--this.#users === 0) this.#freed.resolve();
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
