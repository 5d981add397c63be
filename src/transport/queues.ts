/** The parts of a transport on its device: a protection domain, a completion queue, two regions, a queue pair. */

import { Scope } from '../base/scope.js';
import type { AccessFlags } from '../verbs/access.js';
import type { Context } from '../verbs/objects/context.js';
import type { Cq } from '../verbs/objects/cq.js';
import type { Mr } from '../verbs/objects/mr.js';
import type { Pd } from '../verbs/objects/pd.js';
import type { Qp } from '../verbs/objects/qp.js';
import type { Wc } from '../verbs/work/wc.js';
import type { RecvWr, SendWr } from '../verbs/work/wr.js';
import { Completions } from './completions.js';
import { onFatalEvent } from './disconnect.js';

/** Sizes of the parts. */
export interface QueueSizes {
  /** Completions that may be pending. */
  readonly cqe: number;
  /** Bytes that come from the peer. */
  readonly sharedBytes: number;
  /** Whether the peer writes them by RDMA WRITE; otherwise they come to receives. Default true. */
  readonly isRemote?: boolean;
  /** Bytes that our own messages come from, and go to. */
  readonly ownBytes: number;
}

export class Queues {
  readonly #completions: Completions;
  #onCompletion: (wc: Wc) => void = () => {};
  #qp: Qp | undefined;
  readonly #scope: Scope;

  private constructor(
    scope: Scope,
    readonly pd: Pd,
    readonly cq: Cq,
    /** The region of what comes from the peer. */
    readonly shared: Mr,
    /** The region of our own messages. */
    readonly own: Mr,
    onFailure: (error: Error) => void,
  ) {
    this.#scope = scope;
    this.#completions = new Completions(cq, (wc) => this.#onCompletion(wc), onFailure);
  }

  /**
   * @param onFailure called once, for a failed completion, what `onCompletion` throws, a work request that the queue
   * pair refuses, or its fatal event; nothing is delivered then
   * @throws VerbsError ENOMEM; nothing is left allocated then
   */
  static open(device: Context, sizes: QueueSizes, onFailure: (error: Error) => void): Promise<Queues> {
    return Scope.open(async (scope) => {
      const pd = scope.add(await device.allocPd());
      const cq = scope.add(await device.createCq({ cqe: sizes.cqe }));
      const { isRemote = true } = sizes;
      const access: AccessFlags = isRemote ? ['localWrite', 'remoteWrite'] : ['localWrite'];
      const shared = scope.add(await pd.regMr(sizes.sharedBytes, { access }));
      const own = scope.add(await pd.regMr(sizes.ownBytes));
      return new Queues(scope, pd, cq, shared, own, onFailure);
    });
  }

  /** Sets what takes the completions that succeeded. */
  deliver(onCompletion: (wc: Wc) => void): void {
    this.#onCompletion = onCompletion;
  }

  /** Whether completions are delivered no more. */
  get isStopped(): boolean {
    return this.#completions.isStopped;
  }

  /** Sets the queue pair, which the owner closes. */
  use(qp: Qp): void {
    this.#qp = qp;
    onFatalEvent(qp, (error) => this.fail(error));
  }

  /** Posts a work request. One that is refused is a failure: none is refused but by a fault of either end. */
  post(wr: SendWr): void {
    this.#attempt((qp) => qp.postSend(wr));
  }

  /** Posts receives, as `post`. */
  postReceive(wr: RecvWr | readonly RecvWr[]): void {
    this.#attempt((qp) => qp.postRecv(wr));
  }

  /** Tells of a failure that no completion shows. */
  fail(error: Error): void {
    this.#completions.fail(error);
  }

  /** Delivers no more. */
  stop(): void {
    this.#completions.stop();
  }

  /** Takes what has completed, so that everything which arrived can be read. */
  drain(): void {
    this.#completions.drain();
  }

  /** Frees everything. The queue pair is closed before. */
  async close(): Promise<void> {
    this.stop();
    await this.#scope.close();
  }

  #attempt(post: (qp: Qp) => void): void {
    const qp = this.#qp;
    if (qp !== undefined) this.#completions.attempt(() => post(qp));
  }
}
