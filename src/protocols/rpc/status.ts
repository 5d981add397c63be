/** Errors of calls, with the status codes of gRPC. */

/** The reasons for the failure of a call. */
export type RpcStatus =
  | 'CANCELLED'
  | 'DEADLINE_EXCEEDED'
  | 'INTERNAL'
  | 'RESOURCE_EXHAUSTED'
  | 'UNAVAILABLE'
  | 'UNIMPLEMENTED'
  // a handler may throw others
  | (string & {});

/** A call that has failed. A handler throws one to choose the code that the client gets. */
export class RpcError extends Error {
  /** Always `RpcError`. */
  override readonly name = 'RpcError';

  constructor(
    /**
     * `CANCELLED`: the caller has ended the call. `DEADLINE_EXCEEDED`: its time is over. `RESOURCE_EXHAUSTED`: a
     * message is too long, or the peer has too many calls. `UNAVAILABLE`: the connection has ended. `UNIMPLEMENTED`:
     * there is no such method. `INTERNAL`: the handler has failed. Handlers may use other codes.
     */
    readonly code: RpcStatus,
    /** The message without the code. */
    readonly details: string,
    options: ErrorOptions = {},
  ) {
    super(`${code}: ${details}`, options);
  }
}

/** Returns the error that the client gets when a handler throws. */
export function statusOf(error: unknown): RpcError {
  if (error instanceof RpcError) return error;
  return new RpcError('INTERNAL', error instanceof Error ? error.message : String(error));
}
