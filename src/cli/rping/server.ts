/** The server of rping: serves one client until it leaves. */
import type { Connection, ConnectionRequest, RemoteMemory } from '../../index.js';
import { failure } from '../exit.js';
import {
  connectionOptions,
  decodeRdmaInfo,
  encodeRdmaInfo,
  MAX_PING_BYTES,
  pingBytes,
  sendMessage,
  textOf,
} from './protocol.js';

export interface ServeOptions {
  /** The largest ping accepted, bytes. Default: `MAX_PING_BYTES`. */
  readonly size?: number;
  /** Time that the client may be silent, milliseconds; 0 = no limit. Default: 0. */
  readonly idleMs?: number;
  /** Verify that the pings hold the bytes that the stock client sends. Default: false. */
  readonly validate?: boolean;
  /** Disconnects the client. */
  readonly signal?: AbortSignal;
  /** Called with the bytes of each ping, up to the first NUL. */
  onPing?(text: string): void;
}

export interface ServeResult {
  readonly pings: number;
  /** Bytes of all pings, in one direction. */
  readonly bytes: number;
  /** With `validate`: pings that held other bytes than expected. */
  readonly invalid: number;
  /** From the client's first message until it leaves. */
  readonly seconds: number;
}

/** The content of the server's messages, which mean only that it has finished. */
const NO_MEMORY: RemoteMemory = { addr: 0, rkey: 0, length: 0 };

/**
 * Accepts a client and answers its pings until it leaves or the signal is aborted.
 * @throws CliError when the client sends something else or is silent; as `request.accept` and `connection.read`
 */
export async function servePings(request: ConnectionRequest, options: ServeOptions = {}): Promise<ServeResult> {
  await using connection = await request.accept(connectionOptions(options.size ?? MAX_PING_BYTES));
  return await answerPings(connection, options);
}

/** Answers pings as `servePings` does, on a connection made with `connectionOptions`. Leaves it open. */
export async function answerPings(connection: Connection, options: ServeOptions = {}): Promise<ServeResult> {
  const { size = MAX_PING_BYTES, validate = false, signal, onPing } = options;
  const next = () => nextRdmaInfo(connection, size, options);
  const done = encodeRdmaInfo(NO_MEMORY);
  let [pings, bytes, invalid] = [0, 0, 0];
  let begin = performance.now();
  for (;;) {
    const source = await next();
    if (source === undefined) break;
    if (pings === 0) begin = performance.now();
    const data = await connection.read(source);
    const text = textOf(data);
    onPing?.(text);
    if (validate && !data.equals(pingBytes(pings, data.length))) invalid++;
    sendMessage(connection, done);
    const sink = await next();
    if (sink === undefined && signal?.aborted) break;
    if (sink === undefined) throw failure(`the client left in the middle of ping ${pings}`, { code: 'ECONNRESET' });
    // as the stock program does: up to the first NUL, and no more than fits
    await connection.write(sink, data.subarray(0, Math.min(text.length + 1, sink.length)));
    sendMessage(connection, done);
    pings++;
    bytes += data.length;
  }
  return { pings, bytes, invalid, seconds: (performance.now() - begin) / 1000 };
}

/** Returns the client's next message; undefined when it has left or the signal is aborted. */
async function nextRdmaInfo(
  connection: Connection,
  size: number,
  { idleMs = 0, signal }: ServeOptions,
): Promise<RemoteMemory | undefined> {
  const wait = { ...(signal && { signal }), ...(idleMs > 0 && { timeout: idleMs }) };
  const message = await connection.receive(wait).catch((error) => {
    if (signal?.aborted) return undefined;
    throw error;
  });
  if (message === undefined) return undefined;
  const where = decodeRdmaInfo(message.data);
  if (where.length > size)
    throw failure(`a ping of the client has ${where.length} bytes, at most ${size} are accepted (--size)`, {
      code: 'EMSGSIZE',
    });
  return where;
}
