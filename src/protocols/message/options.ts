/** Options that both ends of a connection have. */
import { anything, bytes, type Checks, checkBoolean, checkInteger, instanceOf } from '../../base/options.js';
import { RNR_TIMER } from '../../base/rnrtimer.js';
import { MAX_TIMER_MS } from '../../base/waiting.js';
import type { CmIdOptions } from '../../cm/index.js';
import { checkRetries } from '../../cm/parameters.js';
import { LIMITS } from '../../device/codes.js';
import { PEER_IDLE_MS, PEER_TIMEOUT_MS, type PeerWatchOptions, WATCHED } from '../../transport/peerwatch.js';
import { Pd } from '../../verbs/objects/pd.js';

/** Sizes and keep-alive of a connection. */
export interface ConnectionOptions {
  /**
   * Largest message in bytes, in both directions, 64 to 2^30. A peer of this project is told, and refuses a longer
   * message itself; one of another peer ends the connection. Default 16384.
   */
  readonly messageBytes?: number;
  /**
   * Messages that may arrive before they are read, 8..16384; after that the peer waits. Each takes a receive buffer of
   * `messageBytes`, from those that connections share. Default 32.
   */
  readonly receives?: number;
  /**
   * Whether the connection has `receives` buffers of its own, `receives` * `messageBytes` of the device's memory from
   * when it is established until it is closed, so that no other connection can slow it down. Default false: the
   * connections of a server share buffers, and so do those that the device has made by `connect`. An idle connection
   * then takes about 7 KiB of the device's memory. See `receivePoolBytes`.
   */
  readonly ownReceives?: boolean;
  /**
   * Requests in flight, 1..16384. Further requests wait in order. A request takes memory for its bytes only while it is
   * in flight. Default 16.
   */
  readonly sends?: number;
  /** Milliseconds that the peer may be silent until it is asked for a sign. 0 = it is not asked. Default 15000. */
  readonly keepAlive?: number;
  /**
   * Milliseconds without a packet of a peer that was asked, or that has something to acknowledge; the connection ends
   * with ETIMEDOUT then. 0 = never. Default 75000, so that a peer which is stopped for a minute is not lost.
   */
  readonly peerTimeout?: number;
  /**
   * Milliseconds that `close` waits for a peer that acknowledges nothing of what was sent; then the connection is
   * destroyed. 0 = no limit. Default 30000.
   */
  readonly closeTimeout?: number;
  /**
   * Retries after timeouts and sequence errors without progress, as the attribute of a queue pair: 0 to 7, or
   * `Infinity`. The connection fails after the last one. Default `Infinity`, which is for our end alone: `peerTimeout`
   * decides when a peer has vanished. `connect` asks the other end for 7 then.
   */
  readonly retryCnt?: number;
}

/** Options of every connection, of which `connectionSettings` checks the values, and of the request or its answer. */
export const CONNECTION_CHECKS: Checks<ConnectionOptions & { readonly privateData?: Uint8Array; readonly pd?: Pd }> = {
  messageBytes: anything,
  receives: anything,
  ownReceives: anything,
  sends: anything,
  keepAlive: anything,
  peerTimeout: anything,
  closeTimeout: anything,
  retryCnt: anything,
  privateData: bytes,
  pd: instanceOf(() => Pd, 'a protection domain'),
};

/** Sizes of a connection's resources. */
export interface ResourceSizes {
  readonly messageBytes: number;
  readonly receives: number;
  readonly ownReceives: boolean;
  readonly sends: number;
}

/** The checked options of a connection, with their defaults. */
export interface ConnectionSettings extends ResourceSizes {
  readonly peerWatch: PeerWatchOptions;
  readonly closeTimeout: number;
  /** Retries of the queue pair: a parameter of rdma_cm. */
  readonly retries: { readonly retryCnt: number };
  /**
   * READs and atomics that each end may have outstanding at the other: 16, as adapters have, or `sends`. The card keeps
   * 80 bytes for each.
   */
  readonly readDepth: number;
}

/** Checks the options of a connection. @throws TypeError, RangeError */
export function connectionSettings({
  messageBytes = 16384,
  receives = 32,
  ownReceives = false,
  sends = 16,
  keepAlive = PEER_IDLE_MS,
  peerTimeout = PEER_TIMEOUT_MS,
  closeTimeout = 30_000,
  retryCnt = WATCHED.retryCnt,
}: ConnectionOptions): ConnectionSettings {
  return {
    messageBytes: checkInteger('messageBytes', messageBytes, 64, 2 ** 30),
    receives: checkInteger('receives', receives, 8, 16384),
    ownReceives: checkBoolean('ownReceives', ownReceives),
    sends: checkInteger('sends', sends, 1, 16384),
    peerWatch: {
      idle: checkInteger('keepAlive', keepAlive, 0, MAX_TIMER_MS) || Number.POSITIVE_INFINITY,
      timeout: checkInteger('peerTimeout', peerTimeout, 0, MAX_TIMER_MS),
    },
    closeTimeout: checkInteger('closeTimeout', closeTimeout, 0, 2 ** 31 - 1),
    retries: { retryCnt: checkRetries('retryCnt', retryCnt) },
    readDepth: Math.min(Math.max(sends, 16), LIMITS.maxRdAtomic),
  };
}

/** Options of the id of every connection. */
export const CM_ID_OPTIONS: CmIdOptions = { minRnrTimer: RNR_TIMER, access: ['remoteWrite'] };
