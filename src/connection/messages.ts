/** Messages for a reader who takes them one by one. Those that nobody has taken stay where they arrived. */

import { orGiveUp, type WaitOptions } from '../verbs/waiting.js';
import type { Arrival } from './inbox.js';

export interface Message {
  /** The message's bytes, the reader's own. */
  readonly data: Buffer;
  /** The immediate that came with it, 32 bits. */
  readonly imm?: number;
}

interface Reader {
  resolve(message: Message | undefined): void;
  reject(error: unknown): void;
}

export class Messages {
  readonly #arrivals: Arrival[] = [];
  /** What was left at the end, when the memory goes. */
  readonly #kept: Message[] = [];
  #readers: Reader[] = [];
  #isEnded = false;
  #error: Error | undefined;

  push(arrival: Arrival): void {
    const reader = this.#readers.shift();
    if (reader) reader.resolve(taken(arrival));
    else this.#arrivals.push(arrival);
  }

  /** Nothing comes any more: readers get what is there, then the error, or the end where there is none. */
  end(error?: Error): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    this.#error = error;
    this.#kept.push(...this.#arrivals.splice(0).map(taken));
    for (const { resolve, reject } of this.#readers.splice(0)) {
      if (error === undefined) resolve(undefined);
      else reject(error);
    }
  }

  /** Hands everything over to another reader, from now on. @param why for those who wait: nothing comes for them any more */
  divert(to: (arrival: Arrival) => void, why: Error): void {
    for (const { reject } of this.#readers.splice(0)) reject(why);
    for (const arrival of this.#arrivals.splice(0)) to(arrival);
  }

  /** The next one; undefined at the end. */
  async next(wait: WaitOptions): Promise<Message | undefined> {
    const arrival = this.#arrivals.shift();
    if (arrival !== undefined) return taken(arrival);
    if (this.#kept.length > 0) return this.#kept.shift();
    if (this.#error !== undefined) throw this.#error;
    if (this.#isEnded) return undefined;
    return this.#wait(wait);
  }

  #wait(wait: WaitOptions): Promise<Message | undefined> {
    let reader: Reader | undefined;
    const message = new Promise<Message | undefined>((resolve, reject) => {
      reader = { resolve, reject };
      this.#readers.push(reader);
    });
    return orGiveUp(message, 'no message', wait, () => {
      this.#readers = this.#readers.filter((other) => other !== reader);
    });
  }
}

function taken({ bytes, imm, release }: Arrival): Message {
  const data = Buffer.from(bytes);
  release();
  return { data, ...(imm !== undefined && { imm }) };
}
