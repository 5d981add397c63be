/** Messages that have arrived on a connection. Receives are kept posted; memory is posted again when its message is taken. */
import type { Mr } from '../verbs/mr.js';
import type { Qp } from '../verbs/qp.js';
import type { Wc } from '../verbs/wc.js';

/** A message where it has arrived. */
export interface Arrival {
  /** Good until `release`. */
  readonly bytes: Buffer;
  readonly imm: number | undefined;
  /** Lets the next message come to the same memory. */
  release(): void;
}

export class Inbox {
  /** Takes each message as it comes. */
  onArrival: (arrival: Arrival) => void = () => {};
  readonly #qp: Qp;
  readonly #mr: Mr;
  /** Messages for which there is room. */
  readonly count: number;
  readonly #bytes: number;

  /** @param mr divided evenly among `count` receives */
  constructor(qp: Qp, mr: Mr, count: number) {
    this.#qp = qp;
    this.#mr = mr;
    this.count = count;
    this.#bytes = Math.floor(mr.length / count);
  }

  /** Once, when the queue pair takes receives. */
  open(): void {
    for (let slot = 0; slot < this.count; slot++) this.#post(slot);
  }

  /** A receive has brought a message. */
  complete(wc: Wc): void {
    const slot = wc.wrId;
    // a WRITE_WITH_IMM takes a receive too, and brings no bytes to its memory
    const length = wc.opcodeName === 'RECV' ? wc.byteLen : 0;
    const start = slot * this.#bytes;
    this.onArrival({
      bytes: this.#mr.buffer.subarray(start, start + length),
      imm: wc.hasImm ? wc.immData : undefined,
      release: () => this.#post(slot),
    });
  }

  #post(slot: number): void {
    if (!this.#qp.isAlive || !this.#mr.isAlive) return;
    this.#qp.postRecv({ wrId: slot, sgList: this.#mr.slice(slot * this.#bytes, this.#bytes) });
  }
}
