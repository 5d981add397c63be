/** One connection of a host: a queue, and the controller that it belongs to once the host has sent Connect. */

import type { Shares } from '../../../base/shares.js';
import { clearTimeout, setTimeout } from '../../../base/timers.js';
import { type CmAddress, type CmId, type Device, type Pd, VerbsError } from '../../../index.js';
import { refuse } from '../../../transport/acceptor.js';
import { untilDisconnected } from '../../../transport/disconnect.js';
import { memoryShares } from '../../../transport/memoryshares.js';
import type { TransferBuffers } from '../buffers.js';
import { CommandError, Status } from '../status.js';
import { encodeReject, type RejectStatus } from '../wire.js';
import type { CommandContext } from './commandcontext.js';
import type { Controller } from './controller.js';
import { Queue, type QueueListener, type QueueSizes, queueBytes } from './queue.js';

/** Time that a host has to send Connect (ms). */
const CONNECT_MS = 10_000;

/** The target, as a connection sees it. */
export interface ConnectionOwner {
  /** Carries out Connect. @returns the id of the controller @throws CommandError */
  connect(context: CommandContext, connection: HostConnection): Promise<bigint>;
  /** A connection without a controller has ended by an error. */
  onFault(error: Error, connection: HostConnection): void;
  /** The connection is closed. Called once. */
  onClosed(connection: HostConnection): void;
}

export class HostConnection implements QueueListener {
  readonly #id: CmId;
  readonly #owner: ConnectionOwner;
  /** Shares of the device's memory, and what this connection has of them or may get. */
  readonly #memory: Shares;
  #heldBytes = 0;
  #moreBytes = 0;
  #opening: Promise<Queue> | undefined;
  #queue: Queue | undefined;
  #controller: Controller | undefined;
  readonly remoteAddress: string;
  /** Number of the queue; 0 before the host has sent Connect. */
  qid = 0;
  /** Connect is under way. */
  #isConnecting = false;
  #closed: Promise<void> | undefined;
  /** Ends a connection on which the host does not send Connect. */
  readonly #timer: NodeJS.Timeout;

  constructor(id: CmId, owner: ConnectionOwner) {
    this.#id = id;
    this.#owner = owner;
    this.#memory = memoryShares(id.device as Device);
    this.remoteAddress = id.remoteAddress?.address ?? '';
    this.#timer = setTimeout(
      () => this.onFailure(new VerbsError('ETIMEDOUT', `the host has not sent Connect within ${CONNECT_MS} ms`)),
      CONNECT_MS,
    ).unref();
  }

  get controller(): Controller | undefined {
    return this.#controller;
  }

  /** Our end, as the host reaches it. */
  get local(): CmAddress {
    return this.#id.localAddress as CmAddress;
  }

  /** Makes the queue. @throws VerbsError ENOMEM, also when the host has its share of the device's memory */
  async open(pd: Pd, sizes: QueueSizes, buffers: TransferBuffers): Promise<void> {
    const [first, more] = queueBytes(sizes);
    if (!this.#memory.take(this.remoteAddress, first))
      throw new VerbsError('ENOMEM', `${this.remoteAddress} has its share of the device's memory`);
    this.#heldBytes = first;
    this.#moreBytes = more;
    this.#opening = Queue.open(this.#id, pd, sizes, buffers, this);
    this.#queue = await this.#opening;
  }

  /** Takes as many commands as the queue has entries. @throws CommandError when there is no memory for them */
  async grow(): Promise<void> {
    const bytes = this.#moreBytes;
    if (bytes === 0) return;
    if (!this.#memory.take(this.remoteAddress, bytes)) throw new CommandError(Status.CONNECT_CONTROLLER_BUSY);
    try {
      await this.#queue?.grow();
    } catch {
      this.#memory.release(this.remoteAddress, bytes);
      throw new CommandError(Status.CONNECT_CONTROLLER_BUSY);
    }
    this.#heldBytes += bytes;
    this.#moreBytes = 0;
  }

  /** @throws CommandError when the connection has ended meanwhile */
  join(controller: Controller, qid: number): void {
    if (this.#closed !== undefined) {
      controller.removeQueue(qid);
      throw new CommandError(Status.COMMAND_SEQUENCE_ERROR);
    }
    clearTimeout(this.#timer);
    this.#controller = controller;
    this.qid = qid;
  }

  async onCommand(context: CommandContext): Promise<bigint | undefined> {
    const controller = this.#controller;
    if (controller !== undefined) return controller.execute(context, this.qid);
    if (this.#isConnecting) throw new CommandError(Status.COMMAND_SEQUENCE_ERROR);
    this.#isConnecting = true;
    try {
      return await this.#owner.connect(context, this);
    } finally {
      this.#isConnecting = false;
    }
  }

  onFailure(error: Error): void {
    if (this.#closed !== undefined) return;
    void this.close();
    if (this.#controller === undefined) this.#owner.onFault(error, this);
    else this.#controller.end(error);
  }

  /** Resolves when the connection has ended and is closed. */
  async untilDisconnected(): Promise<void> {
    await untilDisconnected(this.#id);
    this.#controller?.removeQueue(this.qid);
    await this.close();
  }

  /** Closes the connection. A second call waits for the first. */
  close(refusal?: RejectStatus): Promise<void> {
    this.#closed ??= this.#close(refusal);
    return this.#closed;
  }

  async #close(refusal: RejectStatus | undefined): Promise<void> {
    clearTimeout(this.#timer);
    if (refusal === undefined) await this.#id.close();
    else await reject(this.#id, refusal);
    await this.#opening?.catch(() => {});
    await this.#queue?.close();
    this.#memory.release(this.remoteAddress, this.#heldBytes);
    this.#owner.onClosed(this);
  }
}

/** Rejects a connection request, and frees the id. */
export function reject(id: CmId, status: RejectStatus): Promise<void> {
  return refuse(id, { privateData: encodeReject(status) });
}
