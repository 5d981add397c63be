/**
 * A request of HTTP and its response over one stream of calls. Each direction begins with a message that holds the head
 * as JSON; the messages after it are the body. An empty message ends the body of a response that has trailers, which
 * the next message holds.
 */
import { SHORT_BYTES } from '../rpc/channel.js';
import { RpcError } from '../rpc/status.js';
import type { RpcStream } from '../rpc/stream.js';

type HeaderEntries = [name: string, value: string][];

export interface RequestHead {
  readonly method: string;
  readonly url: string;
  readonly header: Headers;
}

export interface ResponseHead {
  readonly status: number;
  readonly header: Headers;
}

/** @throws RpcError when the stream has failed or has ended */
export function writeHead(stream: RpcStream, head: RequestHead | ResponseHead): Promise<void> {
  return stream.write(Buffer.from(JSON.stringify({ ...head, header: entriesOf(head.header) })));
}

/** @throws RpcError INTERNAL when the peer has sent no head; as `writeHead` */
export async function readRequestHead(stream: RpcStream): Promise<RequestHead> {
  const { method, url, header } = await readJson(stream);
  if (typeof method !== 'string' || typeof url !== 'string') throw wrongHead();
  return { method, url, header: headersOf(header) };
}

/** As `readRequestHead`. */
export async function readResponseHead(stream: RpcStream): Promise<ResponseHead> {
  const { status, header } = await readJson(stream);
  if (typeof status !== 'number') throw wrongHead();
  return { status, header: headersOf(header) };
}

/**
 * Writes the body as fast as the peer takes it, in messages that go by SEND.
 * @throws the error of `body`; as `writeHead`
 */
export async function writeBody(stream: RpcStream, body: AsyncIterable<Uint8Array> | undefined): Promise<void> {
  if (body === undefined) return;
  for await (const bytes of body)
    for (let at = 0; at < bytes.length; at += SHORT_BYTES) await stream.write(bytes.subarray(at, at + SHORT_BYTES));
}

/** Writes the trailers, when there are any. */
export async function writeTrailer(stream: RpcStream, trailer: Headers | undefined): Promise<void> {
  const entries = trailer === undefined ? [] : entriesOf(trailer);
  if (entries.length === 0) return;
  await stream.write(Buffer.alloc(0));
  await stream.write(Buffer.from(JSON.stringify({ header: entries })));
}

/**
 * Returns the rest of a direction.
 * @param trailer gets the trailers, before the body has ended
 */
export async function* readBody(stream: RpcStream, trailer: Headers): AsyncGenerator<Buffer, void, void> {
  for await (const bytes of stream) {
    if (bytes.length > 0) yield bytes;
    else for (const [name, value] of entriesOf(headersOf((await readJson(stream)).header))) trailer.append(name, value);
  }
}

async function readJson(stream: RpcStream): Promise<Record<string, unknown>> {
  const message = await stream.read();
  try {
    const value: unknown = JSON.parse(String(message));
    if (typeof value === 'object' && value !== null) return value as Record<string, unknown>;
  } catch {}
  throw wrongHead();
}

function entriesOf(header: Headers): HeaderEntries {
  const entries: HeaderEntries = [];
  header.forEach((value, name) => {
    entries.push([name, value]);
  });
  return entries;
}

function headersOf(entries: unknown): Headers {
  try {
    return new Headers(entries as HeaderEntries);
  } catch {
    throw wrongHead();
  }
}

const wrongHead = (): RpcError => new RpcError('INTERNAL', 'the peer has sent no head of HTTP where one must be');
