/** The parts of a transport on its device: a protection domain, a completion queue, two regions, a queue pair. */

import { Scope } from '../../base/scope.js';
import type { Cq, Device, Mr, Pd, Wc } from '../../index.js';
import { type CompletionPump, Completions } from '../../transport/completions.js';

/** Sizes of the parts. */
export interface QueueSizes {
  /** Completions that may be pending. */
  readonly cqe: number;
  /** Bytes that the peer writes. */
  readonly sharedBytes: number;
  /** Bytes that our own messages come from, and go to. */
  readonly ownBytes: number;
}

export class Queues {
  readonly completions: Completions;
  readonly #pump: CompletionPump;
  #onCompletion: (wc: Wc) => void = () => {};
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
    this.completions = new Completions((wc) => this.#onCompletion(wc), onFailure);
    this.#pump = this.completions.takeAll(cq);
  }

  /**
   * @param onFailure called once, for the first failure of the queue pair; nothing is delivered then
   * @throws VerbsError ENOMEM; nothing is left allocated then
   */
  static open(device: Device, sizes: QueueSizes, onFailure: (error: Error) => void): Promise<Queues> {
    return Scope.open(async (scope) => {
      const pd = scope.add(await device.allocPd());
      const cq = scope.add(await device.createCq({ cqe: sizes.cqe }));
      const shared = scope.add(await pd.regMr(sizes.sharedBytes, { access: ['localWrite', 'remoteWrite'] }));
      const own = scope.add(await pd.regMr(sizes.ownBytes));
      return new Queues(scope, pd, cq, shared, own, onFailure);
    });
  }

  /** Sets what takes the completions that succeeded. */
  deliver(onCompletion: (wc: Wc) => void): void {
    this.#onCompletion = onCompletion;
  }

  /** Takes what has completed, so that everything which arrived can be read. */
  drain(): void {
    this.#pump.drainAll();
  }

  /** Frees everything. The queue pair is closed before. */
  async close(): Promise<void> {
    this.completions.stop();
    await this.#scope.close();
  }
}
