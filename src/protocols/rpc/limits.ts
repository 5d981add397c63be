/** Defaults of clients and servers. */

/** Port of rdma_cm by default. */
export const RPC_PORT = 7473;

/** Longest message by default, as of gRPC (bytes). */
export const MAX_MESSAGE_BYTES = 4 * 2 ** 20;
