/**
 * One NVMe queue of a target: a queue pair whose receives take commands, and whose sends carry data and responses. It
 * knows no command; `QueueListener` carries them out.
 */
import { Scope } from '../../../base/scope.js';
import {
  type CmId,
  type Cq,
  type Mr,
  type Pd,
  type Qp,
  type SendWr,
  type Sge,
  VerbsError,
  type Wc,
  WcOpcode,
} from '../../../index.js';
import { Completions } from '../../../transport/completions.js';
import { PeerWatch } from '../../../transport/peerwatch.js';
import { Progress } from '../../../transport/progress.js';
import type { TransferBuffers } from '../buffers.js';
import { CommandError, Status } from '../status.js';
import { broken, COMMAND_BYTES, Command, encodeResponse, RESPONSE_BYTES } from '../wire.js';
import { CommandContext } from './commandcontext.js';

/** Sends, READs and WRITEs that the queue pair holds; further ones wait. */
const MAX_SENDS = 256;
/** Bytes of an entry of a completion queue and of those of the queue pair, about. */
const QUEUE_ENTRY_BYTES = 192;

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
  onCommand(context: CommandContext): Promise<bigint | undefined>;
  /** The queue pair has failed, or the host does not keep to the protocol. Called once. */
  onFailure(error: Error): void;
}

interface Post {
  readonly wr: SendWr;
  readonly isResponse: boolean;
  resolve(): void;
  reject(error: Error): void;
}

/** Bytes of the device's memory that a queue takes before `grow`, and that it takes more afterwards. */
export const queueBytes = ({ entries, capsuleDataBytes }: QueueSizes): readonly [first: number, more: number] => {
  const slotBytes = COMMAND_BYTES + capsuleDataBytes;
  return [slotBytes + (entries + MAX_SENDS) * QUEUE_ENTRY_BYTES, (entries - 1) * slotBytes];
};

export class Queue {
  readonly #cq: Cq;
  /** Memory of the first receive, and of the others. */
  readonly #first: Mr;
  #others: Mr | undefined;
  readonly #pd: Pd;
  readonly #qp: Qp;
  readonly #sizes: QueueSizes;
  readonly #buffers: TransferBuffers;
  readonly #listener: QueueListener;
  /** Work requests that wait for room in the send queue, and those in it. */
  readonly #waiting: Post[] = [];
  readonly #posted: Post[] = [];
  #waitingResponses = 0;
  readonly #progress: Progress;
  /** A host's own keep-alives may end the queue before. */
  readonly #peerWatch: PeerWatch;
  #sqHead = 0;
  /** Commands that are being carried out. */
  #active = 0;
  #onIdle: (() => void) | undefined;
  readonly #completions: Completions;
  #failure: Error | undefined;

  private constructor(
    { cq, mr, qp, pd }: { cq: Cq; mr: Mr; qp: Qp; pd: Pd },
    sizes: QueueSizes,
    buffers: TransferBuffers,
    listener: QueueListener,
  ) {
    this.#cq = cq;
    this.#first = mr;
    this.#pd = pd;
    this.#qp = qp;
    this.#sizes = sizes;
    this.#buffers = buffers;
    this.#listener = listener;
    this.#progress = new Progress(qp, (error) => this.fail(error));
    this.#peerWatch = new PeerWatch(qp, {}, (error) => this.fail(error));
    const take = (wc: Wc) => this.#take(wc);
    this.#completions = new Completions(take, (error) => {
      this.#failure = error;
      listener.onFailure(error);
    });
    this.#completions.use(qp);
    this.#completions.takeAll(cq);
    this.#postReceive(0);
  }

  /**
   * Makes the queue pair of an id. It takes one command, Connect, until `grow`.
   * @throws VerbsError ENOMEM; nothing is left allocated then
   */
  static open(id: CmId, pd: Pd, sizes: QueueSizes, buffers: TransferBuffers, listener: QueueListener): Promise<Queue> {
    const { entries, capsuleDataBytes } = sizes;
    return Scope.open(async (scope) => {
      const cq = scope.add(await id.device.createCq({ cqe: entries + MAX_SENDS }));
      const mr = scope.add(await pd.regMr(COMMAND_BYTES + capsuleDataBytes));
      const created = await id.createQp(pd, {
        sendCq: cq,
        maxSendWr: MAX_SENDS,
        maxRecvWr: entries,
        maxSendSge: 1,
        maxRecvSge: 1,
        maxInlineData: RESPONSE_BYTES,
      });
      return new Queue({ cq, mr, qp: created.postedByLibrary(), pd }, sizes, buffers, listener);
    });
  }

  /** Takes as many commands as the queue has entries from now on. @throws VerbsError ENOMEM */
  async grow(): Promise<void> {
    const { entries } = this.#sizes;
    if (entries > 1) this.#others = await this.#pd.regMr((entries - 1) * this.#slotBytes);
    if (this.#failure !== undefined) throw this.#failure;
    for (let slot = 1; slot < entries; slot++) this.#postReceive(slot);
  }

  /** The buffers of the target. */
  get buffers(): TransferBuffers {
    return this.#buffers;
  }

  /** The error that has ended the queue. */
  get failure(): Error | undefined {
    return this.#failure;
  }

  /**
   * Posts a work request, in the order of the calls. The promise need not be awaited.
   * @returns resolves when it is complete; rejects when the queue fails
   */
  post(wr: SendWr): Promise<void> {
    return this.#post(wr, false);
  }

  #post(wr: SendWr, isResponse: boolean): Promise<void> {
    const done = new Promise<void>((resolve, reject) => {
      if (this.#failure !== undefined) reject(this.#failure);
      else this.#waiting.push({ wr, isResponse, resolve, reject });
    });
    // the listener knows of a failure
    done.catch(() => {});
    if (this.#failure === undefined) this.#postWaiting();
    return done;
  }

  /** Takes no further commands, and tells the listener. */
  fail(error: Error): void {
    this.#completions.fail(error);
  }

  /**
   * Frees the memory when the last command has ended. The queue pair is closed before, with its id: until then a READ
   * may write into a buffer.
   */
  async close(): Promise<void> {
    this.#failure ??= new VerbsError('ECANCELED', 'the queue was closed');
    this.#completions.stop();
    this.#progress.stop();
    this.#peerWatch.stop();
    for (const { reject } of [...this.#posted.splice(0), ...this.#waiting.splice(0)]) reject(this.#failure);
    if (this.#active > 0)
      await new Promise<void>((resolve) => {
        this.#onIdle = resolve;
      });
    await this.#others?.close();
    await this.#first.close();
    await this.#cq.close();
  }

  #postWaiting(): void {
    while (this.#waiting.length > 0 && this.#posted.length < MAX_SENDS) {
      const post = this.#waiting.shift() as Post;
      if (post.isResponse) this.#waitingResponses--;
      this.#posted.push(post);
      this.#progress.begin();
      this.#completions.post(post.wr);
      if (this.#failure !== undefined) return;
    }
  }

  get #slotBytes(): number {
    return COMMAND_BYTES + this.#sizes.capsuleDataBytes;
  }

  /** Memory of a receive, and where it begins. */
  #slot(slot: number): { readonly mr: Mr; readonly at: number } {
    return slot === 0 ? { mr: this.#first, at: 0 } : { mr: this.#others as Mr, at: (slot - 1) * this.#slotBytes };
  }

  #postReceive(slot: number): void {
    const { mr, at } = this.#slot(slot);
    this.#qp.postRecv({ wrId: slot, sgList: mr.sge(at, this.#slotBytes) });
  }

  #take(wc: Wc): void {
    if (wc.opcode === WcOpcode.RECV) this.#onCapsule(wc.wrId, wc.byteLen);
    else {
      // work requests complete in their order
      const post = this.#posted.shift();
      this.#progress.end(post === undefined ? 0 : bytesOf(post.wr));
      post?.resolve();
      this.#postWaiting();
    }
  }

  #onCapsule(slot: number, bytes: number): void {
    if (bytes < COMMAND_BYTES) throw broken(`a command has ${bytes} bytes, must have ${COMMAND_BYTES}`);
    const { mr, at } = this.#slot(slot);
    const capsule = mr.buffer.subarray(at, at + bytes);
    const command = new Command(Buffer.from(capsule.subarray(0, COMMAND_BYTES)));
    this.#active++;
    void this.#carryOut(new CommandContext(this, command, capsule.subarray(COMMAND_BYTES)), slot);
  }

  async #carryOut(context: CommandContext, slot: number): Promise<void> {
    let status = Status.SUCCESS;
    let result = 0n;
    try {
      result = (await this.#listener.onCommand(context)) ?? 0n;
    } catch (error) {
      status = error instanceof CommandError ? error.status : Status.INTERNAL_ERROR;
      result = error instanceof CommandError ? error.result : 0n;
    }
    this.#active--;
    if (this.#failure !== undefined) {
      if (this.#active === 0) this.#onIdle?.();
      return;
    }
    this.#completions.attempt(() => {
      // first the receive: the host may send the next command when it has the response
      this.#postReceive(slot);
      this.#respond(context, status, result);
    });
  }

  #respond({ command: { cid }, keyToInvalidate }: CommandContext, status: Status, result: bigint): void {
    this.#sqHead = (this.#sqHead + 1) % this.#sizes.entries;
    const sgList = encodeResponse({ cid, status, result, sqid: this.#listener.qid, sqHead: this.#sqHead });
    // a host that keeps to the protocol has a receive for the response to each of its commands
    if (++this.#waitingResponses > this.#sizes.entries)
      throw broken(`${this.#waitingResponses} responses wait, its queue has ${this.#sizes.entries} entries`);
    if (keyToInvalidate === undefined) this.#post({ opcode: 'SEND', sgList }, true);
    else this.#post({ opcode: 'SEND_WITH_INV', sgList, invalidateRkey: keyToInvalidate }, true);
  }
}

/** Bytes of a work request. */
function bytesOf({ sgList }: SendWr & { readonly sgList?: unknown }): number {
  const parts = (Array.isArray(sgList) ? sgList : [sgList]) as readonly (Sge | undefined)[];
  return parts.reduce((bytes, part) => bytes + (part?.length ?? 0), 0);
}
