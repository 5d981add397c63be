/**
 * Datagram sockets in the manner of node:dgram, over one UD queue pair. Ports are those of rdma_cm's UDP port space:
 * a socket answers SIDR requests for its port with its queue pair number and Q_Key, and asks peers for theirs.
 *
 * `binding.ts` opens the socket, `target.ts` reads the arguments of `send`, `destinations.ts` and `services.ts` find
 * the queue pairs of peers, `inbox.ts` keeps what is not read, and this file is the API.
 */

import { EventEmitter } from 'node:events';
import { type InspectOptionsStylized, inspect } from 'node:util';
import { whenAborted } from '../base/abort.js';
import { type Checks, checkInteger, checkOptions, integer, text, wrongType } from '../base/options.js';
import { nextTick } from '../base/timers.js';
import { callProgram } from '../base/uncaught.js';
import { checkWait, WAIT_CHECKS, type WaitOptions, waitFor } from '../base/waiting.js';
import type { CmAddress } from '../cm/index.js';
import { VerbsError, withDetails } from '../errors.js';
import { Endpoints } from '../transport/endpoints.js';
import { stage } from '../transport/sendqueue.js';
import { inspectAs } from '../verbs/diagnose/describe.js';
import type { Context } from '../verbs/objects/context.js';
import type { Qp } from '../verbs/objects/qp.js';
import { Binding, type BindingSizes } from './binding.js';
import { type DatagramAddress, type DatagramMessage, Inbox, type RemoteInfo } from './inbox.js';
import { checkPort, parseTarget, type Target } from './target.js';

/** Options of `device.createSocket`. */
export interface DatagramSocketOptions {
  /**
   * Receive buffers, 1..16384, each of the largest datagram and 40 bytes. What arrives while all are in use is dropped,
   * and counted as `drop_no_receive`. Default 256.
   */
  readonly receives?: number;
  /** Datagrams that are handed to the device at a time, 1..16384. Further ones wait in order. Default 64. */
  readonly sends?: number;
  /**
   * Destinations whose queue pair is remembered, 1..65536, and most that are asked at a time. The one that was not used
   * for the longest time is forgotten. Default 1024.
   */
  readonly peers?: number;
  /**
   * Milliseconds after which a destination in use is asked for its queue pair again, so that a peer that has restarted
   * is found. Until its answer, datagrams go to the old queue pair. Default 1000.
   */
  readonly refreshInterval?: number;
  /** Aborted: the socket is closed. */
  readonly signal?: AbortSignal;
}

/** Address of a socket, in the form of node:net. */
export interface DatagramSocketAddress extends CmAddress {
  /** Family of the address. */
  readonly family: 'IPv4' | 'IPv6';
}

/** Events of a datagram socket, with the arguments of their listeners. */
export interface DatagramSocketEvents {
  /** The socket is bound, and receives. */
  listening: [];
  /** A datagram has arrived. While this event has a listener, `receive` gets none. */
  message: [data: Buffer, rinfo: RemoteInfo];
  /** The socket has a peer, by `connect`. */
  connect: [];
  /** The device has failed. `close` follows. Not emitted when a `receive` has got the error. */
  error: [error: Error];
  /** The socket is closed. */
  close: [];
}

const CHECKS: Checks<DatagramSocketOptions> = {
  receives: integer(1, 16384),
  sends: integer(1, 16384),
  peers: integer(1, 65536),
  refreshInterval: integer(0, 2 ** 31 - 1),
  signal: WAIT_CHECKS.signal,
};
/**
 * A datagram socket in the manner of node:dgram, from `device.createSocket`. It sends messages to addresses and ports,
 * and to multicast groups; messages are lost, repeated or reordered as the network does. The peer may be any program
 * with a datagram service of rdma_cm.
 *
 * A message takes one packet: more bytes than the path MTU are refused. The wire carries no ports: the port of a
 * destination is resolved to a queue pair, and the sender of a message is known by its queue pair. `send(message,
 * rinfo)` replies to it.
 *
 * Events: `listening`; `message` with data and sender, also as `for await (const { data, rinfo } of socket)`;
 * `connect`; `error`; `close`. A bound socket keeps the process running; see `unref`.
 *
 * @example
 * ```ts
 * const socket = await device.createSocket().bind(7471);
 * socket.on('message', (data, rinfo) => {
 *   console.log(`${rinfo.address} sent ${data}`);
 *   socket.send('thank you', rinfo).catch(console.error);
 * });
 * await socket.send('hello', 7471, '10.0.0.2');
 * ```
 */
export class DatagramSocket
  extends EventEmitter<DatagramSocketEvents>
  implements AsyncIterable<DatagramMessage>, AsyncDisposable
{
  readonly #device: Context;
  /** Among the endpoints of the device. */
  readonly #endpoint: number;
  readonly #sizes: BindingSizes;
  readonly #inbox: Inbox;
  /** Settles when `bind` has ended. */
  #opening: Promise<void> | undefined;
  #binding: Binding | undefined;
  /** Peer of a connected socket. */
  #remote: CmAddress | undefined;
  #isRefed = true;
  #isClosing = false;
  readonly #forgetSignal: () => void;
  #isEnded = false;
  #cleanup: Promise<void> | undefined;
  /** Reject the datagrams whose destination is being resolved. */
  readonly #resolving = new Set<(error: unknown) => void>();

  /** @internal Use `device.createSocket`. @throws TypeError, RangeError for wrong options */
  constructor(device: Context, options: DatagramSocketOptions) {
    super();
    const { signal, ...rest } = checkOptions('createSocket', options, CHECKS);
    const { receives = 256, sends = 64, peers = 1024, refreshInterval = 1000 } = rest;
    this.#device = device;
    this.#sizes = { receives, sends, peers, refreshInterval };
    this.#inbox = new Inbox({
      portOf: (address, qpNum) => this.#binding?.services.portOf(address, qpNum) ?? 0,
      accepts: ({ address, port }) =>
        this.#remote === undefined || (this.#remote.address === address && this.#remote.port === port),
    });
    Endpoints.of(device).assertOpen();
    this.#endpoint = Endpoints.of(device).add(this);
    this.#watchListeners();
    this.#forgetSignal = whenAborted(signal, () => this.destroy());
  }

  /**
   * The UD queue pair, for counters and attributes. Its completions and receives belong to the socket.
   * @throws VerbsError EINVAL before the socket is bound
   */
  get qp(): Qp {
    return this.#bound().port.qp;
  }

  /**
   * Binds the socket to a port of rdma_cm's UDP port space, and answers for it. Event: `listening`. A socket that sends
   * before it is bound gets a free port.
   * @param port 0..65535; 0 = any free port. Default 0
   * @param host one of the device's addresses; `0.0.0.0` = all IPv4 addresses. Default `::`, all addresses
   * @returns the socket
   * @throws TypeError, RangeError; VerbsError EADDRINUSE when the port is taken, EADDRNOTAVAIL when `host` is no
   * address of the device, EINVAL when the socket is bound or closed, ENOMEM
   */
  async bind(port = 0, host = '::'): Promise<this> {
    checkInteger('port', port, 0, 65535);
    text('host', host);
    this.#assertOpen();
    if (this.#opening !== undefined) throw new VerbsError('EINVAL', 'the socket is bound already');
    this.#opening = this.#bind(port, host);
    try {
      await this.#opening;
    } catch (error) {
      this.#opening = undefined;
      throw withDetails(error, { syscall: 'bind', address: host, port });
    }
    return this;
  }

  /** Address, family and port that the socket is bound to. @throws VerbsError EINVAL before the socket is bound */
  address(): DatagramSocketAddress {
    const { address, port } = this.#bound().id.localAddress as CmAddress;
    return { address, family: address.includes(':') ? 'IPv6' : 'IPv4', port };
  }

  /** Address and port of the peer of a connected socket. @throws VerbsError EINVAL when it has none */
  remoteAddress(): DatagramSocketAddress {
    if (this.#remote === undefined) throw new VerbsError('EINVAL', 'the socket is not connected');
    const { address, port } = this.#remote;
    return { address, family: address.includes(':') ? 'IPv6' : 'IPv4', port };
  }

  /**
   * Sends a message to a port. The first message to a port asks the peer for its queue pair, which takes a round trip;
   * the answer is remembered. Resolves when the datagram has left, which does not mean that it has arrived. Of a
   * multicast group all members get it, whatever their port.
   * @param message text, which is sent as UTF-8; or bytes, at most the path MTU. Do not change them before the promise
   * settles
   * @param port the peer's port, 1..65535
   * @param address the peer's IP address or host name, or a multicast group
   * @throws TypeError, RangeError for wrong arguments; VerbsError EMSGSIZE when the message is longer than the path
   * MTU, EHOSTUNREACH, EADDRNOTAVAIL, ENOMEM, EINVAL when the socket is closed, ECANCELED when it is closed meanwhile,
   * ETIMEDOUT after `timeout`; CmError ECONNREFUSED when the peer has no service at the port, ETIMEDOUT when it does
   * not answer; the signal's reason
   */
  send(message: string | Uint8Array, port: number, address: string, options?: WaitOptions): Promise<void>;
  /**
   * Sends a message to a queue pair: `rinfo` of a received message replies to its sender.
   * @throws as above
   */
  send(message: string | Uint8Array, to: DatagramAddress, options?: WaitOptions): Promise<void>;
  /**
   * Sends a message to the peer of a connected socket.
   * @throws as above
   */
  send(message: string | Uint8Array, options?: WaitOptions): Promise<void>;
  async send(
    message: string | Uint8Array,
    to?: number | DatagramAddress | WaitOptions,
    addressOrOptions?: string | WaitOptions,
    options?: WaitOptions,
  ): Promise<void> {
    const { target, wait } = parseTarget(this.#remote, to, addressOrOptions, options);
    const data = typeof message === 'string' ? Buffer.from(message) : message;
    if (!(data instanceof Uint8Array)) throw wrongType('the message', data, 'text or bytes');
    this.#assertOpen();
    checkWait(wait);
    const isLimited = wait.signal !== undefined || wait.timeout !== undefined;
    const abort = isLimited ? new AbortController() : undefined;
    try {
      const sending = this.#send(data, target, abort === undefined ? {} : { signal: abort.signal });
      await waitFor(sending, `no datagram sent to ${target.address}`, wait, () => abort?.abort());
    } catch (error) {
      const { address } = target;
      throw withDetails(error, { syscall: 'send', address, ...('qpNum' in target ? {} : { port: target.port }) });
    }
  }

  /**
   * Sets the peer: from now on `send` needs no destination, and messages of others are dropped. Event: `connect`.
   * @param port the peer's port, 1..65535 @param address the peer's IP address or host name
   * @throws as `send`; VerbsError EINVAL when the socket is connected
   */
  async connect(port: number, address: string, wait: WaitOptions = {}): Promise<void> {
    checkPort(port);
    text('address', address);
    this.#assertOpen();
    if (this.#remote !== undefined) throw new VerbsError('EINVAL', 'the socket is connected already');
    checkWait(wait);
    try {
      const resolving = this.#unlessClosed(
        this.#ensureBound().then((bound) => bound.destinations.resolvePeer(port, address)),
      );
      this.#remote = await waitFor(resolving, `no answer from ${address} port ${port}`, wait);
    } catch (error) {
      throw withDetails(error, { syscall: 'connect', address, port });
    }
    this.emit('connect');
  }

  /** Undoes `connect`. @throws VerbsError EINVAL when the socket is not connected */
  disconnect(): void {
    this.remoteAddress();
    this.#remote = undefined;
  }

  /**
   * Joins a multicast group: the socket gets what is sent to it by any member of the network, on any port. A sender
   * need not be a member.
   * @param group IP address
   * @throws TypeError when `group` is no multicast group; VerbsError EINVAL when the socket has joined it or is closed,
   * EOPNOTSUPP when the link has no groups, ENOMEM
   */
  async addMembership(group: string): Promise<void> {
    this.#assertOpen();
    await (await this.#ensureBound()).port.qp.attachMcast(group);
  }

  /**
   * Leaves a multicast group.
   * @throws TypeError; VerbsError ENOENT when the socket has not joined it, EINVAL before the socket is bound
   */
  async dropMembership(group: string): Promise<void> {
    await this.qp.detachMcast(group);
  }

  /**
   * Returns the next message, or undefined once the socket is closed. Messages wait in the receive buffers until they
   * are read.
   * @throws TypeError for wrong options; VerbsError EIO when the device has failed, ETIMEDOUT after `timeout`; the
   * signal's reason
   */
  receive(wait: WaitOptions = {}): Promise<DatagramMessage | undefined> {
    return this.#inbox.next(wait);
  }

  /** Iterates over all messages until the socket is closed. Leaving the loop does not close the socket. */
  async *[Symbol.asyncIterator](): AsyncGenerator<DatagramMessage, void, void> {
    for (let message = await this.receive(); message !== undefined; message = await this.receive()) yield message;
  }

  /** Keeps the process running while the socket is bound. This is the default. */
  ref(): this {
    this.#isRefed = true;
    this.#binding?.id.channel.ref();
    return this;
  }

  /** Lets the process exit although the socket is bound. */
  unref(): this {
    this.#isRefed = false;
    this.#binding?.id.channel.unref();
    return this;
  }

  /**
   * Closes the socket. What was handed to the device is sent; a message whose destination is still being resolved fails
   * with ECANCELED. A second call waits for the same end.
   */
  async close(): Promise<void> {
    this.#isClosing = true;
    this.#cancelResolving();
    await this.#opening?.catch(() => {});
    await this.#binding?.port.sendQueue.idle();
    this.#end();
    await this.#cleanup;
  }

  /** Same as `close`, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** @internal Closes the socket at once; what is not sent is lost. */
  destroy(): void {
    this.#end();
  }

  /** Returns a short description as plain data, for `JSON.stringify` and `console.log`. */
  toJSON(): Record<string, unknown> {
    if (this.#isEnded) return { isClosed: true };
    if (this.#binding === undefined) return { isBound: false };
    return { ...this.address(), qpNum: this.qp.qpNum, ...(this.#remote && { remote: this.remoteAddress() }) };
  }

  /** @internal */
  [inspect.custom](depth: number, options: InspectOptionsStylized): string {
    return inspectAs(this, depth, options);
  }

  /** Messages go to the listeners of `message` while there are any. */
  #watchListeners(): void {
    const deliver = ({ data, rinfo }: DatagramMessage) =>
      void callProgram(() => this.emit('message', data, rinfo), false);
    const update = () => this.#inbox.listen(this.listenerCount('message') > 0 ? deliver : undefined);
    const events = this as unknown as EventEmitter;
    // The event comes before the listener is added.
    events.on('newListener', (name) => name === 'message' && nextTick(update));
    events.on('removeListener', (name) => name === 'message' && update());
  }

  // ---- binding ----

  async #bind(port: number, host: string): Promise<void> {
    const bound = await Binding.open(this.#device, port, host, this.#sizes, {
      onDatagram: (datagram) => this.#inbox.onDatagram(datagram),
      onFailure: (error) => this.#end(error),
    });
    if (this.#isEnded || this.#isClosing) {
      await bound.close(wasClosed());
      throw wasClosed();
    }
    this.#binding = bound;
    if (!this.#isRefed) bound.id.channel.unref();
    bound.serve().catch((error) => this.#end(error));
    nextTick(() => {
      if (!this.#isEnded) this.emit('listening');
    });
  }

  #bound(): Binding {
    if (this.#binding !== undefined) return this.#binding;
    throw new VerbsError('EINVAL', `the socket is ${this.#isEnded ? 'closed' : 'not bound'}`);
  }

  async #ensureBound(): Promise<Binding> {
    if (this.#binding === undefined) await (this.#opening ?? this.bind());
    this.#assertOpen();
    return this.#bound();
  }

  // ---- sending ----

  async #send(data: Uint8Array, target: Target, wait: WaitOptions): Promise<void> {
    const resolving = this.#ensureBound().then((bound) => bound.destinations.resolve(target));
    const { ah, qpNum: remoteQpn, qkey: remoteQkey, route } = await this.#unlessClosed(resolving);
    const { port, messageBytes } = this.#bound();
    const { sendQueue, qp } = port;
    const limit = Math.min(ah.maxMessage, messageBytes);
    if (data.length > limit) {
      const rule = `at most the path MTU to ${route.remote}, ${limit}, is allowed`;
      throw new VerbsError('EMSGSIZE', `the message has ${data.length} bytes, ${rule}`);
    }
    await sendQueue.submit(
      'not sent',
      wait,
      data.length,
      (slot, wrId) => {
        // Stock programs (udaddy, mckey) expect the number of the sender's queue pair as immediate data.
        return {
          opcode: 'SEND_WITH_IMM',
          wrId,
          signaled: true,
          solicited: true,
          sgList: stage(slot, data),
          immData: qp.qpNum,
          ah: port.handleOf(route),
          remoteQpn,
          remoteQkey,
        };
      },
      () => {},
    );
  }

  /** Settles as `promise`, or with ECANCELED when the socket is closed before. */
  #unlessClosed<T>(promise: Promise<T>): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      this.#resolving.add(reject);
      promise.then(resolve, reject).finally(() => this.#resolving.delete(reject));
    });
  }

  // ---- the end ----

  #assertOpen(): void {
    if (this.#isClosing || this.#isEnded) throw new VerbsError('EINVAL', 'the socket is closed');
    this.#device.assertOpen();
  }

  #cancelResolving(): void {
    for (const reject of this.#resolving) reject(wasClosed());
    this.#resolving.clear();
  }

  /** Ends the socket at once. Later calls do nothing. */
  #end(error?: Error): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    this.#forgetSignal();
    const bound = this.#binding;
    this.#cancelResolving();
    const reason = wasClosed(error);
    bound?.port.sendQueue.end({ error: reason });
    const isReported = this.#inbox.end(error);
    this.#cleanup = (bound?.close(reason) ?? Promise.resolve()).finally(() => {
      Endpoints.of(this.#device).delete(this.#endpoint);
      // Not from a promise, which would hide the exceptions of listeners.
      if (error !== undefined && !isReported) nextTick(() => this.emit('error', error));
      nextTick(() => this.emit('close'));
    });
    this.#cleanup.catch(() => {});
  }
}

/** The error of what a socket was asked to do before it was closed. */
function wasClosed(cause?: Error): VerbsError {
  return new VerbsError('ECANCELED', 'the socket was closed', { cause });
}
