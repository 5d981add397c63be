/** A datagram socket of `node:dgram` over RDMA. */

import { createSocket as createUdpSocket, type RemoteInfo, type Socket as UdpSocket } from 'node:dgram';
import { lookup } from 'node:dns';
import { EventEmitter } from 'node:events';
import { isIP } from 'node:net';
import { whenAborted } from '../../../base/abort.js';
import { type Checks, callable, checkBoolean, checkOptions, integer, required } from '../../../base/options.js';
import { Scope } from '../../../base/scope.js';
import { nextTick } from '../../../base/timers.js';
import { callProgram } from '../../../base/uncaught.js';
import { WAIT_CHECKS } from '../../../base/waiting.js';
import { emitWarning } from '../../../base/warning.js';
import { openedDevice } from '../../../deviceuse.js';
import { type Device, gidAddress, VerbsError } from '../../../index.js';
import { withZone } from '../../../link/zones.js';
import {
  alreadyBound,
  badType,
  checkPort,
  hasNoPeer,
  hasPeer,
  sendError,
  socketClosed,
} from '../../../sockets/errors.js';
import { type LocalEnd, LocalEnds } from './localends.js';
import { type Destination, Peers } from './peers.js';
import { type DatagramData, type Done, sendArguments } from './sendarguments.js';
import { decodeHeader, decodeIntroduction, encodeIntroduction, QKEY } from './wire.js';

/** Receive buffers without an option, and at most. */
const RECEIVES = 256;
const MAX_RECEIVES = 16_384;

/** Options of `createSocket`. */
export interface DatagramOptions {
  /** IP version of the socket. */
  readonly type: 'udp4' | 'udp6';
  /**
   * Device of the socket. Default: that of the address which the socket is bound to, or those on the routes to its
   * peers, which the sockets of the process share.
   */
  readonly device?: Device;
  /** Receive buffers, 1 to 16384. A message that finds none free is lost. Default 256. */
  readonly receives?: number;
  /** Resolves names. Default `dns.lookup`. */
  readonly lookup?: typeof lookup;
  /** Closes the socket when it is aborted. */
  readonly signal?: AbortSignal;
  /** Of the UDP socket, by which first messages come, as of `dgram.createSocket`. */
  readonly reuseAddr?: boolean;
  /** SO_RCVBUF of the UDP socket in bytes. Default: that of the system. */
  readonly recvBufferSize?: number;
  /** SO_SNDBUF of the UDP socket in bytes. Default: that of the system. */
  readonly sendBufferSize?: number;
}

const CHECKS: Checks<DatagramOptions> = {
  type: required((_, value) => {
    if (value !== 'udp4' && value !== 'udp6') throw badType(value);
  }),
  device: openedDevice,
  receives: integer(1, MAX_RECEIVES),
  lookup: callable,
  signal: WAIT_CHECKS.signal,
  reuseAddr: checkBoolean,
  recvBufferSize: integer(0, 2 ** 31 - 1),
  sendBufferSize: integer(0, 2 ** 31 - 1),
};

/** Options of `bind`. */
export interface BindOptions {
  /** Port; 0 for any. Default 0. */
  readonly port?: number;
  /** One of our addresses. Default: all of them. */
  readonly address?: string;
}

/** Address and port of an end. */
interface End {
  readonly address: string;
  readonly port: number;
}

/**
 * A datagram socket by the protocol of rsockets. It behaves as a `dgram.Socket`: messages are lost, repeated or
 * reordered as the network does. It has no groups and no broadcast.
 *
 * Events: `listening`, `message` (with the message and its sender), `connect`, `error`, `close`.
 */
export class Socket extends EventEmitter<{
  listening: [];
  message: [message: Buffer, rinfo: RemoteInfo];
  connect: [];
  error: [error: Error];
  close: [];
}> {
  readonly #options: DatagramOptions;
  readonly #version: 4 | 6;
  readonly #udp: UdpSocket;
  #state: 'unbound' | 'binding' | 'bound' | 'closed' = 'unbound';
  #ends: LocalEnds | undefined;
  readonly #peers = new Peers();
  #opening: Promise<void> | undefined;
  /** Calls that wait until the socket is bound, or cannot be. */
  readonly #waiting: ((error?: Error) => void)[] = [];
  /** Callbacks of the messages that are with the UDP socket. */
  readonly #introducing = new Set<Done>();
  /** Told once, as peers may cause it. */
  #isWarned = false;
  #remote: End | undefined;
  #isConnecting = false;
  readonly #forgetSignal: () => void;

  /** @throws TypeError, RangeError for wrong options */
  constructor(options: DatagramOptions | 'udp4' | 'udp6', onMessage?: (message: Buffer, rinfo: RemoteInfo) => void) {
    super();
    const all = typeof options === 'string' ? { type: options } : options;
    this.#options = checkOptions('createSocket', all, CHECKS);
    const { type, signal, reuseAddr, recvBufferSize, sendBufferSize } = this.#options;
    this.#version = type === 'udp4' ? 4 : 6;
    // ports of the two versions are apart, as the queue pairs of their addresses are
    this.#udp = createUdpSocket({ type, ipv6Only: type === 'udp6', reuseAddr, recvBufferSize, sendBufferSize });
    this.#udp.on('message', (bytes, rinfo) => this.#onIntroduction(bytes, rinfo));
    this.#udp.on('error', (error) => this.#fail(error));
    if (onMessage !== undefined) this.on('message', onMessage);
    this.#forgetSignal = whenAborted(signal, () => this.#onAbort());
    // as node:dgram has it: at once
    if (signal?.aborted) this.#onAbort();
  }

  // ---- addresses ----

  /**
   * Binds the socket. The event `listening` follows, or `error`. A socket that sends before it is bound gets a free
   * port.
   * @throws Error ERR_SOCKET_ALREADY_BOUND, ERR_SOCKET_DGRAM_NOT_RUNNING; RangeError ERR_SOCKET_BAD_PORT
   */
  bind(port?: number, address?: string, onListening?: () => void): this;
  bind(port: number, onListening: () => void): this;
  bind(onListening: () => void): this;
  bind(options: BindOptions, onListening?: () => void): this;
  bind(to?: number | BindOptions | (() => void), ...rest: readonly (string | (() => void) | undefined)[]): this {
    this.#assertRunning();
    if (this.#state !== 'unbound') throw alreadyBound();
    const options = typeof to === 'object' && to !== null ? to : { port: to, address: rest[0] };
    const listener = [to, ...rest].find((argument) => typeof argument === 'function');
    const port = typeof options.port === 'function' ? 0 : checkPort(options.port ?? 0, 0);
    const address = typeof options.address === 'string' && options.address !== '' ? options.address : undefined;
    if (listener !== undefined) this.once('listening', listener as () => void);
    this.#bind({ address, port });
    return this;
  }

  /** Our address and port. @throws Error ERR_SOCKET_DGRAM_NOT_RUNNING; as `dgram.Socket.address` before it is bound */
  address(): ReturnType<UdpSocket['address']> {
    this.#assertRunning();
    return this.#udp.address();
  }

  /** Address and port of the peer. @throws Error ERR_SOCKET_DGRAM_NOT_CONNECTED */
  remoteAddress(): ReturnType<UdpSocket['address']> {
    this.#assertRunning();
    if (this.#remote === undefined) throw hasNoPeer();
    return { ...this.#remote, family: this.#family };
  }

  /**
   * Sets the peer: messages go to it, and those of others are dropped. The event `connect` follows, or `error`.
   * @throws Error ERR_SOCKET_DGRAM_IS_CONNECTED, ERR_SOCKET_DGRAM_NOT_RUNNING; RangeError ERR_SOCKET_BAD_PORT
   */
  connect(port: number, address?: string, onConnect?: (error?: Error) => void): void;
  connect(port: number, onConnect: (error?: Error) => void): void;
  connect(port: number, ...rest: readonly (string | ((error?: Error) => void) | undefined)[]): void {
    this.#assertRunning();
    if (this.#remote !== undefined || this.#isConnecting) throw hasPeer();
    const to = { port: checkPort(port, 1), address: rest.find((argument) => typeof argument === 'string') };
    const onConnect = rest.find((argument) => typeof argument === 'function');
    this.#isConnecting = true;
    this.#resolve(to, (error, end) => nextTick(() => this.#onConnected(error, end, onConnect)));
  }

  #onConnected(error: Error | undefined, end: End | undefined, onConnect?: (error?: Error) => void): void {
    this.#isConnecting = false;
    if (this.#state === 'closed') return;
    if (end === undefined) {
      if (onConnect !== undefined) onConnect(error);
      else this.emit('error', error as Error);
      return;
    }
    this.#remote = end;
    if (onConnect !== undefined) this.once('connect', onConnect);
    this.emit('connect');
  }

  /** Undoes `connect`. @throws Error ERR_SOCKET_DGRAM_NOT_CONNECTED */
  disconnect(): void {
    this.remoteAddress();
    this.#remote = undefined;
  }

  // ---- messages ----

  /**
   * Sends a message, of at most the path MTU less the header of 8 bytes, or 24 for IPv6. Its bytes must not change
   * before `done` is called, when it has left or could not leave; without `done` the event `error` tells of that.
   * @throws TypeError, RangeError for wrong arguments; Error ERR_SOCKET_DGRAM_NOT_RUNNING,
   * ERR_SOCKET_DGRAM_IS_CONNECTED
   */
  send(message: DatagramData, port?: number, address?: string, done?: Done): void;
  send(message: DatagramData, port: number, done: Done): void;
  send(message: DatagramData, done: Done): void;
  send(message: DatagramData, offset: number, length: number, port?: number, address?: string, done?: Done): void;
  send(message: DatagramData, offset: number, length: number, port: number, done: Done): void;
  send(message: DatagramData, offset: number, length: number, done: Done): void;
  send(data: DatagramData, ...rest: readonly unknown[]): void {
    this.#assertRunning();
    const remote = this.#remote;
    const { message, port, address, done = this.#onSendError } = sendArguments(data, rest, remote !== undefined);
    if (remote !== undefined) {
      if (port !== undefined || address !== undefined) throw hasPeer();
      this.#send(remote, message, done);
      return;
    }
    const to = { port: checkPort(port, 1), address };
    this.#resolve(to, (error, end) => (end === undefined ? done(error) : this.#send(end, message, done)));
  }

  /** Messages that wait for a buffer of the device. */
  getSendQueueCount(): number {
    let count = 0;
    for (const { port } of this.#ends?.all ?? []) count += port.sendQueue.waiting.count;
    return count;
  }

  /** Bytes of the messages that wait for a buffer of the device. */
  getSendQueueSize(): number {
    let sum = 0;
    for (const { port, header } of this.#ends?.all ?? []) {
      const { count, bytes } = port.sendQueue.waiting;
      sum += bytes - count * header.length;
    }
    return sum;
  }

  // ---- the end ----

  /**
   * Closes the socket. The event `close` follows.
   * @throws Error ERR_SOCKET_DGRAM_NOT_RUNNING when it is closed
   */
  close(onClose?: () => void): this {
    this.#assertRunning();
    if (onClose !== undefined) this.once('close', onClose);
    this.#state = 'closed';
    this.#forgetSignal();
    for (const call of this.#waiting.splice(0)) nextTick(call, socketClosed());
    void this.#free().finally(() => nextTick(() => this.emit('close')));
    return this;
  }

  /** Closes the socket and waits for `close`. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#state !== 'closed') await new Promise<void>((resolve) => this.close(resolve));
  }

  /** Keeps the process running while the socket is bound. This is the default. */
  ref(): this {
    this.#udp.ref();
    return this;
  }

  /** Lets the process exit although the socket is bound. */
  unref(): this {
    this.#udp.unref();
    return this;
  }

  get #family(): 'IPv4' | 'IPv6' {
    return this.#version === 4 ? 'IPv4' : 'IPv6';
  }

  #onAbort(): void {
    if (this.#state !== 'closed') this.close();
  }

  readonly #onSendError = (error?: Error): void => {
    if (error !== undefined && this.#state !== 'closed') this.emit('error', error);
  };

  #assertRunning(): void {
    if (this.#state === 'closed') throw socketClosed();
  }

  /** Resolves a name, and binds the socket if it is not bound. */
  #resolve(to: { port: number; address: string | undefined }, then: (error?: Error, end?: End) => void): void {
    const { address = this.#version === 4 ? '127.0.0.1' : '::1', port } = to;
    const found = (ip: string) =>
      this.#whenBound((error) => then(error, error === undefined ? { address: ip, port } : undefined));
    if (isIP(address) === this.#version) {
      found(address);
      return;
    }
    const { lookup: resolve = lookup } = this.#options;
    resolve(address, { family: this.#version }, (error, ip) => {
      if (error !== null) then(error);
      else if (this.#state === 'closed') then(socketClosed());
      else found(ip);
    });
  }

  // ---- binding ----

  #whenBound(call: (error?: Error) => void): void {
    if (this.#state === 'bound') {
      call();
      return;
    }
    this.#waiting.push(call);
    if (this.#state === 'unbound') this.#bind({ address: undefined, port: 0 });
  }

  #bind(local: { address: string | undefined; port: number }): void {
    this.#state = 'binding';
    // not from a promise, which would hide the exceptions of listeners
    this.#opening = this.#open(local).then(
      () => void nextTick(() => this.#onBound()),
      (error: Error) => void nextTick(() => this.#onBindError(Object.assign(error, { syscall: 'bind', ...local }))),
    );
  }

  #onBound(): void {
    if (this.#state !== 'binding') return;
    this.#state = 'bound';
    // in ticks of their own: a listener may throw
    for (const call of this.#waiting.splice(0)) nextTick(call);
    this.emit('listening');
  }

  #onBindError(error: Error): void {
    if (this.#state !== 'binding') return;
    this.#state = 'unbound';
    const calls = this.#waiting.splice(0);
    for (const call of calls) nextTick(call, error);
    if (calls.length === 0) this.emit('error', error);
  }

  async #open({ address, port }: { address: string | undefined; port: number }): Promise<void> {
    const { device, receives = RECEIVES } = this.#options;
    this.#ends = await Scope.open(async (scope) => {
      const ends = scope.add(
        await LocalEnds.open(
          { version: this.#version, device, address, receives },
          {
            onMessage: (end, from, bytes) => this.#onMessage(end, from, bytes),
            onFailure: (error) => this.#fail(error),
          },
        ),
      );
      await bindUdp(this.#udp, port, address);
      ends.udpPort = this.#udp.address().port;
      return ends;
    });
  }

  // ---- sending and receiving ----

  #send(to: End, message: Uint8Array, done: Done): void {
    if (this.#ends === undefined) {
      nextTick(done, socketClosed());
      return;
    }
    const destination = this.#peers.destinationOf(gidAddress(to.address), to.port);
    if (destination !== undefined) this.#post(destination, to, message, done);
    else
      this.#withEnd(
        to.address,
        (end) => this.#sendByUdp(end, to, message, done),
        (error) => nextTick(done, sendError(error, to.address, to.port)),
      );
  }

  #post({ end, route, qpNum }: Destination, to: End, message: Uint8Array, done: Done): void {
    if (isTooLong(end, to, message, done)) return;
    const { port, header } = end;
    const length = header.length + message.length;
    const sending = port.sendQueue.submit(
      'not sent',
      {},
      length,
      (slot, wrId) => {
        slot.bytes.set(header);
        slot.bytes.set(message, header.length);
        const [sgList, ah] = [slot.sge(length), port.handleOf(route)];
        return { opcode: 'SEND', wrId, signaled: true, sgList, ah, remoteQpn: qpNum, remoteQkey: QKEY };
      },
      () => {},
    );
    // A socket that is closed loses what is in flight without an error.
    sending.then(
      () => callProgram(done, undefined),
      (error) => callProgram(() => done(this.#state === 'closed' ? undefined : error), undefined),
    );
  }

  /** Calls with the end that reaches a peer, at once if it is open. */
  #withEnd(peer: string, then: (end: LocalEnd) => void, failed: (error: Error) => void): void {
    let end: LocalEnd | Promise<LocalEnd>;
    try {
      end = (this.#ends as LocalEnds).towards(peer);
    } catch (error) {
      failed(error as Error);
      return;
    }
    if (end instanceof Promise) end.then(then, failed);
    else then(end);
  }

  /** Sends a message to a peer whose queue pair is not known. */
  #sendByUdp(end: LocalEnd, to: End, message: Uint8Array, done: Done): void {
    if (this.#state === 'closed') nextTick(done, undefined);
    else if (!isTooLong(end, to, message, done))
      this.#introduce(to, encodeIntroduction(end.address, { qpNum: end.port.qp.qpNum, message }), done);
  }

  #introduce({ port, address }: End, bytes: Buffer, then: Done): void {
    // messages may share a callback
    const done: Done = (error) => then(error);
    this.#introducing.add(done);
    this.#udp.send(bytes, port, address, (error) => {
      if (this.#introducing.delete(done)) done(error ?? undefined);
    });
  }

  #onIntroduction(bytes: Buffer, from: RemoteInfo): void {
    // a sender with port 0 takes no answer (RFC 768)
    if (this.#ends === undefined || from.port === 0) return;
    const introduction = decodeIntroduction(bytes, this.#version);
    if (introduction === undefined) return;
    const { qpNum, message } = introduction;
    this.#withEnd(
      from.address,
      (end) => this.#meet(end, from, qpNum, message !== undefined),
      (error) => this.#warn(from.address, error),
    );
    if (message !== undefined) this.#deliver(from, message);
  }

  /** @param isAnswered whether the peer has to know our queue pair, too */
  #meet(end: LocalEnd, { address, port }: End, qpNum: number, isAnswered: boolean): void {
    if (this.#state === 'closed') return;
    this.#peers.introduced(end, gidAddress(address), port, qpNum);
    if (!isAnswered) return;
    const answer = encodeIntroduction(end.address, { qpNum: end.port.qp.qpNum, message: undefined });
    this.#introduce({ address, port }, answer, () => {});
  }

  #onMessage({ device }: LocalEnd, from: string, bytes: Buffer): void {
    const header = decodeHeader(bytes, this.#version);
    if (header === undefined || this.#ends === undefined) return;
    const address = gidAddress(from);
    this.#peers.heard(address, header.port);
    // As node:dgram has it: an answer by UDP needs the interface.
    this.#deliver({ address: withZone(address, device.link.interface), port: header.port }, header.message);
  }

  /** A peer's messages go on coming by UDP, which costs more, and it gets ours so. */
  #warn(peer: string, error: Error): void {
    if (this.#state !== 'bound' || this.#isWarned) return;
    this.#isWarned = true;
    emitWarning('WASM_ROCE_INTERFACE', `a datagram socket has no queue pair for ${peer}: ${error.message}`);
  }

  /** In a tick of its own, as a listener may throw. */
  #deliver({ address, port }: End, bytes: Uint8Array): void {
    const message = Buffer.from(bytes);
    nextTick(() => {
      if (this.#state !== 'bound' || !this.#hears(address, port)) return;
      this.emit('message', message, { address, port, family: this.#family, size: message.length });
    });
  }

  /** Whether the socket takes messages of an end: one with a peer takes those of the peer alone. */
  #hears(address: string, port: number): boolean {
    const remote = this.#remote;
    return remote === undefined || (remote.port === port && gidAddress(remote.address) === gidAddress(address));
  }

  #fail(error: Error): void {
    if (this.#state === 'bound') callProgram(() => this.emit('error', error), false);
  }

  async #free(): Promise<void> {
    await this.#opening;
    await new Promise<void>((resolve) => this.#udp.close(() => resolve()));
    // a UDP socket that is closed forgets them
    for (const done of this.#introducing) nextTick(done, undefined);
    this.#introducing.clear();
    const ends = this.#ends;
    this.#ends = undefined;
    await ends?.close();
  }
}

/** Tells that a message is longer than the path to a peer allows. @returns whether it is */
function isTooLong({ messageBytes }: LocalEnd, to: End, { length }: Uint8Array, done: Done): boolean {
  if (length <= messageBytes) return false;
  const text = `the message has ${length} bytes, at most ${messageBytes} are allowed by the path MTU`;
  nextTick(done, new VerbsError('EMSGSIZE', text, { syscall: 'send', ...to }));
  return true;
}

/** @throws as `udp.bind` reports */
function bindUdp(udp: UdpSocket, port: number, address: string | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    udp.once('error', reject);
    udp.bind({ port, ...(address !== undefined && { address }) }, () => {
      udp.off('error', reject);
      resolve();
    });
  });
}
