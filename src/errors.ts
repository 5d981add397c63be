/** Why a call of the verbs was refused; the names of Linux' errno. */
export type ErrorCode =
  | 'EINVAL'
  | 'ENOMEM'
  | 'EBUSY'
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
  | 'ETIMEDOUT'
  | 'EIO';

/** A call that the device refuses. Wrong arguments throw TypeError or RangeError instead. */
export class VerbsError extends Error {
  override readonly name = 'VerbsError';
  /** Of a refused list of work requests: index of the first that was not posted; those before it were. */
  declare badWr?: number;
  /** @param code errno name @param message names the value and the rule */
  constructor(
    readonly code: ErrorCode,
    message: string,
    options?: ErrorOptions,
  ) {
    super(`${code}: ${message}`, options);
  }
}
