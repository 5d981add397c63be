/** The client's end: a transport of Connect over a client of calls. */
import type { Transport } from '@connectrpc/connect';
import type { CommonTransportOptions, UniversalClientFn } from '@connectrpc/connect/protocol';
import { createTransport as createConnectTransport } from '@connectrpc/connect/protocol-connect';
import { wrongType } from '../../base/options.js';
import { RpcClient } from '../rpc/client.js';
import type { RpcStream } from '../rpc/stream.js';
import { connectErrorOf, withConnectErrors } from './errors.js';
import { type RequestHead, readBody, readResponseHead, writeBody, writeHead } from './httpexchange.js';

/** Options of `createTransport`; those that are not listed here are Connect's own. */
export interface TransportOptions extends Partial<Omit<CommonTransportOptions, 'baseUrl' | 'httpClient'>> {
  /** The connection, by `connect` of `wasm-roce/rpc`. The caller closes it. */
  readonly client: RpcClient;
}

/** Longest message that Connect's format can describe (bytes). */
const MAX_BYTES = 2 ** 32 - 1;

/**
 * Makes a transport of Connect, with which `createClient` of `@connectrpc/connect` calls services over RDMA. Messages
 * are binary and not compressed unless options say otherwise.
 * @throws TypeError when `client` is no RpcClient
 */
export function createTransport({ client, ...options }: TransportOptions): Transport {
  if (!(client instanceof RpcClient)) throw wrongType('client', client, 'an RpcClient');
  const host = client.address.includes(':') ? `[${client.address}]` : client.address;
  return createConnectTransport({
    useBinaryFormat: true,
    interceptors: [],
    acceptCompression: [],
    sendCompression: null,
    compressMinBytes: 1024,
    readMaxBytes: MAX_BYTES,
    writeMaxBytes: MAX_BYTES,
    ...options,
    baseUrl: `http://${host}`,
    httpClient: httpClientOver(client),
  });
}

/** Returns what Connect sends requests of HTTP with. */
function httpClientOver(client: RpcClient): UniversalClientFn {
  return async ({ url, method, header, body, signal }) => {
    try {
      const stream = client.stream(new URL(url).pathname, signal && { signal });
      void send(stream, { method, url, header }, body);
      const head = await readResponseHead(stream);
      const trailer = new Headers();
      // to cancel a stream that has ended has no effect
      return { ...head, trailer, body: withConnectErrors(readBody(stream, trailer), () => stream.cancel()) };
    } catch (error) {
      throw connectErrorOf(error);
    }
  };
}

/** Sends a request. When that fails, reading the response does. */
async function send(stream: RpcStream, head: RequestHead, body?: AsyncIterable<Uint8Array>): Promise<void> {
  try {
    await writeHead(stream, head);
    await writeBody(stream, body);
    await stream.end();
  } catch (error) {
    // no effect when the stream has failed, or the response is complete
    stream.cancel(connectErrorOf(error));
  }
}
