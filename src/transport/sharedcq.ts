/** A completion queue of many queue pairs: each gets its own completions, and the queue holds those of all. */

import { NumberMap } from '../base/numbermap.js';
import type { Context } from '../verbs/objects/context.js';
import type { Cq } from '../verbs/objects/cq.js';
import type { Wc } from '../verbs/work/wc.js';
import { CompletionPump } from './completions.js';

/** Bytes of a completion in the card (assembly/host/cq.ts). */
const COMPLETION_BYTES = 64;

/** The queue gets smaller when it is so many times as large as what is needed. */
const SHRINK = 4;

export class SharedCq {
  readonly cq: Cq;
  readonly #pump: CompletionPump;
  readonly #handlers = new NumberMap<(wc: Wc) => void>();
  /** Completions that may be pending at once, and those that the queue holds at least. */
  #needed = 0;
  readonly #least: number;

  private constructor(cq: Cq, onOther: (wc: Wc) => void) {
    this.cq = cq;
    this.#least = cq.cqe;
    this.#pump = new CompletionPump(cq, (wc) => (this.#handlers.get(wc.qpNum) ?? onOther)(wc));
  }

  /** @param onOther receives completions of queue pairs that were removed @throws VerbsError ENOMEM */
  static async create(device: Context, cqe: number, onOther: (wc: Wc) => void = () => {}): Promise<SharedCq> {
    return new SharedCq((await device.createCq({ cqe })).makeInternal(), onOther);
  }

  /** Bytes of the card's memory that it takes. */
  get bytes(): number {
    return this.cq.cqe * COMPLETION_BYTES;
  }

  /** Makes room for further completions; a negative number gives it back. @throws VerbsError ENOMEM */
  async reserve(completions: number): Promise<void> {
    this.#needed += completions;
    const { cqe } = this.cq;
    const wanted = 2 ** Math.ceil(Math.log2(Math.max(this.#needed, this.#least)));
    if (this.#needed > cqe) await this.cq.resize(wanted);
    // those of queue pairs that were removed may be pending
    else if (wanted <= cqe / SHRINK && this.cq.isAlive) await this.cq.resize(wanted).catch(() => {});
  }

  /** Passes the completions of a queue pair to a handler. */
  add(qpNum: number, onCompletion: (wc: Wc) => void): void {
    this.#handlers.set(qpNum, onCompletion);
  }

  /** To be called when all completions of the queue pair are delivered. */
  remove(qpNum: number): void {
    this.#handlers.delete(qpNum);
  }

  /** Delivers everything that the queue holds. */
  drain(): void {
    this.#pump.drainAll();
  }

  close(): Promise<void> {
    return this.cq.close();
  }
}
