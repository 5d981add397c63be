/** The resources of a connection on its device: a queue pair, and its shares of the receive and send buffers. */
import { Scope } from '../../base/scope.js';
import { toError } from '../../cm/qpstates.js';
import { WcStatus } from '../../device/codes.js';
import { VerbsError } from '../../errors.js';
import { onFatalEvent } from '../../transport/disconnect.js';
import { PeerWatch, type PeerWatchOptions } from '../../transport/peerwatch.js';
import { PooledQueues } from '../../transport/pools/pooledqueues.js';
import { type ReceivedMessage, ReceivePools } from '../../transport/pools/receivepool.js';
import { completionError, SendQueue } from '../../transport/sendqueue.js';
import type { Context } from '../../verbs/objects/context.js';
import type { Mr } from '../../verbs/objects/mr.js';
import type { Pd } from '../../verbs/objects/pd.js';
import type { Qp } from '../../verbs/objects/qp.js';
import type { Wc } from '../../verbs/work/wc.js';
import { EndReason } from './lifecycle.js';
import { MessageQueue } from './messages.js';
import type { ResourceSizes } from './options.js';

/** Card memory of an idle connection: its queue pair with the send queue of the default `sends`, and its domain. */
const IDLE_BYTES = 7000;

/** The connection, as its resources know it. */
export interface ResourceListener {
  /** The peer has acknowledged a request. */
  onProgress(): void;
  /** A request, a receive or the queue pair has failed. */
  onFailure(error: Error): void;
}

/** See the head of this file. */
export class Resources {
  readonly qp: Qp;
  readonly sendQueue: SendQueue;
  /** Messages that have arrived. */
  readonly messages = new MessageQueue();
  readonly #queues: PooledQueues;
  #listener: ResourceListener | undefined;
  /** The failure that came before there was a listener. */
  #earlyFailure: Error | undefined;
  /** Frees all of it. */
  readonly #scope: Scope;
  /** Regions for the peer. Most connections share none. */
  #sharedMrs: Scope | undefined;
  #peerWatch: PeerWatch | undefined;
  /** Messages are discarded: readers have been told of the end. */
  #isStopped = false;

  private constructor(scope: Scope, qp: Qp, queues: PooledQueues, sends: number) {
    this.#scope = scope;
    this.qp = qp;
    this.#queues = queues;
    this.sendQueue = new SendQueue(qp, queues.sendPool, sends);
    this.sendQueue.pause();
    queues.receives.deliverTo((message) => this.messages.push(message));
    onFatalEvent(qp, (error) => this.#onFailure(error));
  }

  /**
   * Allocates the resources, with the first receive buffers that connections share. Requests wait until `start`.
   * @param pools has the shared receive buffers
   * @param domain protection domain. Default: a new one, which is closed with the connection
   * @throws VerbsError ENOMEM; nothing is left allocated then
   */
  static async allocate(
    device: Context,
    { messageBytes, receives: count, ownReceives, sends }: ResourceSizes,
    pools: ReceivePools,
    domain: Pd | undefined,
  ): Promise<Resources> {
    const scope = new Scope();
    try {
      const pd = domain ?? (await ownDomain(device, scope));
      const ownPools = ownReceives
        ? new ReceivePools(device, { maxBytes: count * messageBytes, isKept: false })
        : undefined;
      const queues = scope.add(await PooledQueues.join(device, ownPools ?? pools, messageBytes, count));
      const sizes = { maxSendWr: sends, maxSendSge: 1, maxInlineData: 0 };
      const qp = scope.add(await pd.createQp({ ...queues.qpOptions, ...sizes, sqSigAll: false })).postedByLibrary();
      const resources = new Resources(scope, qp, queues, sends);
      await queues.attach(
        qp,
        (wc) => resources.#onSent(wc),
        (wc) => resources.#onReceived(wc),
      );
      if (ownPools === undefined && !queues.receives.pool.hasBuffers) queues.receives.addBuffers();
      return resources;
    } catch (error) {
      await scope.close().catch(() => {});
      if (!(error instanceof VerbsError) || error.code !== 'ENOMEM') throw error;
      const buffers = ownReceives ? `${count * messageBytes} bytes of its own` : 'those that it shares';
      const cost = `about ${IDLE_BYTES} bytes beside its receive buffers, ${buffers}`;
      throw new VerbsError('ENOMEM', `no memory for a connection, which takes ${cost}: ${error.message}`);
    }
  }

  /**
   * Adds the connection's receive buffers. An accepted connection does this when the peer is ready, so that peers that
   * never get ready take no memory.
   * @throws VerbsError ENOMEM
   */
  addBuffers(): void {
    this.#queues.receives.addBuffers();
  }

  /** Reports progress and failures, also one that has come already. */
  watch(listener: ResourceListener): void {
    this.#listener = listener;
    if (this.#earlyFailure !== undefined) listener.onFailure(this.#earlyFailure);
  }

  /** Passes all messages to a handler instead of the queue. @param reason error for the readers that wait */
  redirect(onMessage: (message: ReceivedMessage) => void, reason: Error): void {
    this.#queues.receives.deliverTo(onMessage);
    this.messages.redirect(onMessage, reason);
  }

  /** The peer is ready: requests may leave. */
  start(watch: PeerWatchOptions): void {
    this.sendQueue.resume();
    this.#peerWatch = new PeerWatch(this.qp, watch, (error) => this.#onFailure(error));
  }

  /** Registers memory for the peer, until the connection is closed. @throws as `pd.regMr` */
  async share(source: number | Uint8Array | Mr, options: Parameters<Pd['regMr']>[1]): Promise<Mr> {
    const mr = await this.qp.pd.regMr(source, options);
    this.#sharedMrs ??= this.#scope.add(new Scope());
    return this.#sharedMrs.add(mr);
  }

  /** Delivers all pending completions. */
  deliverCompletions(): void {
    this.#queues.drain();
  }

  /** Requests fail from now on, readers get what has arrived and then the reason, and later messages are discarded. */
  stop(reason: EndReason): void {
    this.#isStopped = true;
    this.#peerWatch?.stop();
    this.sendQueue.end(reason);
    this.messages.end(reason.cause);
  }

  /**
   * Frees everything, after `stop`. A second call tries again what has failed.
   * @throws VerbsError EBUSY while memory windows are bound to memory that was shared
   */
  async free(): Promise<void> {
    // The card uses none of the memory any more, which others are about to get.
    await toError(this.qp);
    this.deliverCompletions();
    this.sendQueue.failInFlight();
    await this.#scope.close();
  }

  /** Frees the resources of a connection that was not established. */
  async close(): Promise<void> {
    this.stop(new EndReason(undefined));
    await this.free();
  }

  #onFailure(error: Error): void {
    if (this.#listener !== undefined) this.#listener.onFailure(error);
    else this.#earlyFailure ??= error;
  }

  #onSent(wc: Wc): void {
    if (wc.ok) this.#listener?.onProgress();
    try {
      const error = this.sendQueue.complete(wc);
      if (error !== undefined) this.#onFailure(error);
    } catch (error) {
      this.#onFailure(error as Error);
    }
  }

  #onReceived(wc: Wc): void {
    try {
      if (wc.ok && !this.#isStopped) {
        this.#queues.receives.onCompletion(wc);
        return;
      }
      this.#queues.receives.discard(wc);
      if (!wc.ok && wc.status !== WcStatus.WR_FLUSH_ERR) this.#onFailure(completionError(wc));
    } catch (error) {
      this.#onFailure(error as Error);
    }
  }
}

/**
 * Returns a domain of the connection's own. Objects of the application in it do not keep the device open: it is closed
 * with the last of them.
 */
async function ownDomain(device: Context, scope: Scope): Promise<Pd> {
  const pd = (await device.allocPd()).makeInternal();
  scope.add({ close: () => pd.closeWhenUnused() });
  return pd;
}
