/**
 * wasm-roce/connectrpc: services of Connect (`@connectrpc/connect`, which the program installs) over RDMA.
 *
 * A request and its response are a stream of `wasm-roce/rpc`, so metadata, errors with details, deadlines and streams
 * in both directions work as over HTTP/2.
 *
 * @packageDocumentation
 */
export { createStreams, type StreamsOptions } from './protocols/connectrpc/streams.js';
export { createTransport, type TransportOptions } from './protocols/connectrpc/transport.js';
