/** Queue of received messages for `receive`. Unread messages stay in their receive buffers. */

import { AsyncQueue } from '../../base/asyncqueue.js';
import type { WaitOptions } from '../../base/waiting.js';
import type { ReceivedMessage } from '../../transport/pools/receivepool.js';
import { copyOf } from '../../verbs/objects/copy.js';

/** A message from the peer. */
export interface Message {
  /** The message's bytes, a copy that belongs to the caller. */
  readonly data: Buffer;
  /** Immediate data of the message, 32 bits. Absent when the peer sent none. */
  readonly imm?: number;
}

export class MessageQueue {
  readonly #unread: ReceivedMessage[] = [];
  /** Messages for readers that wait, and unread ones of a connection that has ended, whose memory is freed. */
  readonly #messages = new AsyncQueue<Message | undefined>();

  push(message: ReceivedMessage): void {
    if (this.#messages.waiting > 0) this.#messages.put(takeMessage(message));
    else this.#unread.push(message);
  }

  /** Ends the queue. Readers get the unread messages, then the error, or undefined without one. */
  end(error?: Error): void {
    for (const message of this.#unread.splice(0)) this.#messages.put(takeMessage(message));
    if (error === undefined) this.#messages.endWith(undefined);
    else this.#messages.end(error);
  }

  /** Passes unread messages to another handler. @param reason error for the readers that wait */
  redirect(handler: (message: ReceivedMessage) => void, reason: Error): void {
    this.#messages.interrupt(reason);
    for (const message of this.#unread.splice(0)) handler(message);
  }

  /** Returns the next message, undefined at the end. */
  async next(wait: WaitOptions): Promise<Message | undefined> {
    const message = this.#unread.shift();
    if (message !== undefined) return takeMessage(message);
    return this.#messages.take(wait, 'no message');
  }
}

function takeMessage({ bytes, imm, release }: ReceivedMessage): Message {
  const data = copyOf(bytes);
  release();
  return imm === undefined ? { data } : { data, imm };
}
