/** The client of rping. */
import type { Connection, Device, RemoteMemory } from '../../index.js';
import { failure } from '../exit.js';
import { connectionOptions, decodeRdmaInfo, encodeRdmaInfo, pingBytes, sendMessage, textOf } from './protocol.js';

export interface PingOptions {
  readonly host: string;
  readonly port: number;
  /** Bytes of a ping. */
  readonly size: number;
  /** Number of pings; Infinity = until the signal. */
  readonly count: number;
  /** Time that the server may be silent, milliseconds; 0 = no limit. */
  readonly idleMs: number;
  /** Verify that each ping returns the bytes that were sent. */
  readonly validate: boolean;
  /** Ends the pings after the current one. Aborted before there is a connection, it makes `ping` throw its reason. */
  readonly signal?: AbortSignal;
  /** Called with the returned bytes of each ping, up to the first NUL. */
  onPing?(text: string): void;
}

export interface PingResult {
  readonly pings: number;
  /** Bytes of all pings, in one direction. */
  readonly bytes: number;
  /** With `validate`: pings that returned other bytes. */
  readonly invalid: number;
  readonly seconds: number;
  /** Round-trip times of the last pings, milliseconds. */
  readonly times: readonly number[];
}

/** Number of round-trip times that are kept. */
const MAX_TIMES = 2 ** 17;

/**
 * Connects to a server, pings it, and disconnects.
 * @throws CliError when the server is silent, leaves or sends something else; as `device.connect`
 */
export async function ping(device: Device, options: PingOptions): Promise<PingResult> {
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
    await sendInfoAndWait(connection, source.remote, idleMs);
    await sendInfoAndWait(connection, sink.remote, idleMs);
    times[pings % MAX_TIMES] = performance.now() - start;
    onPing?.(textOf(sink.buffer));
    if (validate && !sink.buffer.equals(source.buffer)) invalid++;
  }
  const seconds = (performance.now() - begin) / 1000;
  return { pings, bytes: pings * size, invalid, seconds, times };
}

/** Sends where memory is, and waits until the server reports that it has read or written it. */
async function sendInfoAndWait(connection: Connection, where: RemoteMemory, idleMs: number): Promise<void> {
  sendMessage(connection, encodeRdmaInfo(where));
  const message = await connection.receive(idleMs > 0 ? { timeout: idleMs } : {});
  if (message === undefined) throw failure('the server left in the middle of a ping', { code: 'ECONNRESET' });
  decodeRdmaInfo(message.data);
}
