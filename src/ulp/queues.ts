/** What a transport has on its device: a protection domain, a completion queue, two memory regions, a queue pair. */
import { Scope } from '../base/scope.js';
import {
  type AccessFlags,
  CompletionPump,
  type Cq,
  type Device,
  type Mr,
  type Pd,
  type Qp,
  type RecvWr,
  type SendWr,
  throwIfFailed,
  type Wc,
} from '../index.js';

/** What is allocated. */
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
  readonly #pump: CompletionPump;
  readonly #onFailure: (error: Error) => void;
  #onCompletion: (wc: Wc) => void = () => {};
  #qp: Qp | undefined;
  #isStopped = false;

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
    this.#onFailure = onFailure;
    this.#pump = new CompletionPump(cq, (wc) => this.#take(wc));
  }

  /**
   * @param onFailure called once, for a failed completion, what `onCompletion` throws, or a work request that the queue
   * pair refuses; nothing is delivered then
   * @throws VerbsError ENOMEM; nothing is left allocated then
   */
  static open(device: Device, sizes: QueueSizes, onFailure: (error: Error) => void): Promise<Queues> {
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
    return this.#isStopped;
  }

  /** Sets the queue pair, which the owner closes. */
  use(qp: Qp): void {
    this.#qp = qp;
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
    if (this.#isStopped) return;
    this.stop();
    this.#onFailure(error);
  }

  /** Delivers no more. */
  stop(): void {
    this.#isStopped = true;
  }

  /** Takes what has completed, so that everything which arrived can be read. */
  drain(): void {
    this.#pump.drainAll();
  }

  /** Frees everything. The queue pair is closed before. */
  async close(): Promise<void> {
    this.stop();
    await this.#scope.close();
  }

  #take(wc: Wc): void {
    if (this.#isStopped) return;
    try {
      throwIfFailed(wc);
      this.#onCompletion(wc);
    } catch (error) {
      this.fail(error as Error);
    }
  }

  #attempt(post: (qp: Qp) => void): void {
    if (this.#isStopped || this.#qp === undefined) return;
    try {
      post(this.#qp);
    } catch (error) {
      this.fail(error as Error);
    }
  }
}
