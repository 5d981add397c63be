/**
 * wasm-roce/collective: arrays that processes on several hosts combine and exchange, by RDMA.
 *
 * Every process is a rank of a communicator, and makes the same calls as the others: `allReduce`, `reduceScatter`,
 * `allGather`, `broadcast` and `barrier`.
 *
 * @packageDocumentation
 */
import { Communicator } from './protocols/collective/communicator.js';
import type { CommunicatorOptions } from './protocols/collective/options.js';

export type {
  Algorithm,
  AllReduceOptions,
  BroadcastOptions,
  Communicator,
  ReduceScatterOptions,
} from './protocols/collective/communicator.js';
export type { ElementName, NumberArray } from './protocols/collective/elements.js';
export { RankError, type RankErrorCode } from './protocols/collective/errors.js';
export { COLLECTIVE_PORT, type CommunicatorOptions, type RankEndpoint } from './protocols/collective/options.js';
export type { ReduceOpName } from './protocols/collective/reducer.js';
export type { Range } from './protocols/collective/schedule.js';

/**
 * Joins a communicator. Resolves when this rank is connected with all that it exchanges data with.
 * @throws TypeError, RangeError for wrong options; RankError when a rank does not join, or refuses;
 * CmError, VerbsError; the signal's reason; as `openDevice`
 */
export function openCommunicator(options: CommunicatorOptions): Promise<Communicator> {
  return Communicator.open(options);
}
