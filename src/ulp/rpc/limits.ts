/** Limits of clients and servers, and the port. */
import { outOfRange } from '../errors.js';

/** Port of rdma_cm by default. */
export const RPC_PORT = 7473;

/** Longest message by default, as of gRPC (bytes). */
export const MAX_MESSAGE_BYTES = 4 * 2 ** 20;

/** @throws RangeError unless `value` is an integer from `least` to `most` */
export function checkLimit(name: string, value: number, least: number, most: number): void {
  if (!Number.isInteger(value) || value < least || value > most)
    throw outOfRange(name, value, `an integer from ${least} to ${most}`);
}
