/** Options of a communicator: their checks and defaults. */
import { availableParallelism } from 'node:os';
import {
  anything,
  array,
  type Checks,
  checkInteger,
  checkOptions,
  hostName,
  integer,
  oneOf,
  required,
  text,
  wrongNumber,
  wrongType,
} from '../../base/options.js';
import { MAX_TIMER_MS, WAIT_CHECKS } from '../../base/waiting.js';
import { openedDevice } from '../../deviceuse.js';
import type { Device } from '../../index.js';

/** Address and port on which a rank listens. */
export interface RankEndpoint {
  /** Name or address. */
  readonly host: string;
  /** Port of rdma_cm. */
  readonly port: number;
}

/** Options of `openCommunicator`. All ranks give the same `size` and `group`. */
export interface CommunicatorOptions {
  /** Number of this process, from 0. */
  readonly rank: number;
  /** Number of ranks, 1 to 1024. */
  readonly size: number;
  /** Name or address of rank 0, at which the others learn of each other. Not with `endpoints`. */
  readonly host?: string;
  /** Port of rank 0. Default 29500. */
  readonly port?: number;
  /** The endpoint of each rank, so that no rank has to tell the others. Instead of `host` and `port`. */
  readonly endpoints?: readonly RankEndpoint[];
  /** Device. Default: one that the communicator opens, with a thread of its own for the card. */
  readonly device?: Device;
  /** Name that all ranks know. A process with another name cannot join. Default: the empty text. */
  readonly group?: string;
  /** Time in ms after which a rank that does not answer is dead, 500 to 600,000. Default 5000. */
  readonly timeout?: number;
  /** Time in ms that all ranks have to join. Default 60,000. */
  readonly joinTimeout?: number;
  /** Ends the wait for the other ranks. */
  readonly signal?: AbortSignal;
  /**
   * Thread that combines long arrays: one of the communicator's own, or the calling thread. Default: `worker` with four
   * processors and more.
   */
  readonly reduceThread?: 'worker' | 'own';
}

/** Complete options. */
export interface CommunicatorSettings {
  readonly rank: number;
  readonly size: number;
  /** The endpoint of rank 0, or of every rank. Empty with one rank. */
  readonly endpoints: readonly RankEndpoint[];
  /** Whether rank 0 tells the others where they listen. */
  readonly isLearnt: boolean;
  readonly device: Device | undefined;
  readonly group: string;
  readonly timeout: number;
  readonly joinTimeout: number;
  readonly signal: AbortSignal | undefined;
  readonly reduceThread: 'worker' | 'own';
}

/** Port of rank 0 by default, as of other libraries for collectives. */
export const COLLECTIVE_PORT = 29_500;

const MAX_RANKS = 1024;
/** With fewer processors, a second thread takes time from the first one, and from other ranks of the host. */
const DEFAULT_REDUCE_THREAD = availableParallelism() < 4 ? 'own' : 'worker';

const CHECKS: Checks<CommunicatorOptions> = {
  rank: anything,
  size: required(integer(1, MAX_RANKS)),
  host: hostName,
  port: integer(1, 65535),
  endpoints: array,
  device: openedDevice,
  group: text,
  timeout: integer(500, 600_000),
  joinTimeout: integer(1, MAX_TIMER_MS),
  signal: WAIT_CHECKS.signal,
  reduceThread: oneOf('worker', 'own'),
};

const ENDPOINT_CHECKS: Checks<RankEndpoint> = { host: required(hostName), port: required(integer(1, 65535)) };

/** @throws TypeError, RangeError for wrong options */
export function communicatorSettings(options: CommunicatorOptions): CommunicatorSettings {
  const checked = checkOptions('openCommunicator', options, CHECKS);
  const { rank, size, host, port = COLLECTIVE_PORT, endpoints, device, group = '', signal } = checked;
  const { timeout = 5000, joinTimeout = 60_000, reduceThread = DEFAULT_REDUCE_THREAD } = checked;
  checkInteger('rank', rank, 0, size - 1);
  const common = { rank, size, device, group, timeout, joinTimeout, signal, reduceThread };
  if (endpoints !== undefined) {
    if (host !== undefined) throw wrongType('host', host, 'omitted with endpoints');
    if (endpoints.length !== size)
      throw wrongNumber('endpoints.length', endpoints.length, `${size}, one for each rank`);
    for (const [index, endpoint] of endpoints.entries()) {
      const name = `endpoints[${index}]`;
      checkOptions(name, endpoint, ENDPOINT_CHECKS, `${name}.`);
    }
    return { ...common, endpoints, isLearnt: false };
  }
  if (size === 1) return { ...common, endpoints: [], isLearnt: false };
  if (host === undefined) throw wrongType('host', host, 'the name or address of rank 0');
  return { ...common, endpoints: [{ host, port }], isLearnt: true };
}
