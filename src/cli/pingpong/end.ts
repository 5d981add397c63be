/** One end of a pingpong: its queue pair, its memory, and the messages to and fro. */
import {
  type ConnectOptions,
  type Counters,
  type Cq,
  type Device,
  type Endpoint,
  type Mr,
  type Qp,
  throwIfFailed,
  WcOpcode,
} from '../../index.js';
import { Completions, type WaitOptions } from '../completions.js';
import { usageError } from '../exit.js';

export interface EndOptions extends WaitOptions {
  /** Bytes of a message. */
  readonly size: number;
  /** Messages that each end sends. */
  readonly iters: number;
  readonly rxDepth: number;
  /** Path MTU, bytes. */
  readonly mtu: number;
  readonly gidIndex?: number;
  /** Every byte that arrives is checked. */
  readonly check: boolean;
  /** As `QpAttributes.timeout`. */
  readonly timeout: number;
  readonly retryCnt: number;
}

export interface Outcome {
  /** From the first to the last message of this end, seconds. */
  readonly seconds: number;
  /** Client: time of each round trip, milliseconds. */
  readonly times: Float64Array;
  /** Messages whose bytes were not those that were to come; 0 without `check`. */
  readonly invalid: number;
  readonly counters: Counters;
}

/** The stock tool's contents: this byte everywhere, */
const FILL = 0x7b;
/** but 0 at the beginning of each page with -c. */
const PAGE_BYTES = 4096;
/** What a buffer holds before a message comes, so that a message that changes nothing is noticed. */
const POISON = 0xee;

export class End {
  readonly #completions: Completions;
  readonly #expected: Buffer;
  #endpoint: Endpoint | undefined;
  #invalid = 0;

  private constructor(
    readonly device: Device,
    readonly options: EndOptions,
    private readonly qp: Qp,
    private readonly cq: Cq,
    private readonly outbox: Mr,
    private readonly inbox: Mr,
  ) {
    this.#completions = new Completions(cq, options);
    this.#expected = Buffer.alloc(options.size, FILL);
    if (options.check) for (let at = 0; at < options.size; at += PAGE_BYTES) this.#expected[at] = 0;
    this.#expected.copy(outbox.buffer);
    this.#poison();
  }

  /** @throws CliError for options that the device cannot fulfil; VerbsError */
  static async open(device: Device, options: EndOptions): Promise<End> {
    const { size, rxDepth, mtu } = options;
    const { activeMtu, interface: name, interfaceMtu } = device.queryPort();
    if (mtu > activeMtu)
      throw usageError(
        `path MTU ${mtu} (--mtu) is more than ${name} carries: its MTU ${interfaceMtu} allows ${activeMtu}; both ends must use the same`,
      );
    const pd = await device.allocPd();
    const cq = await device.createCq({ cqe: rxDepth + 4 });
    const inbox = await pd.regMr(Math.max(1, size));
    const outbox = await pd.regMr(Math.max(1, size));
    const qp = await pd.createQp({ sendCq: cq, maxSendWr: 2, maxRecvWr: rxDepth, maxSendSge: 1, maxRecvSge: 1 });
    return new End(device, options, qp, cq, outbox, inbox);
  }

  /**
   * What to tell the peer.
   * @param peer its address or GID, to choose ours by
   */
  endpoint(peer: string): Endpoint {
    const { gidIndex } = this.options;
    if (gidIndex === undefined) {
      this.#endpoint = this.qp.endpoint(peer);
    } else {
      const entry = this.device.gids[gidIndex];
      const have = this.device.gids.map(({ index, gid }) => `${index}: ${gid}`).join(', ');
      if (!entry) throw usageError(`GID index ${gidIndex} (--gid-idx) does not exist; there is ${have}`);
      this.#endpoint = { ...this.qp.endpoint(), gid: entry.gid };
    }
    return this.#endpoint;
  }

  /** Receives are posted before the peer can know of us. */
  async connect(remote: Endpoint): Promise<void> {
    const { mtu, timeout, retryCnt, gidIndex } = this.options;
    const options: ConnectOptions = { pathMtu: mtu, timeout, retryCnt, rdAtomic: 1 };
    await this.qp.connect(remote, gidIndex === undefined ? options : { ...options, sgidIndex: gidIndex });
    for (let i = 0; i < this.options.rxDepth; i++) this.#postRecv();
  }

  /** Leaves the device as it was before. */
  async close(): Promise<void> {
    const { qp, cq, inbox, outbox } = this;
    for (const resource of [qp, cq, inbox, outbox, qp.pd]) await resource.close();
  }

  /** Sends a message, awaits one, and so on. @param onRound is told how many are done */
  async sendFirst(onRound: (done: number) => void): Promise<Outcome> {
    const { iters } = this.options;
    const times = new Float64Array(iters);
    const begin = performance.now();
    for (let i = 0; i < iters; i++) {
      const start = performance.now();
      this.#postSend();
      await this.#await({ sends: 1, receives: 1 });
      times[i] = performance.now() - start;
      this.#accept();
      onRound(i + 1);
    }
    return this.#outcome(begin, times);
  }

  /** Awaits a message, sends one back, and so on. */
  async answer(onRound: (done: number) => void): Promise<Outcome> {
    const { iters } = this.options;
    let begin = 0;
    for (let i = 0; i < iters; i++) {
      await this.#await({ sends: i === 0 ? 0 : 1, receives: 1 });
      if (i === 0) begin = performance.now();
      // What came goes back, as the stock tool's one buffer makes it, so that a client may check it.
      if (!this.options.check) this.#message.copy(this.outbox.buffer);
      this.#accept();
      this.#postSend();
      onRound(i + 1);
    }
    if (iters > 0) await this.#await({ sends: 1, receives: 0 });
    return this.#outcome(begin, new Float64Array(0));
  }

  async #await({ sends, receives }: { sends: number; receives: number }): Promise<void> {
    let left = sends + receives;
    let received = 0;
    while (left > 0) {
      const wc = await this.#completions.next();
      throwIfFailed(wc);
      if (wc.opcode === WcOpcode.RECV && ++received > receives) throw new Error('the peer sent out of turn');
      left--;
    }
  }

  /** A message has come: looks at it, and makes room for the next before the peer can send that. */
  #accept(): void {
    if (this.options.check) {
      if (!this.#message.equals(this.#expected)) this.#invalid++;
      this.#poison();
    }
    this.#postRecv();
  }

  get #message(): Buffer {
    return this.inbox.buffer.subarray(0, this.options.size);
  }

  #poison(): void {
    if (this.options.check) this.inbox.buffer.fill(POISON);
  }

  #postSend(): void {
    const { size } = this.options;
    this.qp.postSend({ opcode: 'SEND', ...(size > 0 && { sgList: this.outbox.slice(0, size) }) });
  }

  #postRecv(): void {
    const { size } = this.options;
    this.qp.postRecv(size > 0 ? { sgList: this.inbox.slice(0, size) } : {});
  }

  #outcome(begin: number, times: Float64Array): Outcome {
    const seconds = (performance.now() - begin) / 1000;
    return { seconds, times, invalid: this.#invalid, counters: this.qp.counters() };
  }
}
