/** Errors of sockets, with the codes and texts that programs know from `node:net`. */
import { constants } from 'node:os';
import { show } from '../base/options.js';
import { withDetails } from '../errors.js';
import { CmError, VerbsError, WcError } from '../index.js';
import { NetlinkError } from '../link/netlink.js';

/** An error of a call to the kernel, as Node.js makes it. */
export interface SystemError extends Error {
  /** Name of the error number. */
  readonly code: string;
  /** The error number, negative. */
  readonly errno: number;
  /** Name of the call. */
  readonly syscall: string;
  /** Address that the call was about. */
  readonly address?: string;
  /** Port that the call was about. */
  readonly port?: number;
}

interface Details {
  readonly cause?: unknown;
  readonly address?: string;
  readonly port?: number;
  /** The text of uv_strerror, where Node.js has it. */
  readonly text?: string | undefined;
  /** A text where Node.js has none. */
  readonly detail?: string;
}

function systemError(syscall: string, code: string, details: Details = {}): SystemError {
  const { cause, text, detail, address, port } = details;
  const at = address === undefined ? '' : ` ${address}${port === undefined ? '' : `:${port}`}`;
  const [before, after] = [text === undefined ? '' : `: ${text}`, detail === undefined ? '' : ` - ${detail}`];
  const errno = -((constants.errno as Readonly<Record<string, number>>)[code] ?? 0);
  return Object.assign(
    new Error(`${syscall} ${code}${before}${at}${after}`, cause === undefined ? undefined : { cause }),
    {
      errno,
      code,
      syscall,
      ...(address !== undefined && { address }),
      ...(port !== undefined && { port }),
    },
  );
}

/** The peer has ended the connection without saying that it has written all. */
export const reset = (): SystemError => systemError('read', 'ECONNRESET');

/** The option `onread` gives no memory for the bytes that have come. */
export const noReadBuffer = (): SystemError => systemError('read', 'ENOBUFS');

/** A write after the peer has said that it reads no more. */
export const brokenPipe = (): SystemError => systemError('write', 'EPIPE');

/** A write after the end of the peer has ended this end too: the text of Node.js. */
export const endedByPeer = (): Error => coded(new Error('This socket has been ended by the other party'), 'EPIPE');

/** Returns the error of a socket whose queue pair has failed. */
export function failureOf(cause: Error): Error {
  if (!(cause instanceof WcError)) return cause;
  const isSilent = cause.status === 'RETRY_EXC_ERR' || cause.status === 'RNR_RETRY_EXC_ERR';
  return systemError('read', isSilent ? 'ETIMEDOUT' : 'ECONNRESET', { cause });
}

const reasonOf = ({ code, message }: VerbsError) => message.replace(`${code}: `, '');

/** Codes of `connect` whose meaning is that of TCP. */
const PLAIN = ['ETIMEDOUT', 'EHOSTUNREACH', 'ENETUNREACH', 'ECONNRESET'];

/** Returns the error of `connect` for its cause. */
export function connectError(cause: Error, address: string, port: number): Error {
  if (!(cause instanceof VerbsError)) return cause;
  const isPlain = PLAIN.includes(cause.code) || (cause instanceof CmError && cause.reason === 'INVALID_SERVICE_ID');
  const reason = reasonOf(cause);
  const hint =
    cause.code === 'ENOMEM' ? `${reason} (memoryBytes of openDevice, or of net.configure, is the size of all)` : reason;
  const detail = isPlain ? {} : { detail: hint };
  return systemError('connect', cause.code, { cause, address, port, ...detail });
}

/** Returns the error of a message for its cause. */
export function sendError(cause: Error, address: string, port: number): Error {
  if (!(cause instanceof VerbsError)) return cause;
  const { cause: first } = cause;
  // of the route: as the system tells it
  if (first instanceof NetlinkError) return systemError('send', first.code, { cause, address, port });
  const detail = reasonOf(cause);
  return systemError('send', cause.code, { cause, address, port, detail });
}

/** Texts of Node.js for the errors of `listen` (uv_strerror). */
const LISTEN_TEXTS: Readonly<Record<string, string>> = {
  EADDRINUSE: 'address already in use',
  EADDRNOTAVAIL: 'address not available',
};

/** Returns the error of `listen` for its cause. @param host undefined: all addresses */
export function listenError(cause: Error, host: string | undefined, port: number): Error {
  if (!(cause instanceof VerbsError && cause.code in LISTEN_TEXTS))
    return withDetails(cause, { syscall: 'listen' }) as Error;
  const text = LISTEN_TEXTS[cause.code];
  // of another program, which Node.js does not know of
  const detail = cause.syscall === 'openDevice' ? { detail: reasonOf(cause) } : {};
  const at = { address: host ?? '::', ...(port !== 0 && { port }) };
  return systemError('listen', cause.code, { cause, text, ...at, ...detail });
}

/** An error of a call, with a code of Node.js. */
function coded<E extends Error>(error: E, code: string): E & { readonly code: string } {
  return Object.assign(error, { code });
}

/** `connect` without a port. */
export const missingPort = (): TypeError => coded(new TypeError('the option port is missing'), 'ERR_MISSING_ARGS');

/** `listen` of a server that listens. */
export const alreadyListens = (): Error => coded(new Error('the server listens already'), 'ERR_SERVER_ALREADY_LISTEN');

/** A call of a datagram socket that is closed. */
export const socketClosed = (): Error => coded(new Error('the socket is closed'), 'ERR_SOCKET_DGRAM_NOT_RUNNING');

/** `bind` of a datagram socket that is bound. */
export const alreadyBound = (): Error => coded(new Error('the socket is bound already'), 'ERR_SOCKET_ALREADY_BOUND');

/** A call of a datagram socket with a peer that only one without has. */
export const hasPeer = (): Error => coded(new Error('the socket is connected'), 'ERR_SOCKET_DGRAM_IS_CONNECTED');

/** A call of a datagram socket without a peer that only one with a peer has. */
export const hasNoPeer = (): Error => coded(new Error('the socket is not connected'), 'ERR_SOCKET_DGRAM_NOT_CONNECTED');

/** A datagram socket of no known type. */
export const badType = (type: unknown): TypeError =>
  coded(new TypeError(`type is ${String(type)}, must be udp4 or udp6`), 'ERR_SOCKET_BAD_TYPE');

/** `close` of a server that does not listen. */
export const notRunning = (): Error => coded(new Error('the server is not running'), 'ERR_SERVER_NOT_RUNNING');

/** A local address that is no address. */
export const badAddress = (name: string, value: unknown): TypeError =>
  coded(new TypeError(`${name} is ${show(value)}, must be an IP address`), 'ERR_INVALID_IP_ADDRESS');

/** A lookup that has found something else than an address. */
export const badLookup = (host: string, found: unknown): TypeError =>
  coded(
    new TypeError(`the lookup of '${host}' returned ${show(found)}, must return IP addresses`),
    'ERR_INVALID_IP_ADDRESS',
  );

/** All addresses of a host have failed, as Node.js tells it. */
export function noneConnected(errors: readonly Error[]): Error {
  const [first] = errors as readonly (Error & { readonly code?: string })[];
  return errors.length === 1 ? (first as Error) : coded(new AggregateError(errors), first?.code ?? '');
}

/** The time for an attempt is up, and another address is tried. */
export const attemptTimedOut = (address: string, port: number): SystemError =>
  systemError('connect', 'ETIMEDOUT', { address, port });

/** Whether the memory of the device is exhausted, or one of its tables. */
export const isNoMemory = (error: unknown): boolean => error instanceof VerbsError && error.code === 'ENOMEM';

/** A write that was begun before the connection, which was closed before it was established: the text of Node.js. */
export const neverConnected = (): Error =>
  coded(new Error('Socket closed before the connection was established'), 'ERR_SOCKET_CLOSED_BEFORE_CONNECTION');

/** Returns a port. @param least 0 or 1 @throws RangeError */
export function checkPort(port: unknown, least: number, name = 'port'): number {
  const isGiven = typeof port === 'number' || (typeof port === 'string' && port.trim() !== '');
  const value = isGiven ? Number(port) : Number.NaN;
  if (Number.isInteger(value) && value >= least && value <= 65535) return value;
  throw coded(
    new RangeError(`${name} is ${String(port)}, must be an integer from ${least} to 65535`),
    'ERR_SOCKET_BAD_PORT',
  );
}
