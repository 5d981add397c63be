/** A call with any number of messages in both directions. */
import type { Channel } from './channel.js';
import { RpcError } from './status.js';
import { type Frame, FrameType } from './wire.js';

/** Messages that may be under way in one direction, and unread at the receiver. */
export const WINDOW = 16;

interface Waiter {
  resolve(): void;
  reject(error: Error): void;
}

/** What a stream tells its client or server. */
export interface StreamListener {
  /** The program cancels the stream: both ends of it are to fail. */
  onCancel(error: Error): void;
  /** A message has been read, or will not be. */
  onTaken?(frame: Frame): void;
}

/**
 * One end of a stream of messages. `for await` takes those of the peer, in order. A writer waits while the peer has
 * messages that it has not taken.
 */
export class RpcStream implements AsyncIterable<Buffer> {
  readonly #channel: Channel;
  readonly #call: number;
  readonly #listener: StreamListener;
  /** Messages that we may send, and that the peer may send. */
  #credits = WINDOW;
  #granted = WINDOW;
  #taken = 0;
  readonly #frames: Frame[] = [];
  #isPeerEnded = false;
  #isEnded = false;
  /** It has failed, or its handler has returned. */
  #isOver = false;
  #failure: Error | undefined;
  readonly #readers: Waiter[] = [];
  readonly #writers: Waiter[] = [];
  /** Messages are sent in order, also when one waits for memory. */
  #last: Promise<unknown> = Promise.resolve();

  /** @internal */
  constructor(channel: Channel, call: number, listener: StreamListener) {
    this.#channel = channel;
    this.#call = call;
    this.#listener = listener;
  }

  /**
   * Sends a message. Resolves when it is on its way, and the bytes may be changed.
   * @throws TypeError for what is no Uint8Array; RpcError when it is too long, or the stream has ended
   */
  write(message: Uint8Array): Promise<void> {
    const written = this.#last.then(() => this.#write(message));
    this.#last = written.catch(() => {});
    return written;
  }

  /** Says that we send no more messages. Resolves when those before are on their way. */
  end(): Promise<void> {
    const ended = this.#last.then(() => {
      if (this.#isEnded || this.#failure !== undefined) return;
      this.#isEnded = true;
      this.#channel.send({ type: FrameType.END, call: this.#call });
    });
    this.#last = ended;
    return ended;
  }

  /**
   * Ends the stream at once. Reads and writes that wait at either end fail.
   * @param error the reason, which a client gets as if the handler had thrown it. Default: CANCELLED
   */
  cancel(error: Error = new RpcError('CANCELLED', 'the stream was cancelled')): void {
    this.#listener.onCancel(error);
  }

  /**
   * Returns the next message of the peer; undefined when it sends no more.
   * @throws RpcError when the stream has failed
   */
  async read(): Promise<Buffer | undefined> {
    while (this.#frames.length === 0) {
      if (this.#failure !== undefined) throw this.#failure;
      if (this.#isPeerEnded) return undefined;
      await new Promise<void>((resolve, reject) => this.#readers.push({ resolve, reject }));
    }
    const frame = this.#frames.shift() as Frame;
    this.#listener.onTaken?.(frame);
    const message = await this.#channel.body(frame);
    this.#taken++;
    if (this.#taken >= WINDOW / 2 && !this.#isPeerEnded) {
      this.#channel.send({ type: FrameType.CREDIT, call: this.#call, argument: this.#taken });
      this.#granted += this.#taken;
      this.#taken = 0;
    }
    return message;
  }

  /** Iterates over the messages of the peer. Leaving the loop does not end the stream. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Buffer, void, void> {
    for (let message = await this.read(); message !== undefined; message = await this.read()) yield message;
  }

  /** @internal A frame of the peer. @throws Error when it breaks the protocol */
  onFrame(frame: Frame): void {
    if (frame.type === FrameType.MESSAGE) {
      if (this.#isPeerEnded || this.#granted === 0) throw new Error('it has sent a message that it may not send');
      this.#granted--;
      this.#frames.push(frame);
      // nobody reads it any more
      if (this.#isOver) this.#discardAll();
    } else if (frame.type === FrameType.END) {
      this.#isPeerEnded = true;
    } else if (frame.type === FrameType.RESULT) {
      this.#isPeerEnded = true;
      this.#isEnded = true;
      for (const { resolve } of this.#writers.splice(0)) resolve();
    } else if (frame.type === FrameType.CREDIT) {
      this.#credits += frame.argument;
      if (this.#credits > WINDOW) throw new Error(`it has allowed ${this.#credits} messages, at most ${WINDOW} may be`);
      for (const { resolve } of this.#writers.splice(0)) resolve();
    } else {
      throw new Error(`it has sent a frame of type ${frame.type} for a stream`);
    }
    for (const { resolve } of this.#readers.splice(0)) resolve();
  }

  /** @internal The handler has returned: the call is over when the messages before are on their way. */
  async finish(): Promise<void> {
    await this.#last;
    if (this.#failure !== undefined) throw this.#failure;
    this.#isEnded = true;
    this.#channel.send({ type: FrameType.RESULT, call: this.#call });
    this.#discardAll();
  }

  /** @internal The stream has failed: nothing more comes or goes. */
  fail(error: Error): void {
    this.#failure ??= error;
    this.#discardAll();
    for (const { reject } of [...this.#readers.splice(0), ...this.#writers.splice(0)]) reject(error);
  }

  #discardAll(): void {
    this.#isOver = true;
    for (const frame of this.#frames.splice(0)) {
      this.#listener.onTaken?.(frame);
      this.#channel.discard(frame);
    }
  }

  async #write(message: Uint8Array): Promise<void> {
    this.#channel.checkBody('message', message);
    while (this.#credits === 0 && this.#failure === undefined && !this.#isEnded)
      await new Promise<void>((resolve, reject) => this.#writers.push({ resolve, reject }));
    if (this.#failure !== undefined) throw this.#failure;
    if (this.#isEnded) throw new RpcError('CANCELLED', 'the stream has ended');
    this.#credits--;
    await this.#channel.sendBody({ type: FrameType.MESSAGE, call: this.#call, body: message });
  }
}
