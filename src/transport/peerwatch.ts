/**
 * Finds peers that are gone: of a process that was killed, or a host that has lost its power, nothing comes any more. A
 * peer that sends anything is alive, also one that refuses what we ask. One that is stopped for a while is not gone.
 */
import { PeerSign } from '../device/codes.js';
import { VerbsError } from '../errors.js';
import type { Qp } from '../verbs/objects/qp.js';
import { lookAt } from './looks.js';

/**
 * Parameters of rdma_cm for a connection that is watched, or that has beats of its own: our queue pair repeats without
 * end.
 */
export const WATCHED = { retryCnt: Number.POSITIVE_INFINITY } as const;

/** Time without a sign of a peer that was asked for one, after which it is taken to be gone (ms). */
export const PEER_TIMEOUT_MS = 75_000;
/** Time without a packet of the peer, after which it is asked (ms). */
export const PEER_IDLE_MS = 15_000;
/** Looks within the time. The time is counted in looks: a process that was stopped itself has made none. */
const LOOKS = 15;

/** Times of a watch. */
export interface PeerWatchOptions {
  /** Milliseconds that a peer may be silent until it is asked. Default `PEER_IDLE_MS`. */
  readonly idle?: number;
  /** Milliseconds that a peer that was asked may be silent; 0: for ever. Default `PEER_TIMEOUT_MS`. */
  readonly timeout?: number;
}

export class PeerWatch {
  readonly #qp: Qp;
  readonly #onGone: (error: Error) => void;
  readonly #timeout: number;
  readonly #idleLooks: number;
  /** Looks no more. */
  readonly stop: () => void;
  /** Looks without a sign of the peer, and those since it was asked. */
  #silentLooks = 0;
  #askedLooks = 0;

  /**
   * @param qp a connected RC queue pair, with the parameters `WATCHED`
   * @param onGone called once
   */
  constructor(
    qp: Qp,
    { idle = PEER_IDLE_MS, timeout = PEER_TIMEOUT_MS }: PeerWatchOptions,
    onGone: (error: Error) => void,
  ) {
    this.#qp = qp;
    this.#onGone = onGone;
    this.#timeout = timeout;
    const interval = Math.max(1, timeout / LOOKS);
    this.#idleLooks = Math.ceil(idle / interval);
    this.stop = timeout > 0 ? lookAt(qp, interval, () => this.#look()) : () => {};
  }

  #look(): void {
    const isDue = this.#silentLooks + 1 >= this.#idleLooks;
    const sign = this.#qp.takePeerSign(isDue);
    if (sign === PeerSign.HEARD) {
      this.#silentLooks = 0;
      this.#askedLooks = 0;
      return;
    }
    this.#silentLooks++;
    if (sign === PeerSign.AWAITED || isDue) this.#askedLooks++;
    if (this.#askedLooks <= LOOKS) return;
    this.stop();
    this.#onGone(new VerbsError('ETIMEDOUT', `no packet of the peer has come within ${this.#timeout} ms`));
  }
}
