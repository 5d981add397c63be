/** The server's end of rping: serves one client, until that leaves. */
import type { Connection, ConnectionRequest, RemoteMemory } from '../../index.js';
import { failure } from '../exit.js';
import { connectionOptions, decodeWhere, encodeWhere, LARGEST, pingBytes, say, textOf } from './words.js';

export interface ServeOptions {
  /** Bytes of the largest ping that is taken. Default `LARGEST`. */
  readonly size?: number;
  /** So long may the client be silent, milliseconds; 0 = for ever. Default 0. */
  readonly idleMs?: number;
  /** Pings must be of the bytes that rping's client sends. Default false. */
  readonly validate?: boolean;
  /** Ends the serving: says goodbye to the client. */
  readonly signal?: AbortSignal;
  /** Is told each ping: what the client sent, to its first NUL. */
  onPing?(text: string): void;
}

export interface Served {
  readonly pings: number;
  /** Of all pings, one way. */
  readonly bytes: number;
  /** Pings with other bytes than were to come, with `validate`. */
  readonly invalid: number;
  /** From the first word of the client to its goodbye. */
  readonly seconds: number;
}

/** What the server's messages tell. */
const NOWHERE: RemoteMemory = { addr: 0, rkey: 0, length: 0 };

/**
 * Accepts a client and answers its pings. Resolves when the client has left, or the signal has ended it.
 * @throws CliError when the client says something else or is silent; as `request.accept` and `connection.read`
 */
export async function servePings(request: ConnectionRequest, options: ServeOptions = {}): Promise<Served> {
  await using connection = await request.accept(connectionOptions(options.size ?? LARGEST));
  return await answerPings(connection, options);
}

/** As `servePings`, on a connection that was made with `connectionOptions`, and stays open. */
export async function answerPings(connection: Connection, options: ServeOptions = {}): Promise<Served> {
  const { size = LARGEST, validate = false, signal, onPing } = options;
  const next = () => nextWhere(connection, size, options);
  const done = encodeWhere(NOWHERE);
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
    say(connection, done);
    const sink = await next();
    if (sink === undefined && signal?.aborted) break;
    if (sink === undefined) throw failure(`the client left in the middle of ping ${pings}`);
    // as the stock program does: with the first NUL, and no more than there is room for
    await connection.write(sink, data.subarray(0, Math.min(text.length + 1, sink.length)));
    say(connection, done);
    pings++;
    bytes += data.length;
  }
  return { pings, bytes, invalid, seconds: (performance.now() - begin) / 1000 };
}

/** The client's next word; undefined when it has left, or the signal says that it is over. */
async function nextWhere(
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
  const where = decodeWhere(message.data);
  if (where.length > size)
    throw failure(`the client pings with ${where.length} bytes, which is more than ${size} (--size)`);
  return where;
}
