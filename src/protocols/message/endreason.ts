/** The reason for the end of a connection. */
import { VerbsError } from '../../errors.js';

/** The error is made when it is asked for: it has a stack, and most connections end without a request that fails. */
export class EndReason {
  #error: VerbsError | undefined;

  /** @param cause the error that has ended the connection; undefined when one of the two ends has closed it */
  constructor(readonly cause: Error | undefined) {}

  /** The error of requests since then, ECONNRESET: always the same. */
  get error(): VerbsError {
    const { cause } = this;
    const why = cause ? `: ${cause.message}` : '';
    this.#error ??= new VerbsError('ECONNRESET', `the connection is closed${why}`, { cause });
    return this.#error;
  }
}
