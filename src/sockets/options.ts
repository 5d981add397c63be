/** Options of sockets and of their connections, and the checks of them. */
import type { lookup } from 'node:dns';
import { isIPv6 } from 'node:net';
import { wrongNumber, wrongType } from '../base/options.js';
import type { Device } from '../index.js';
import type { BufferSize } from '../transport/pools/growablebuffer.js';
import { checkPort, missingPort } from './errors.js';
import type { BufferSizes, Protocol } from './protocol.js';

/** Options of a new socket. */
export interface SocketOptions {
  /** Device of the connection. Default: one on the route to the peer, which the sockets of the process share. */
  readonly device?: Device;
  /** Whether the socket stays writable when the peer has ended. Default false. */
  readonly allowHalfOpen?: boolean;
  /** Bytes of the memory that the peer writes to. The protocol has limits, and a default that may grow. */
  readonly receiveBytes?: number;
  /** Bytes that are written and not acknowledged yet. The protocol has limits, and a default that may grow. */
  readonly sendBytes?: number;
  /** Destroys the socket when it is aborted. */
  readonly signal?: AbortSignal;
}

/** Options of `connect`. */
export interface SocketConnectOptions {
  /** Port of the peer, 1 to 65535, in the port space of rdma_cm. */
  readonly port: number;
  /** Name or address of the peer. Default `localhost`. */
  readonly host?: string;
  /** Local address. Default: that of the route. */
  readonly localAddress?: string;
  /** Local port. Default: any. */
  readonly localPort?: number;
  /** IP version, 4 or 6; 0 for any. Default 0. */
  readonly family?: number;
  /** Whether keep-alives are sent. Default false. */
  readonly keepAlive?: boolean;
  /** Time between keep-alives in ms. Default 0: two hours, as in Linux. */
  readonly keepAliveInitialDelay?: number;
  /** Resolves the host. Default `dns.lookup`. */
  readonly lookup?: typeof lookup;
}

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

/** Returns the options of a call of `connect`. @throws TypeError, RangeError */
export function connectOptions(to: SocketConnectOptions | number, host: unknown): SocketConnectOptions {
  const options = typeof to === 'number' ? { port: to, ...(typeof host === 'string' && { host }) } : to;
  if (typeof options !== 'object' || options === null) throw wrongType('the options', options, 'an object');
  if (options.port === undefined) throw missingPort();
  return { ...options, port: checkPort(options.port, 1) };
}

/** Returns the kind of an IP address. */
export function familyOf(address: string | undefined): 'IPv4' | 'IPv6' | undefined {
  if (address === undefined) return undefined;
  return isIPv6(address) ? 'IPv6' : 'IPv4';
}
