/** One NVMe queue of a host: a queue pair that sends commands and receives responses. */
import { Scope } from '../../../base/scope.js';
import { clearInterval, performance, setInterval } from '../../../base/timers.js';
import {
  CmError,
  type CmId,
  type Cq,
  type Mr,
  type Pd,
  type Qp,
  VerbsError,
  type Wc,
  WcOpcode,
} from '../../../index.js';
import { Completions } from '../../../transport/completions.js';
import { untilDisconnected } from '../../../transport/disconnect.js';
import { PeerWatch, WATCHED } from '../../../transport/peerwatch.js';
import { NvmeError, Status } from '../status.js';
import {
  broken,
  COMMAND_BYTES,
  type CommandFields,
  decodeReject,
  decodeResponse,
  encodeCommand,
  encodeConnectRequest,
  RESPONSE_BYTES,
  RejectStatus,
} from '../wire.js';

export interface HostQueueOptions {
  /** 0 is the admin queue. */
  readonly qid: number;
  /** Commands that may be outstanding, and 1. */
  readonly entries: number;
  /** Id of the controller; 0 for the admin queue. */
  readonly cntlid: number;
  /** Bytes of data that a command may carry. */
  readonly capsuleDataBytes: number;
  /** Time that the target has for a command (ms). */
  readonly timeoutMs: number;
}

/** Options of a command of a host, besides its fields. */
export interface SubmitOptions {
  /** Data that goes with it. */
  readonly inCapsule?: Uint8Array;
  /** Whether the response may take any time. */
  readonly isUntimed?: boolean;
}

interface Pending {
  readonly what: string;
  /** When it was sent; Infinity: the response may take any time. */
  readonly since: number;
  resolve(result: bigint): void;
  reject(error: Error): void;
}

export class HostQueue {
  readonly #scope: Scope;
  readonly #id: CmId;
  readonly #mr: Mr;
  readonly #qp: Qp;
  readonly #options: HostQueueOptions;
  readonly #completions: Completions;
  /** Command ids that no command has, and commands that wait for one. */
  readonly #freeCids: number[];
  readonly #waiting: ((cid: number) => void)[] = [];
  readonly #pending = new Map<number, Pending>();
  readonly #timer: NodeJS.Timeout;
  #peerWatch: PeerWatch | undefined;
  #failure: Error | undefined;

  private constructor(
    { scope, id, cq, mr, qp }: { scope: Scope; id: CmId; cq: Cq; mr: Mr; qp: Qp },
    options: HostQueueOptions,
    onFailure: (error: Error) => void,
  ) {
    this.#scope = scope;
    this.#id = id;
    this.#mr = mr;
    this.#qp = qp;
    this.#options = options;
    this.#freeCids = Array.from({ length: options.entries - 1 }, (_, cid) => cid);
    const take = (wc: Wc) => this.#take(wc);
    this.#completions = new Completions(take, (error) => {
      this.#failure = error;
      onFailure(error);
    });
    this.#completions.use(qp);
    this.#completions.takeAll(cq);
    for (let slot = 0; slot < options.entries; slot++) this.#postReceive(slot);
    this.#timer = setInterval(() => this.#expire(), Math.min(options.timeoutMs, 1000)).unref();
  }

  /**
   * Connects a queue; `id` has its route.
   * @param onFailure called once, when the queue pair fails, the target disconnects, or a command takes too long
   * @throws CmError, VerbsError; nothing is left allocated then, and the id is closed
   */
  static connect(id: CmId, pd: Pd, options: HostQueueOptions, onFailure: (error: Error) => void): Promise<HostQueue> {
    const { qid, entries, cntlid } = options;
    return Scope.open(async (opened) => {
      const queue = opened.add(await HostQueue.#open(id, pd, options, onFailure));
      const privateData = encodeConnectRequest(qid, entries, cntlid);
      await id.connect({ privateData, initiatorDepth: 0, ...WATCHED }).catch(explain);
      queue.#peerWatch = new PeerWatch(queue.#qp, {}, (error) => queue.#completions.fail(error));
      void untilDisconnected(id).then(() => queue.#completions.fail(disconnected()));
      return queue;
    });
  }

  /** Allocates what a queue needs. */
  static #open(id: CmId, pd: Pd, options: HostQueueOptions, onFailure: (error: Error) => void): Promise<HostQueue> {
    const { entries } = options;
    return Scope.open(async (scope) => {
      scope.add(id);
      const cq = scope.add(await id.device.createCq({ cqe: 3 * entries }));
      const mr = scope.add(await pd.regMr(entries * (RESPONSE_BYTES + COMMAND_BYTES + options.capsuleDataBytes)));
      const queues = { sendCq: cq, maxSendWr: 2 * entries, maxRecvWr: entries, maxSendSge: 1, maxRecvSge: 1 };
      const qp = scope.add(await id.createQp(pd, queues)).postedByLibrary();
      return new HostQueue({ scope, id, cq, mr, qp }, options, onFailure);
    });
  }

  /** Bytes of data that a command may carry. */
  get capsuleDataBytes(): number {
    return this.#options.capsuleDataBytes;
  }

  /**
   * Sends a command when the target has room for it.
   * @param what name of the command, for an error
   * @returns bytes 0 to 7 of the response
   * @throws NvmeError when the target has not carried it out; why the queue has failed
   */
  async submit(what: string, fields: CommandFields, options: SubmitOptions = {}): Promise<bigint> {
    const { inCapsule, isUntimed = false } = options;
    this.#assertUsable();
    const cid = this.#freeCids.shift() ?? (await new Promise<number>((resolve) => this.#waiting.push(resolve)));
    this.#assertUsable();
    const { capsuleDataBytes, entries } = this.#options;
    const at = entries * RESPONSE_BYTES + cid * (COMMAND_BYTES + capsuleDataBytes);
    this.#mr.copyIn(encodeCommand(fields, cid), at);
    if (inCapsule !== undefined) this.#mr.copyIn(inCapsule, at + COMMAND_BYTES);
    const since = isUntimed ? Number.POSITIVE_INFINITY : performance.now();
    return new Promise((resolve, reject) => {
      this.#pending.set(cid, { what, since, resolve, reject });
      try {
        this.#qp.postSend({ opcode: 'SEND', sgList: this.#mr.sge(at, COMMAND_BYTES + (inCapsule?.length ?? 0)) });
      } catch (error) {
        // the queue pair or the device has been closed meanwhile
        this.#completions.fail(error as Error);
      }
    });
  }

  /** Disconnects. Commands that wait for a response are rejected, with `error` if the queue has not failed. */
  async close(error?: Error): Promise<void> {
    this.#failure ??= error ?? new VerbsError('ECANCELED', 'the queue was closed');
    this.#completions.stop();
    clearInterval(this.#timer);
    this.#peerWatch?.stop();
    await this.#id.close();
    for (const { reject } of this.#pending.values()) reject(this.#failure);
    this.#pending.clear();
    // they find the queue closed
    for (const resolve of this.#waiting.splice(0)) resolve(0);
    await this.#scope.close();
  }

  #assertUsable(): void {
    if (this.#failure !== undefined) throw this.#failure;
  }

  #expire(): void {
    const now = performance.now();
    for (const { what, since } of this.#pending.values())
      if (now - since >= this.#options.timeoutMs)
        this.#completions.fail(
          new VerbsError('ETIMEDOUT', `the target has not answered ${what} within ${this.#options.timeoutMs} ms`),
        );
  }

  #postReceive(slot: number): void {
    this.#qp.postRecv({ wrId: slot, sgList: this.#mr.sge(slot * RESPONSE_BYTES, RESPONSE_BYTES) });
  }

  #take(wc: Wc): void {
    if (wc.opcode === WcOpcode.RECV) this.#onResponse(wc.wrId, wc.byteLen);
  }

  #onResponse(slot: number, bytes: number): void {
    if (bytes !== RESPONSE_BYTES) throw broken(`a response has ${bytes} bytes, must have ${RESPONSE_BYTES}`);
    const at = slot * RESPONSE_BYTES;
    const { cid, status, result } = decodeResponse(Buffer.from(this.#mr.buffer.subarray(at, at + RESPONSE_BYTES)));
    const pending = this.#pending.get(cid);
    if (pending === undefined) throw broken(`a response is for command ${cid}, which is not outstanding`);
    this.#postReceive(slot);
    this.#pending.delete(cid);
    const next = this.#waiting.shift();
    if (next) next(cid);
    else this.#freeCids.push(cid);
    if (status === Status.SUCCESS) pending.resolve(result);
    else pending.reject(new NvmeError(pending.what, status));
  }
}

const disconnected = () => new VerbsError('ECONNRESET', 'the target has disconnected');

/** Adds what the private data of a refusal says. */
function explain(error: unknown): never {
  if (error instanceof CmError) {
    const status = decodeReject(error.privateData);
    if (status !== undefined) error.message += `: ${RejectStatus[status]}`;
  }
  throw error;
}
