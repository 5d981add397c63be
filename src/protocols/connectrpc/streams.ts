/** The server's end: the procedures of a router of Connect as streams of calls. */
import {
  type ConnectRouter,
  type ConnectRouterOptions,
  type ContextValues,
  createConnectRouter,
} from '@connectrpc/connect';
import type { UniversalHandler } from '@connectrpc/connect/protocol';
import { wrongType } from '../../base/options.js';
import type { CallContext, StreamHandler } from '../rpc/servedclient.js';
import { withConnectErrors } from './errors.js';
import { readBody, readRequestHead, writeBody, writeHead, writeTrailer } from './httpexchange.js';

/** Options of `createStreams`; those that are not listed here are Connect's own. */
export interface StreamsOptions extends ConnectRouterOptions {
  /** Registers the services. */
  readonly routes: (router: ConnectRouter) => void;
  /** Returns what interceptors and procedures find in their context's `values`. */
  readonly contextValues?: (context: CallContext) => ContextValues;
}

/**
 * Makes the option `streams` of `createServer` of `wasm-roce/rpc`: one stream for each procedure, with its path as the
 * name. Streams with other names can stand beside them.
 * @throws TypeError when `routes` is no function; what `routes` throws
 */
export function createStreams({ routes, contextValues, ...options }: StreamsOptions): Record<string, StreamHandler> {
  if (typeof routes !== 'function') throw wrongType('routes', routes, 'a function');
  const router = createConnectRouter(options);
  routes(router);
  return Object.fromEntries(router.handlers.map((handler) => [handler.requestPath, serve(handler, contextValues)]));
}

function serve(handler: UniversalHandler, contextValues: StreamsOptions['contextValues']): StreamHandler {
  return async (stream, context) => {
    const head = await readRequestHead(stream);
    const values = contextValues?.(context);
    const response = await handler({
      ...head,
      // what Connect may use: streams in both directions, and trailers
      httpVersion: '2.0',
      body: withConnectErrors(readBody(stream, new Headers())),
      signal: context.signal,
      ...(values && { contextValues: values }),
    });
    await writeHead(stream, { status: response.status, header: response.header ?? new Headers() });
    await writeBody(stream, response.body);
    await writeTrailer(stream, response.trailer);
  };
}
