/**
 * One NVMe queue of a target: a queue pair whose receives take commands, and whose sends carry data and responses. It
 * knows no command; `QueueListener` carries them out.
 */
import {
  type CmId,
  CompletionPump,
  type Cq,
  type Mr,
  type Pd,
  type Qp,
  type SendWr,
  throwIfFailed,
  VerbsError,
  type Wc,
  WcOpcode,
} from '../../../index.js';
import type { TransferBuffers } from '../buffers.js';
import { CommandError, Status } from '../status.js';
import { broken, COMMAND_BYTES, Command, encodeResponse, RESPONSE_BYTES } from '../wire.js';
import { Exchange } from './exchange.js';

/** Sends, READs and WRITEs that the queue pair holds; further ones wait. */
const MAX_SENDS = 256;

export interface QueueSizes {
  /** Commands that the host may have outstanding. */
  readonly entries: number;
  /** Bytes of data that a command may carry. */
  readonly capsuleDataBytes: number;
}

export interface QueueListener {
  /** Number of the queue, which responses name. */
  readonly qid: number;
  /**
   * Carries out a command. @returns bytes 0 to 7 of the response, default 0
   * @throws CommandError: the status of the response
   */
  onCommand(exchange: Exchange): Promise<bigint | undefined>;
  /** The queue pair has failed, or the host does not keep to the protocol. Called once. */
  onFailure(error: Error): void;
}

interface Post {
  readonly wr: SendWr;
  resolve(): void;
  reject(error: Error): void;
}

export class Queue {
  readonly #cq: Cq;
  readonly #mr: Mr;
  readonly #qp: Qp;
  readonly #sizes: QueueSizes;
  readonly #buffers: TransferBuffers;
  readonly #listener: QueueListener;
  /** Work requests that wait for room in the send queue, and those in it. */
  readonly #waiting: Post[] = [];
  readonly #posted: Post[] = [];
  #sqHead = 0;
  /** Commands that are being carried out. */
  #active = 0;
  #onIdle: (() => void) | undefined;
  #failure: Error | undefined;

  private constructor(
    { cq, mr, qp }: { cq: Cq; mr: Mr; qp: Qp },
    sizes: QueueSizes,
    buffers: TransferBuffers,
    listener: QueueListener,
  ) {
    this.#cq = cq;
    this.#mr = mr;
    this.#qp = qp;
    this.#sizes = sizes;
    this.#buffers = buffers;
    this.#listener = listener;
    new CompletionPump(cq, (wc) => this.#take(wc));
    for (let slot = 0; slot < sizes.entries; slot++) this.#postReceive(slot);
  }

  /** Makes the queue pair of an id. @throws VerbsError ENOMEM; nothing is left allocated then */
  static async open(
    id: CmId,
    pd: Pd,
    sizes: QueueSizes,
    buffers: TransferBuffers,
    listener: QueueListener,
  ): Promise<Queue> {
    const { entries, capsuleDataBytes } = sizes;
    const cq = await id.device.createCq({ cqe: entries + MAX_SENDS });
    let mr: Mr | undefined;
    try {
      mr = await pd.regMr(entries * (COMMAND_BYTES + capsuleDataBytes));
      const qp = await id.createQp(pd, {
        sendCq: cq,
        maxSendWr: MAX_SENDS,
        maxRecvWr: entries,
        maxSendSge: 1,
        maxRecvSge: 1,
        maxInlineData: RESPONSE_BYTES,
      });
      return new Queue({ cq, mr, qp }, sizes, buffers, listener);
    } catch (error) {
      await mr?.close();
      await cq.close();
      throw error;
    }
  }

  /** The buffers of the target. */
  get buffers(): TransferBuffers {
    return this.#buffers;
  }

  /** Why the queue has failed. */
  get failure(): Error | undefined {
    return this.#failure;
  }

  /**
   * Posts a work request, in the order of the calls. The promise need not be awaited.
   * @returns resolves when it is complete; rejects when the queue fails
   */
  post(wr: SendWr): Promise<void> {
    const done = new Promise<void>((resolve, reject) => {
      if (this.#failure !== undefined) reject(this.#failure);
      else this.#waiting.push({ wr, resolve, reject });
    });
    // the listener knows of a failure
    done.catch(() => {});
    if (this.#failure === undefined) this.#postWaiting();
    return done;
  }

  /** Takes no further commands, and tells the listener. */
  fail(error: Error): void {
    if (this.#failure !== undefined) return;
    this.#failure = error;
    this.#listener.onFailure(error);
  }

  /**
   * Frees the memory when the last command has ended. The queue pair is closed before, with its id: until then a READ
   * may write into a buffer.
   */
  async close(): Promise<void> {
    this.#failure ??= new VerbsError('ECANCELED', 'the queue was closed');
    for (const { reject } of [...this.#posted.splice(0), ...this.#waiting.splice(0)]) reject(this.#failure);
    if (this.#active > 0)
      await new Promise<void>((resolve) => {
        this.#onIdle = resolve;
      });
    await this.#mr.close();
    await this.#cq.close();
  }

  #postWaiting(): void {
    while (this.#waiting.length > 0 && this.#posted.length < MAX_SENDS) {
      const post = this.#waiting.shift() as Post;
      this.#posted.push(post);
      try {
        this.#qp.postSend(post.wr);
      } catch (error) {
        // the queue pair or the device has been closed meanwhile
        this.fail(error as Error);
        return;
      }
    }
  }

  get #slotBytes(): number {
    return COMMAND_BYTES + this.#sizes.capsuleDataBytes;
  }

  #postReceive(slot: number): void {
    this.#qp.postRecv({ wrId: slot, sgList: this.#mr.slice(slot * this.#slotBytes, this.#slotBytes) });
  }

  #take(wc: Wc): void {
    if (this.#failure !== undefined) return;
    try {
      throwIfFailed(wc);
      if (wc.opcode === WcOpcode.RECV) this.#onCapsule(wc.wrId, wc.byteLen);
      else {
        // work requests complete in their order
        this.#posted.shift()?.resolve();
        this.#postWaiting();
      }
    } catch (error) {
      this.fail(error as Error);
    }
  }

  #onCapsule(slot: number, bytes: number): void {
    if (bytes < COMMAND_BYTES) throw broken(`a command has ${bytes} bytes, must have ${COMMAND_BYTES}`);
    const capsule = this.#mr.buffer.subarray(slot * this.#slotBytes, slot * this.#slotBytes + bytes);
    const command = new Command(Buffer.from(capsule.subarray(0, COMMAND_BYTES)));
    this.#active++;
    void this.#carryOut(new Exchange(this, command, capsule.subarray(COMMAND_BYTES)), slot);
  }

  async #carryOut(exchange: Exchange, slot: number): Promise<void> {
    let status = Status.SUCCESS;
    let result = 0n;
    try {
      result = (await this.#listener.onCommand(exchange)) ?? 0n;
    } catch (error) {
      status = error instanceof CommandError ? error.status : Status.INTERNAL_ERROR;
      result = error instanceof CommandError ? error.result : 0n;
    }
    this.#active--;
    if (this.#failure !== undefined) {
      if (this.#active === 0) this.#onIdle?.();
      return;
    }
    try {
      // first the receive: the host may send the next command when it has the response
      this.#postReceive(slot);
      this.#respond(exchange, status, result);
    } catch (error) {
      // the queue pair or the device has been closed meanwhile
      this.fail(error as Error);
    }
  }

  #respond({ command: { cid }, keyToInvalidate }: Exchange, status: Status, result: bigint): void {
    this.#sqHead = (this.#sqHead + 1) % this.#sizes.entries;
    const sgList = encodeResponse({ cid, status, result, sqid: this.#listener.qid, sqHead: this.#sqHead });
    if (keyToInvalidate === undefined) this.post({ opcode: 'SEND', sgList });
    else this.post({ opcode: 'SEND_WITH_INV', sgList, invalidateRkey: keyToInvalidate });
  }
}
