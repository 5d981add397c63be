/** Errors of calls as Connect knows them. */
import { Code, ConnectError } from '@connectrpc/connect';
import { RpcError } from '../rpc/status.js';

/** Returns an error as Connect's: an RpcError with its code. */
export function connectErrorOf(error: unknown): ConnectError {
  if (!(error instanceof RpcError)) return ConnectError.from(error);
  // Connect writes DEADLINE_EXCEEDED as DeadlineExceeded
  const name = error.code.toLowerCase().replace(/(?:^|_)(\w)/g, (_, first: string) => first.toUpperCase());
  const code = (Code as unknown as Partial<Record<string, Code>>)[name === 'Cancelled' ? 'Canceled' : name];
  return new ConnectError(error.details, code ?? Code.Unknown, undefined, undefined, error);
}

/** Yields a body. Its errors become Connect's. @param onEnd called when the reader takes no more of it */
export async function* withConnectErrors(
  body: AsyncIterable<Uint8Array>,
  onEnd?: () => void,
): AsyncGenerator<Uint8Array, void, void> {
  try {
    yield* body;
  } catch (error) {
    throw connectErrorOf(error);
  } finally {
    onEnd?.();
  }
}
