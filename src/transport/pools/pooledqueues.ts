/** The shares that a connection has of its device's pools: completions, receives, and memory for what it sends. */
import type { Context } from '../../verbs/objects/context.js';
import type { Qp } from '../../verbs/objects/qp.js';
import type { QpOptions } from '../../verbs/objects/qpoptions.js';
import type { Wc } from '../../verbs/work/wc.js';
import { type ReceivePools, Receives } from './receivepool.js';
import { SendPool } from './sendpool.js';

export class PooledQueues {
  #qp: Qp | undefined;

  private constructor(
    readonly sendPool: SendPool,
    readonly receives: Receives,
  ) {}

  /**
   * @param messageBytes bytes of a receive buffer; 0: none @param receives buffers that the connection may hold
   * @throws VerbsError ENOMEM
   */
  static async join(
    device: Context,
    pools: ReceivePools,
    messageBytes: number,
    receives: number,
  ): Promise<PooledQueues> {
    const sendPool = await SendPool.join(device);
    try {
      return new PooledQueues(sendPool, new Receives(await pools.join(messageBytes, receives), receives));
    } catch (error) {
      await sendPool.leave(undefined);
      throw error;
    }
  }

  /** The queues of the queue pair. */
  get qpOptions(): Pick<QpOptions, 'sendCq' | 'recvCq' | 'srq'> {
    const { cq: recvCq, srq } = this.receives.pool;
    return { sendCq: this.sendPool.cq.cq, recvCq: recvCq.cq, srq };
  }

  /** The completions of the queue pair go to two handlers. @throws VerbsError ENOMEM */
  async attach(qp: Qp, onSent: (wc: Wc) => void, onReceived: (wc: Wc) => void): Promise<void> {
    this.#qp = qp;
    await this.sendPool.attach(qp, onSent);
    this.receives.attach(qp, onReceived);
  }

  /** Delivers all that has completed. */
  drain(): void {
    this.sendPool.cq.drain();
    this.receives.pool.cq.drain();
  }

  /** Gives everything back. The queue pair is closed. */
  async close(): Promise<void> {
    try {
      await this.receives.close();
    } finally {
      await this.sendPool.leave(this.#qp);
    }
  }
}
