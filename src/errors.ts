/**
 * Code of a refused call, named as in Linux' errno(3):
 * - `EINVAL`: the object is closed, or its state or the combination of values does not allow the call.
 * - `ENOMEM`: the card's memory, a table or a queue is full.
 * - `EBUSY`: the object is still in use; the message names its users.
 * - `ENOSPC`: as many programs as possible use the address.
 * - `ENOENT`: the object to remove does not exist.
 * - `EMSGSIZE`: the message is longer than allowed.
 * - `EOPNOTSUPP`: the link, the host or the queue pair type does not support the operation.
 * - `EPERM`: the process lacks a privilege.
 * - `ENODEV`: there is no such network interface, or none that can be used.
 * - `EADDRNOTAVAIL`: no local address can be used.
 * - `EADDRINUSE`: the port or address is in use.
 * - `EHOSTUNREACH`: no route to the peer, or its address could not be resolved.
 * - `ECANCELED`: the object was closed while the call waited.
 * - `ECONNREFUSED`: the peer rejected the connection.
 * - `ECONNRESET`: the connection has ended.
 * - `EPIPE`: the peer reads no more.
 * - `ETIMEDOUT`: the time is up.
 * - `EIO`: the device, a queue or the peer failed.
 */
export type ErrorCode =
  | 'EINVAL'
  | 'ENOMEM'
  | 'EBUSY'
  | 'ENOSPC'
  | 'ENOENT'
  | 'EMSGSIZE'
  | 'EOPNOTSUPP'
  | 'EPERM'
  | 'ENODEV'
  | 'EADDRNOTAVAIL'
  | 'EADDRINUSE'
  | 'EHOSTUNREACH'
  | 'ECANCELED'
  | 'ECONNREFUSED'
  | 'ECONNRESET'
  | 'EPIPE'
  | 'ETIMEDOUT'
  | 'EIO';

/** ICMP errors that say that packets do not reach a peer, as the kernel names them for sockets (icmp(7), RFC 4443). */
export type IcmpErrorCode = 'ECONNREFUSED' | 'EHOSTUNREACH' | 'ENETUNREACH' | 'EACCES';

/** Details of a failed call, as in errors of Node.js. */
export interface CallDetails {
  /** Name of the call, e.g. `connect`. */
  readonly syscall?: string;
  /** IP address or host name that the call was about. */
  readonly address?: string;
  /** Port that the call was about. */
  readonly port?: number;
}

/**
 * Thrown when the device refuses a call. Wrong arguments throw TypeError or RangeError instead, with the codes of
 * Node.js: `ERR_INVALID_ARG_TYPE`, `ERR_INVALID_ARG_VALUE`, `ERR_OUT_OF_RANGE`.
 *
 * @example
 * ```ts
 * try {
 *   qp.postSend({ opcode: 'SEND', sgList: mr.sge(0, 64) });
 * } catch (error) {
 *   if (!(error instanceof VerbsError && error.code === 'ENOMEM')) throw error;
 *   // The send queue is full: poll completions, then post again.
 * }
 * ```
 */
export class VerbsError extends Error {
  /** Always `VerbsError`. */
  override readonly name = 'VerbsError';
  /** Index of the refused request in a list of work requests; the requests before it were posted (ibv_post_send). */
  declare badWr?: number;
  /** Name of the failed call, e.g. `connect`; absent where no single call failed. */
  declare syscall?: string;
  /** IP address or host name that the call was about; absent where there is none. */
  declare address?: string;
  /** Port that the call was about; absent where there is none. */
  declare port?: number;
  /**
   * @param code errno name
   * @param message names the value and the rule; the code is put in front of it
   */
  constructor(
    readonly code: ErrorCode,
    message: string,
    { cause, ...details }: ErrorOptions & CallDetails = {},
  ) {
    super(`${code}: ${message}`, cause === undefined ? undefined : { cause });
    Object.assign(this, details);
  }
}

/** Returns the message of an error without the code in front of it. */
export function textOf({ code, message }: VerbsError): string {
  return message.slice(`${code}: `.length);
}

/** Calls of an id that are steps of others (`connect`, `listen`, `bind`, `send`), whose names replace theirs. */
const STEPS: readonly (string | undefined)[] = ['bindAddr', 'resolveAddr'];

/** Adds to a VerbsError what the failed call was about, unless it says so already. @returns the error */
export function withDetails(error: unknown, details: CallDetails): unknown {
  if (!(error instanceof VerbsError)) return error;
  return Object.assign(error, STEPS.includes(error.syscall) ? details : { ...details, ...error });
}

/** Returns the error of an argument of the wrong type. */
export function invalidType(message: string): TypeError {
  return argumentError(new TypeError(message), 'ERR_INVALID_ARG_TYPE', invalidType);
}

/** Returns the error of an argument of the right type, but with a value that is not allowed. */
export function invalidValue(message: string): TypeError {
  return argumentError(new TypeError(message), 'ERR_INVALID_ARG_VALUE', invalidValue);
}

/** Returns the error of a number or length outside its range. */
export function outOfRange(message: string, options?: ErrorOptions): RangeError {
  return argumentError(new RangeError(message, options), 'ERR_OUT_OF_RANGE', outOfRange);
}

/** @param maker left out of the stack trace */
function argumentError<Kind extends Error>(error: Kind, code: string, maker: (message: string) => Kind): Kind {
  Error.captureStackTrace(error, maker);
  return Object.assign(error, { code });
}
