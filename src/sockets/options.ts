/** Options of sockets and of their connections, and the checks of them. */
import { isIP, isIPv6, type LookupFunction } from 'node:net';
import {
  anything,
  bytes,
  type Check,
  type Checks,
  callable,
  checkBoolean,
  checkOptions,
  hostName,
  integer,
  nested,
  oneOf,
  wrongNumber,
  wrongType,
} from '../base/options.js';
import { MAX_TIMER_MS, WAIT_CHECKS } from '../base/waiting.js';
import { openedDevice } from '../deviceuse.js';
import type { Device } from '../index.js';
import { isOfHttp } from './callarguments.js';
import { badAddress, checkPort, missingPort } from './errors.js';
import type { BufferSize, BufferSizes, Protocol } from './protocol.js';

/** Options of a new socket. */
export interface SocketOptions {
  /** Device of the connection. Default: one on the route to the peer, which the sockets of the process share. */
  readonly device?: Device;
  /** Whether the socket stays writable when the peer has ended. Default false. */
  readonly allowHalfOpen?: boolean;
  /** Bytes of the memory that the peer writes to. The protocol has limits, and a default that may grow with use. */
  readonly receiveBytes?: number;
  /** Bytes that may be written and not acknowledged yet. The protocol has limits, and a default. */
  readonly sendBytes?: number;
  /** Destroys the socket when it is aborted. */
  readonly signal?: AbortSignal;
  /** Bytes of each of the two buffers of the stream. Default: that of Node.js. */
  readonly highWaterMark?: number;
  /** Reads into memory of the program, instead of the events `data`, as of `net.Socket`. */
  readonly onread?: OnRead;
  /** Has no effect: data is always sent at once. */
  readonly noDelay?: boolean;
  /** Whether a silent peer is asked for a sign. Default true. */
  readonly keepAlive?: boolean;
  /** Time in ms that a peer may be silent until it is asked. Default 15000. */
  readonly keepAliveInitialDelay?: number;
  /**
   * Time in ms without a packet of a peer that was asked, or that has something to acknowledge; the socket ends with
   * ETIMEDOUT then. 0: never. Default 75000.
   */
  readonly peerTimeout?: number;
}

/** The option `onread` of a socket. */
export interface OnRead {
  /** Memory for the bytes, or a function that returns it before each read. */
  readonly buffer: Uint8Array | (() => Uint8Array);
  /**
   * Called with the number of bytes that were read, and with the memory that has them.
   * @returns false: the socket reads no more until `resume`
   */
  callback(bytes: number, buffer: Uint8Array): boolean;
}

/** Options of `connect`. */
export interface SocketConnectOptions {
  /** Port of the peer, 1 to 65535, in the port space of rdma_cm. A text with the number is a port, too. */
  readonly port: number;
  /** Name or address of the peer. Default `localhost`. */
  readonly host?: string;
  /** Local address. Default: that of the route. */
  readonly localAddress?: string;
  /** Local port. Default: any. */
  readonly localPort?: number;
  /** IP version, 4 or 6; 0 for any. Default 0. */
  readonly family?: number;
  /** Flags of `dns.lookup`. Default 0. */
  readonly hints?: number;
  /** Has no effect: data is always sent at once. */
  readonly noDelay?: boolean;
  /** Whether a silent peer is asked for a sign. Default true. */
  readonly keepAlive?: boolean;
  /** Time in ms that a peer may be silent until it is asked. Default 15000. */
  readonly keepAliveInitialDelay?: number;
  /** Resolves the host. Default `dns.lookup`. */
  readonly lookup?: LookupFunction;
  /** Whether all addresses of the host are tried, one after the other. Default: as `net.Socket`, which is true. */
  readonly autoSelectFamily?: boolean;
  /** Time in ms for an address before the next one is tried, at least 10. Default: as `net.Socket`. */
  readonly autoSelectFamilyAttemptTimeout?: number;
}

const delay: Check = (name, value) => {
  if (typeof value !== 'number') throw wrongType(name, value, 'a number');
};

/** Checks of what both a socket and `connect` take. */
const SHARED_CHECKS = { noDelay: checkBoolean, keepAlive: checkBoolean, keepAliveInitialDelay: delay };

/** Checks of the options of a socket; `bufferSizes` checks those of the buffers. */
export const SOCKET_CHECKS: Checks<SocketOptions> = {
  ...SHARED_CHECKS,
  device: openedDevice,
  allowHalfOpen: checkBoolean,
  receiveBytes: anything,
  sendBytes: anything,
  signal: WAIT_CHECKS.signal,
  highWaterMark: integer(0, 2 ** 30),
  peerTimeout: integer(0, MAX_TIMER_MS),
  onread: nested({
    buffer: (name, value) => {
      if (typeof value !== 'function') bytes(name, value);
    },
    callback: callable,
  }),
};

const CONNECT_CHECKS: Checks<SocketConnectOptions> = {
  ...SHARED_CHECKS,
  port: (name, value) => {
    if (typeof value !== 'number' && typeof value !== 'string') throw wrongType(name, value, 'a number or a text');
    checkPort(value, 1, name);
  },
  host: hostName,
  localAddress: (name, value) => {
    if (isIP(String(value)) === 0) throw badAddress(name, value);
  },
  localPort: (name, value) => checkPort(value, 0, name),
  family: oneOf(0, 4, 6, 'IPv4', 'IPv6'),
  hints: integer(0, 2 ** 31 - 1),
  lookup: callable,
  autoSelectFamily: checkBoolean,
  autoSelectFamilyAttemptTimeout: integer(1, 2 ** 31 - 1),
};

/** Result of `socket.address` and `server.address`. */
export interface SocketAddress {
  /** IP address. */
  readonly address: string;
  /** Port, in the port space of rdma_cm. */
  readonly port: number;
  /** Kind of the address. */
  readonly family: 'IPv4' | 'IPv6';
}

/** Returns the sizes of the buffers that options ask for. @throws RangeError */
export function bufferSizes({ bufferBytes }: Protocol, options: SocketOptions): BufferSizes {
  const { usual, min, max, unit } = bufferBytes;
  const size = (name: 'receiveBytes' | 'sendBytes'): BufferSize => {
    const value = options[name];
    if (value === undefined) return usual;
    if (!Number.isInteger(value) || value < min || value > max || value % unit !== 0)
      throw wrongNumber(name, value, `a multiple of ${unit} from ${min} to ${max}`);
    return { bytes: value, maxBytes: value };
  };
  return { receive: size('receiveBytes'), send: size('sendBytes') };
}

/** Returns the options of a call of `connect`, checked. @throws TypeError, RangeError */
export function connectOptions(options: object): SocketConnectOptions {
  const checked = checkOptions('connect', options as SocketConnectOptions, CONNECT_CHECKS);
  if (checked.port === undefined) throw missingPort();
  return { ...checked, port: Number(checked.port) };
}

/**
 * Divides the options of `net.connect` into those of the socket, by its checks, and those of `connect`, of which those
 * of a request of `node:http` that are none are left out.
 */
export function divideOptions<Options extends SocketOptions>(
  options: object,
  checks: Checks<Options>,
): { readonly socket: Options; readonly connect: object } {
  const isOfSocket = (name: string) => Object.hasOwn(checks, name) && !Object.hasOwn(SHARED_CHECKS, name);
  const isOfConnect = isOfHttp(options)
    ? (name: string) => Object.hasOwn(CONNECT_CHECKS, name)
    : (name: string) => !isOfSocket(name);
  return { socket: pickOptions(options, isOfSocket) as Options, connect: pickOptions(options, isOfConnect) };
}

/** Returns the options with some names. */
export function pickOptions(options: object, isWanted: (name: string) => boolean): object {
  return Object.fromEntries(Object.entries(options).filter(([name]) => isWanted(name)));
}

/** Returns the kind of an IP address. */
export function familyOf(address: string | undefined): 'IPv4' | 'IPv6' | undefined {
  if (address === undefined) return undefined;
  return isIPv6(address) ? 'IPv6' : 'IPv4';
}
