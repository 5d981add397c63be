/** Transfers between a region of an endpoint and a file or pipe, chunk by chunk. */
import { once } from 'node:events';
import { createReadStream } from 'node:fs';
import { open } from 'node:fs/promises';
import type { Connection, Device } from '../../index.js';
import { type DeviceOptions, openForHost } from '../device.js';
import type { RegionInfo } from '../endpoint/regions.js';
import { failure } from '../exit.js';
import { bytesText } from '../netcat/meter.js';
import type { Output } from '../output.js';

/** A region by name, and a part of it in bytes. */
export interface RegionPart {
  readonly name: string;
  readonly offset: number;
  /** Default: up to the end of the region. */
  readonly length?: number;
}

export interface RegionOptions extends DeviceOptions {
  /** Port of the service `regions`. */
  readonly port: number;
  /** Time that the endpoint may be silent, milliseconds. */
  readonly timeoutMs: number;
}

/** Bytes of one READ or WRITE, and so of the progress. */
const CHUNK_BYTES = 2 ** 20;
/** Larger messages are faster. The list of regions is one message, which is why it may not be smaller. */
const MESSAGE_BYTES = 2 ** 16;

/**
 * Reads a part of a region into a file, or to standard output.
 * @throws CliError when the region is unknown, not readable or too short; the system's error of the file
 */
export async function get(
  host: string,
  part: RegionPart,
  file: string | undefined,
  options: RegionOptions,
  output: Output,
  stop: AbortSignal,
): Promise<void> {
  await withRegions(host, options, output, stop, async (connection, regions, device) => {
    const { region, offset, length } = chosen(regions, part, 'remoteRead');
    const begin = performance.now();
    // opened only now: a wrong region leaves an old file as it was
    await using target = file === undefined ? undefined : await open(file, 'w');
    for (let done = 0; done < length; ) {
      const size = Math.min(CHUNK_BYTES, length - done);
      const data = await connection.read(region, { offset: offset + done, length: size, timeout: options.timeoutMs });
      if (target) await target.writeFile(data);
      else if (!process.stdout.write(data)) await once(process.stdout, 'drain', { signal: stop });
      done += size;
      output.progress(() => `${bytesText(done)} of ${bytesText(length)} read`);
    }
    report('get', { region, offset, length, seconds: (performance.now() - begin) / 1000, device }, output);
  });
}

/**
 * Writes a file, or standard input, to a part of a region.
 * @throws CliError as `get`, and when there are more bytes than fit; nothing is written then
 */
export async function put(
  host: string,
  part: RegionPart,
  file: string | undefined,
  options: RegionOptions,
  output: Output,
  stop: AbortSignal,
): Promise<void> {
  await withRegions(host, options, output, stop, async (connection, regions, device) => {
    const { region, offset, length: room } = chosen(regions, part, 'remoteWrite');
    const content = await contentOf(file, room, stop);
    if (part.length !== undefined && content.length !== room)
      throw failure(`${file ?? 'standard input'} has ${content.length} bytes, not the ${room} of ${textOf(part)}`);
    const begin = performance.now();
    for (let done = 0; done < content.length; ) {
      const data = content.subarray(done, done + CHUNK_BYTES);
      await connection.write(region, data, { offset: offset + done, timeout: options.timeoutMs });
      done += data.length;
      output.progress(() => `${bytesText(done)} of ${bytesText(content.length)} written`);
    }
    const seconds = (performance.now() - begin) / 1000;
    report('put', { region, offset, length: content.length, seconds, device }, output);
  });
}

/** Connects to the service and receives its list of regions. */
async function withRegions(
  host: string,
  options: RegionOptions,
  output: Output,
  stop: AbortSignal,
  work: (connection: Connection, regions: readonly RegionInfo[], device: Device) => Promise<void>,
): Promise<void> {
  const { port, timeoutMs: timeout } = options;
  await using device = await openForHost(host, options);
  output.progress(() => `connecting to ${host} port ${port} ...`);
  const connection = await device.connect({ host, port, timeout, signal: stop, messageBytes: MESSAGE_BYTES });
  // one listener, where the signal in each request would add thousands
  const onStop = () => connection.destroy();
  stop.addEventListener('abort', onStop);
  try {
    output.progress(() => `waiting for the regions of ${host} ...`);
    const message = await connection.receive({ timeout, signal: stop });
    await work(connection, regionsIn(message?.data, host, port), device);
    await connection.close();
  } catch (error) {
    connection.destroy();
    throw stop.aborted ? stop.reason : error;
  } finally {
    stop.removeEventListener('abort', onStop);
  }
}

/** Reads the list that the service sends. @throws CliError when it is none */
export function regionsIn(data: Buffer | undefined, host: string, port: number): readonly RegionInfo[] {
  try {
    const list = JSON.parse(String(data)) as unknown;
    if (Array.isArray(list) && list.every(isRegion)) return list;
  } catch {
    // no JSON: told below
  }
  throw failure(`${host} port ${port} sent no list of regions: it is not the service regions of an endpoint`);
}

/** Whether a peer, which may be anything, has sent a region. */
function isRegion(value: unknown): value is RegionInfo {
  const { name, addr, rkey, length, access } = (value ?? {}) as Record<string, unknown>;
  const isNumber = (what: unknown, most: number) =>
    Number.isSafeInteger(what) && Number(what) >= 0 && Number(what) <= most;
  if (typeof name !== 'string' || !Array.isArray(access)) return false;
  return isNumber(addr, Number.MAX_SAFE_INTEGER) && isNumber(rkey, 2 ** 32 - 1) && isNumber(length, 2 ** 32 - 1);
}

interface Chosen {
  readonly region: RegionInfo;
  readonly offset: number;
  readonly length: number;
}

function chosen(regions: readonly RegionInfo[], part: RegionPart, right: 'remoteRead' | 'remoteWrite'): Chosen {
  const region = regions.find(({ name }) => name === part.name);
  if (region === undefined) {
    const names = regions.map(({ name }) => name).join(', ') || 'none';
    throw failure(`the endpoint has no region '${part.name}'; regions: ${names}`);
  }
  const { access, length: size } = region;
  if (!access.includes(right))
    throw failure(`region ${part.name} does not permit ${right}; it permits ${access.join(', ') || 'nothing'}`);
  const { offset, length = size - offset } = part;
  if (offset >= size || offset + length > size)
    throw failure(`${textOf(part)} is outside the region, which has ${size} bytes`);
  return { region, offset, length };
}

const textOf = ({ name, offset, length }: RegionPart) => `${name}@${offset}${length === undefined ? '' : `:${length}`}`;

/** Reads all input, which must fit: memory does not grow with a longer one. @throws CliError when there is more */
async function contentOf(file: string | undefined, room: number, stop: AbortSignal): Promise<Buffer> {
  const source = file === undefined ? process.stdin : createReadStream(file);
  const chunks: Buffer[] = [];
  let length = 0;
  const onStop = () => source.destroy(stop.reason);
  stop.addEventListener('abort', onStop);
  try {
    for await (const chunk of source) {
      length += chunk.length;
      if (length > room) throw failure(`${file ?? 'standard input'} has more than the ${room} bytes that fit`);
      chunks.push(chunk);
    }
  } finally {
    stop.removeEventListener('abort', onStop);
  }
  return Buffer.concat(chunks);
}

interface Transfer extends Chosen {
  readonly seconds: number;
  readonly device: Device;
}

function report(command: string, { region, offset, length, seconds, device }: Transfer, output: Output): void {
  const { kind: link } = device.query().link;
  output.result({ ok: true, command, region: region.name, offset, bytes: length, seconds, link });
}
