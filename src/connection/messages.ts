/** Queue of received messages for `receive`. Unread messages stay in their receive buffers. */

import { type WaitOptions, waitFor } from '../base/waiting.js';
import { copyOf } from '../verbs/copy.js';
import type { ReceivedMessage } from './receivepool.js';

/** A message from the peer. */
export interface Message {
  /** The message's bytes, a copy that belongs to the caller. */
  readonly data: Buffer;
  /** Immediate data of the message, 32 bits. Absent when the peer sent none. */
  readonly imm?: number;
}

interface Reader {
  resolve(message: Message | undefined): void;
  reject(error: unknown): void;
}

export class MessageQueue {
  readonly #unread: ReceivedMessage[] = [];
  /** Unread messages, copied when the connection ended and its memory was freed. */
  readonly #unreadAtEnd: Message[] = [];
  #readers: Reader[] = [];
  #isEnded = false;
  #error: Error | undefined;

  push(message: ReceivedMessage): void {
    const reader = this.#readers.shift();
    if (reader) reader.resolve(takeMessage(message));
    else this.#unread.push(message);
  }

  /** Ends the queue. Readers get the unread messages, then the error, or undefined without one. */
  end(error?: Error): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    this.#error = error;
    this.#unreadAtEnd.push(...this.#unread.splice(0).map(takeMessage));
    for (const { resolve, reject } of this.#readers.splice(0)) {
      if (error === undefined) resolve(undefined);
      else reject(error);
    }
  }

  /** Passes unread messages to another handler. @param reason error for the readers that wait */
  redirect(handler: (message: ReceivedMessage) => void, reason: Error): void {
    for (const { reject } of this.#readers.splice(0)) reject(reason);
    for (const message of this.#unread.splice(0)) handler(message);
  }

  /** Returns the next message, undefined at the end. */
  async next(wait: WaitOptions): Promise<Message | undefined> {
    const message = this.#unread.shift();
    if (message !== undefined) return takeMessage(message);
    if (this.#unreadAtEnd.length > 0) return this.#unreadAtEnd.shift();
    if (this.#error !== undefined) throw this.#error;
    if (this.#isEnded) return undefined;
    return this.#wait(wait);
  }

  #wait(wait: WaitOptions): Promise<Message | undefined> {
    let reader: Reader | undefined;
    const next = new Promise<Message | undefined>((resolve, reject) => {
      reader = { resolve, reject };
      this.#readers.push(reader);
    });
    return waitFor(next, 'no message', wait, () => {
      this.#readers = this.#readers.filter((other) => other !== reader);
    });
  }
}

function takeMessage({ bytes, imm, release }: ReceivedMessage): Message {
  const data = copyOf(bytes);
  release();
  return imm === undefined ? { data } : { data, imm };
}
