/** The client's end of rping. */
import type { Connection, Device, RemoteMemory } from '../../index.js';
import { failure } from '../exit.js';
import { connectionOptions, decodeWhere, encodeWhere, pingBytes, say, textOf } from './words.js';

export interface PingOptions {
  readonly host: string;
  readonly port: number;
  /** Bytes of a ping. */
  readonly size: number;
  /** Pings; Infinity = until the signal. */
  readonly count: number;
  /** So long may the server be silent, milliseconds; 0 = for ever. */
  readonly idleMs: number;
  /** What comes back must be what was sent. */
  readonly validate: boolean;
  /** No more pings after the one that is under way; no connection any more, for which its reason is thrown. */
  readonly signal?: AbortSignal;
  /** Is told each ping: what has come back, to its first NUL. */
  onPing?(text: string): void;
}

export interface Pinged {
  readonly pings: number;
  /** Of all pings, one way. */
  readonly bytes: number;
  /** Pings that came back with other bytes, with `validate`. */
  readonly invalid: number;
  readonly seconds: number;
  /** Of the last pings, milliseconds. */
  readonly times: readonly number[];
}

/** So many times are kept. */
const TIMES = 2 ** 17;

/**
 * Connects and pings, and says goodbye.
 * @throws CliError when the server is silent, leaves or says something else; as `device.connect`
 */
export async function ping(device: Device, options: PingOptions): Promise<Pinged> {
  const { host, port, size, count, idleMs, validate, signal, onPing } = options;
  const patience = { ...(idleMs > 0 && { timeout: idleMs }), ...(signal && { signal }) };
  await using connection = await device.connect({ host, port, ...connectionOptions(size), ...patience });
  const source = await connection.share(size, ['remoteRead']);
  const sink = await connection.share(size, ['localWrite', 'remoteWrite']);
  const times: number[] = [];
  let [pings, invalid] = [0, 0];
  const begin = performance.now();
  for (; pings < count && !signal?.aborted; pings++) {
    pingBytes(pings, size).copy(source.buffer);
    const start = performance.now();
    await ask(connection, source.remote, idleMs);
    await ask(connection, sink.remote, idleMs);
    times[pings % TIMES] = performance.now() - start;
    onPing?.(textOf(sink.buffer));
    if (validate && !sink.buffer.equals(source.buffer)) invalid++;
  }
  const seconds = (performance.now() - begin) / 1000;
  return { pings, bytes: pings * size, invalid, seconds, times };
}

/** Tells where memory is, and waits until the server says that it has done its part. */
async function ask(connection: Connection, where: RemoteMemory, idleMs: number): Promise<void> {
  say(connection, encodeWhere(where));
  const message = await connection.receive(idleMs > 0 ? { timeout: idleMs } : {});
  if (message === undefined) throw failure('the server left in the middle of a ping');
  decodeWhere(message.data);
}
