/** Errors of a communicator. */
import type { ErrorCode } from '../../index.js';

/** Code of a RankError: one of the verbs, or EPROTO for a rank that does not make the same calls as the others. */
export type RankErrorCode = ErrorCode | 'EPROTO';

/** The error of all ranks' calls when one rank fails or breaks the rules: it names that rank. */
export class RankError extends Error {
  /** Always `RankError`. */
  override readonly name = 'RankError';

  /** @param text description of the failure */
  constructor(
    /** The rank that has ended the communicator. */
    readonly rank: number,
    /** `ETIMEDOUT`: it does not answer. `ECONNRESET`: it has left or failed. `EPROTO`: it makes other calls. */
    readonly code: RankErrorCode,
    text: string,
    options: ErrorOptions = {},
  ) {
    super(`${code}: ${text}`, options);
  }
}
