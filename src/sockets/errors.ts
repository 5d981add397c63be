/** Errors of sockets, with the codes that programs know from `node:net`. */
import { VerbsError, WcError } from '../index.js';

/** The peer has ended the connection without saying that it has written all. */
export const reset = (): VerbsError =>
  new VerbsError('ECONNRESET', 'the peer ended the connection', { syscall: 'read' });

/** A write after the peer has said that it reads no more. */
export const brokenPipe = (): VerbsError => new VerbsError('EPIPE', 'the peer reads no more', { syscall: 'write' });

/** Returns the error of a socket whose queue pair has failed. */
export function failureOf(cause: Error): Error {
  if (!(cause instanceof WcError)) return cause;
  const isSilent = cause.status === 'RETRY_EXC_ERR' || cause.status === 'RNR_RETRY_EXC_ERR';
  return new VerbsError(isSilent ? 'ETIMEDOUT' : 'ECONNRESET', cause.message, { cause, syscall: 'write' });
}

/** Adds to an error of `connect` what it was about. */
export function connectError(error: Error, address: string, port: number): Error {
  return Object.assign(error, { syscall: 'connect', address, port });
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

/** Returns a port. @param least 0 or 1 @throws RangeError */
export function checkPort(port: unknown, least: number): number {
  const isGiven = typeof port === 'number' || (typeof port === 'string' && port.trim() !== '');
  const value = isGiven ? Number(port) : Number.NaN;
  if (Number.isInteger(value) && value >= least && value <= 65535) return value;
  throw coded(
    new RangeError(`port is ${String(port)}, must be an integer from ${least} to 65535`),
    'ERR_SOCKET_BAD_PORT',
  );
}
