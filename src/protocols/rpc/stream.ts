/** A call with any number of messages in both directions. */
import { AsyncQueue } from '../../base/asyncqueue.js';
import type { Channel } from './channel.js';
import { RpcError } from './status.js';
import { type Frame, FrameType } from './wire.js';

/** Messages that may be under way in one direction, and unread at the receiver. */
export const WINDOW = 16;

const CREDITS: readonly true[] = Array.from({ length: WINDOW }, () => true as const);

/** The error of writes after the end. */
const streamEnded = () => new RpcError('CANCELLED', 'the stream has ended');

/** The client or server of a stream, as the stream sees it. */
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
  /** One for each message that we may send. */
  readonly #credits = new AsyncQueue<true>(CREDITS);
  /** Messages that the peer may send. */
  #granted = WINDOW;
  #taken = 0;
  /** Messages of the peer; undefined when it has ended. */
  readonly #frames = new AsyncQueue<Frame | undefined>();
  #isPeerEnded = false;
  #isEnded = false;
  /** It has failed, or its handler has returned. */
  #isOver = false;
  #failure: Error | undefined;
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
    if (this.#failure !== undefined) throw this.#failure;
    const frame = await this.#frames.take();
    if (frame === undefined) return undefined;
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
      if (this.#isOver) this.#discard(frame);
      else this.#frames.put(frame);
    } else if (frame.type === FrameType.END) {
      this.#endReads();
    } else if (frame.type === FrameType.RESULT) {
      this.#endReads();
      this.#isEnded = true;
      this.#credits.interrupt(streamEnded());
    } else if (frame.type === FrameType.CREDIT) {
      const credits = this.#credits.items.length + frame.argument;
      if (credits > WINDOW) throw new Error(`it has allowed ${credits} messages, at most ${WINDOW} may be`);
      for (let i = 0; i < frame.argument; i++) this.#credits.put(true);
    } else {
      throw new Error(`it has sent a frame of type ${frame.type} for a stream`);
    }
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
    this.#frames.end(error);
    this.#credits.end(error);
  }

  #endReads(): void {
    this.#isPeerEnded = true;
    this.#frames.endWith(undefined);
  }

  #discardAll(): void {
    this.#isOver = true;
    for (let frame = this.#frames.shift(); frame !== undefined; frame = this.#frames.shift()) this.#discard(frame);
  }

  /** Gives up a message that nobody reads any more. */
  #discard(frame: Frame): void {
    this.#listener.onTaken?.(frame);
    this.#channel.discard(frame);
  }

  async #write(message: Uint8Array): Promise<void> {
    this.#channel.checkBody('message', message);
    this.#assertWritable();
    if (this.#credits.shift() === undefined) {
      await this.#credits.take();
      this.#assertWritable();
    }
    await this.#channel.sendBody({ type: FrameType.MESSAGE, call: this.#call, body: message });
  }

  #assertWritable(): void {
    if (this.#failure !== undefined) throw this.#failure;
    if (this.#isEnded) throw streamEnded();
  }
}
