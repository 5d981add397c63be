/**
 * The connection of a stream socket: its device, id, queue pair and transport, from the first of them until nothing is
 * left. A socket that connects again has another one.
 */
import { isIPv6 } from 'node:net';
import { transition } from '../base/transitions.js';
import { within } from '../base/within.js';
import { toError } from '../cm/qpstates.js';
import { type DeviceUse, useDevice } from '../deviceuse.js';
import { type CmId, createCmId, type Device, type Qp, VerbsError } from '../index.js';
import { withZone } from '../link/zones.js';
import { untilDisconnected } from '../transport/disconnect.js';
import { PeerWatch, type PeerWatchOptions, WATCHED } from '../transport/peerwatch.js';
import { failureOf, isNoMemory } from './errors.js';
import type { SocketConnectOptions } from './options.js';
import type { BufferSizes, Protocol, Transport } from './protocol.js';
import { ESTABLISHED, NEXT, type StreamState } from './streamstate.js';

/**
 * Time in which a peer has to acknowledge the last bytes, to disconnect when it has closed, and to answer a disconnect
 * (ms). Stock peers repeat a message after half a second.
 */
const LEAVE_MS = 5000;
/** Time in which our end answers the peer's repetitions, or the peer what we wrote, before we disconnect first (ms). */
const LINGER_MS = 200;

/** The socket, as its connection sees it. */
export interface ConnectionListener {
  /** There are bytes to read, or the peer writes no more. */
  onReadable(): void;
  /** More can be written. */
  onWritable(): void;
  /** The connection has failed. */
  onFailure(error: Error): void;
  /** The peer has disconnected. @param isComplete whether nothing was lost */
  onDisconnected(isComplete: boolean): void;
}

/** The parts of the options of `connect` that name the two ends. */
export interface Ends extends Pick<SocketConnectOptions, 'localAddress' | 'localPort'> {
  readonly address: string;
  readonly port: number;
}

export class StreamConnection {
  readonly #protocol: Protocol;
  readonly #sizes: BufferSizes;
  readonly #listener: ConnectionListener;
  #state: StreamState = 'opening';
  #transport: Transport | undefined;
  #id: CmId | undefined;
  #remote: CmId['remoteAddress'];
  #device: DeviceUse | undefined;
  /** Settles when the allocation that has begun has ended. */
  #allocating: Promise<unknown> | undefined;
  #closing: Promise<void> | undefined;
  /** A failure before the socket is the program's. */
  #earlyFailure: Error | undefined;
  /** Our end was said before that of the peer was known. */
  #endedFirst = false;
  #isRefed = true;
  #qp: Qp | undefined;
  #watch: PeerWatch | undefined;
  #watchOptions: PeerWatchOptions = {};
  /** The peer has sent nothing for too long: it is not waited for. */
  #isPeerLost = false;
  /** Called when everything is acknowledged, or never will be; and when the peer has disconnected. */
  #onIdle: (() => void) | undefined;
  #onDisconnect: (() => void) | undefined;

  constructor(protocol: Protocol, sizes: BufferSizes, listener: ConnectionListener) {
    this.#protocol = protocol;
    this.#sizes = sizes;
    this.#listener = listener;
  }

  /**
   * Connects.
   * @param given device of the program
   * @throws as `useDevice` and the calls of `CmId`; VerbsError ECANCELED when `close` was called meanwhile. Nothing is
   * left open then
   */
  async connect(given: Device | undefined, { address, port, localAddress, localPort = 0 }: Ends): Promise<void> {
    try {
      const use = await useDevice(given, { peer: address, local: localAddress });
      // `close` does not know it
      if (this.#state !== 'opening') await use.close();
      this.#assertOpening();
      this.#device = use;
      const id = this.#use(createCmId(use.device));
      if (localAddress !== undefined || localPort !== 0)
        await id.bindAddr(localAddress ?? (isIPv6(address) ? '::' : '0.0.0.0'), localPort);
      await id.resolveAddr(address, port);
      await id.resolveRoute();
      this.#assertOpening();
      const transport = await this.#allocate(use.device, id);
      this.#assertOpening();
      const { privateData } = await id.connect({
        ...WATCHED,
        ...this.#protocol.connParam,
        privateData: transport.privateData,
      });
      this.#assertOpening();
      transport.onPeerData(privateData);
      this.#establish(id);
    } catch (error) {
      await this.close();
      throw error;
    }
  }

  /**
   * Accepts a request.
   * @throws as `id.accept`; VerbsError EOPNOTSUPP when the peer speaks another protocol; ENOMEM, after a rejection with
   * NO_RESOURCES. Nothing is left open then
   */
  async accept(id: CmId): Promise<void> {
    try {
      this.#use(id);
      const transport = await this.#allocate(id.device as Device, id);
      transport.onPeerData(id.request?.privateData ?? new Uint8Array(0));
      await id.accept({ ...WATCHED, ...this.#protocol.connParam, privateData: transport.privateData });
      this.#establish(id);
    } catch (error) {
      if (isNoMemory(error)) await id.reject({ reason: 'NO_RESOURCES' }).catch(() => {});
      await this.close();
      throw error;
    }
  }

  /** Starts the events, when the program has the socket. */
  start(): void {
    if (this.#state !== 'established') return;
    if (this.#earlyFailure) {
      this.#setState('disconnected');
      this.#listener.onFailure(this.#earlyFailure);
      return;
    }
    this.#setState('open');
    void this.#awaitDisconnect();
    this.#watchPeer();
    this.call((transport) => transport.start(), undefined);
  }

  /** Whether the connection is established, or the rest of it is there. */
  get isEstablished(): boolean {
    return ESTABLISHED.includes(this.#state);
  }

  /** Whether the peer takes more bytes. */
  get isWritable(): boolean {
    return (this.#state === 'open' || this.#state === 'established') && this.#transport?.isPeerGone === false;
  }

  /** The transport of an established connection. */
  get transport(): Transport | undefined {
    return this.isEstablished ? this.#transport : undefined;
  }

  /** Our address; undefined before there is one, and after the close. */
  get local(): CmId['localAddress'] {
    return this.#id && zoned(this.#id, this.#id.localAddress);
  }

  /** The peer's address, also after the close; undefined before the connection is established. */
  get remote(): CmId['remoteAddress'] {
    return this.#remote;
  }

  /** Whether the connection keeps the process running. */
  set isRefed(isRefed: boolean) {
    this.#isRefed = isRefed;
    if (isRefed) this.#id?.channel.ref();
    else this.#id?.channel.unref();
  }

  /** When a silent peer is asked for a sign, and how long it may be silent then. */
  set peerWatch(options: PeerWatchOptions) {
    this.#watchOptions = options;
    this.#watchPeer();
  }

  /**
   * Calls the transport. An exception of the transport is a failure of this connection alone.
   * @returns the result of the call; `otherwise` when it throws, or when there is no connection
   */
  call<T>(action: (transport: Transport) => T, otherwise: T): T {
    const { transport } = this;
    if (transport === undefined) return otherwise;
    try {
      return action(transport);
    } catch (error) {
      this.#fail(error as Error);
      return otherwise;
    }
  }

  /** Tells the peer that no more follows. The transport has taken all data before. */
  end(): void {
    this.call((transport) => {
      this.#endedFirst = !transport.isPeerEnded;
      transport.end(transport.isPeerEnded);
    }, undefined);
  }

  /** Resolves when a peer that our end cannot be told has had some time to answer what was written. */
  async untilAnswered(): Promise<void> {
    await within(LEAVE_MS, this.#idle());
    await within(LINGER_MS, this.#disconnect());
  }

  /**
   * Ends the connection in order: the peer gets the written bytes, and the end after them. Closes a connection at once
   * that has failed, or was never established.
   * @param isFinished whether `end` was called
   */
  async leave(isFinished: boolean): Promise<void> {
    this.start();
    const transport = this.#transport;
    if (transport === undefined || this.#state !== 'open') return this.close();
    this.#setState('leaving');
    const isSaid = isFinished && (transport.isPeerEnded || this.#endedFirst);
    const isPeerLast = this.#endedFirst || transport.isPeerGone;
    if (!transport.isPeerGone && !(isSaid && transport.isPeerEnded)) this.call(() => transport.end(true), undefined);
    await within(LEAVE_MS, this.#idle());
    // The peer's end was the last message: it disconnects when it knows that we have it. An ACK may be lost, and an
    // adapter that repeats for ever, as rxe does, would never know without our queue pair.
    if (isPeerLast && transport.isPeerEnded)
      await within(transport.isPeerGone ? LEAVE_MS : LINGER_MS, this.#disconnect());
    await this.close();
  }

  /** Disconnects at once, and frees everything. A device that fails meanwhile has freed all itself. */
  close(): Promise<void> {
    this.#closing ??= this.#close().catch(() => {});
    return this.#closing;
  }

  async #close(): Promise<void> {
    if (this.#state !== 'closing') this.#setState('closing');
    const id = this.#id;
    this.#watch?.stop();
    this.#transport?.stop();
    const timeout = this.#isPeerLost ? LINGER_MS : LEAVE_MS;
    if (id?.state === 'ESTABLISHED') await id.disconnect({}, { timeout }).catch(() => {});
    this.#id = undefined;
    // the card gives back the receives that it has taken from a pool
    await toError(this.#qp);
    await id?.close();
    await this.#allocating?.catch(() => {});
    await this.#transport?.close();
    await this.#device?.close();
    this.#setState('closed');
  }

  #watchPeer(): void {
    this.#watch?.stop();
    if (this.#state !== 'open' || this.#qp === undefined) return;
    this.#watch = new PeerWatch(this.#qp, this.#watchOptions, (error) => {
      this.#isPeerLost = true;
      this.#fail(error);
    });
  }

  #setState(to: StreamState): void {
    this.#state = transition(NEXT, this.#state, to, 'a connection of a socket');
  }

  #assertOpening(): void {
    if (this.#state !== 'opening') throw new VerbsError('ECANCELED', 'the socket was destroyed');
  }

  #use(id: CmId): CmId {
    this.#id = id;
    this.isRefed = this.#isRefed;
    return id;
  }

  #establish(id: CmId): void {
    this.#assertOpening();
    this.#setState('established');
    this.#remote = zoned(id, id.remoteAddress);
  }

  /** Allocates the memory and the queue pair of the connection. */
  #allocate(device: Device, id: CmId): Promise<Transport> {
    const allocate = async () => {
      const transport = await this.#protocol.open(device, this.#sizes, {
        onReadable: () => this.#listener.onReadable(),
        onWritable: () => this.#onWritable(),
        onFailure: (error) => this.#fail(error),
      });
      this.#transport = transport;
      this.#qp = (await id.createQp(transport.pd, transport.qpOptions)).postedByLibrary();
      await transport.use(this.#qp);
      return transport;
    };
    const allocating = allocate();
    this.#allocating = allocating;
    return allocating;
  }

  #onWritable(): void {
    this.#listener.onWritable();
    if (this.#transport?.isIdle) this.#onIdle?.();
  }

  #fail(cause: Error): void {
    const error = failureOf(cause);
    if (this.#state === 'open' || this.#state === 'disconnected') this.#listener.onFailure(error);
    else this.#earlyFailure ??= error;
    // nothing more will be acknowledged
    this.#onIdle?.();
  }

  /** Resolves when everything is acknowledged, or nothing more will be. */
  #idle(): Promise<void> {
    if (this.#transport?.isIdle !== false || this.#isDisconnected) return Promise.resolve();
    return new Promise((resolve) => {
      this.#onIdle = resolve;
    });
  }

  /** Resolves when the peer has disconnected. */
  #disconnect(): Promise<void> {
    if (this.#isDisconnected) return Promise.resolve();
    return new Promise((resolve) => {
      this.#onDisconnect = resolve;
    });
  }

  /** Whether the peer has disconnected, or we wait for it no more. */
  get #isDisconnected(): boolean {
    return this.#state !== 'open' && this.#state !== 'leaving';
  }

  async #awaitDisconnect(): Promise<void> {
    const end = await untilDisconnected(this.#id as CmId);
    if (end) this.#onDisconnected(end.hasExited);
    else if (this.#state === 'open') this.#listener.onFailure(new VerbsError('ECANCELED', 'the device was closed'));
  }

  #onDisconnected(hasExited: boolean): void {
    // it is our own disconnect
    if (this.#state === 'closing' || this.#state === 'closed') return;
    const wasOpen = this.#state === 'open';
    this.#watch?.stop();
    this.#setState(wasOpen ? 'disconnected' : 'closing');
    const isComplete = this.call((transport) => transport.disconnected(hasExited), false);
    this.#onDisconnect?.();
    this.#onIdle?.();
    if (wasOpen) this.#listener.onDisconnected(isComplete);
  }
}

/** Returns an end of a connection with the zone of a link-local address, by which a program can connect to it. */
function zoned({ device }: CmId, end: CmId['localAddress']): CmId['localAddress'] {
  return end && { ...end, address: withZone(end.address, (device as Device).link.interface) };
}
