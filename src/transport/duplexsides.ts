/**
 * The two sides of a Duplex whose bytes a connection carries: one passes them to the program at the pace of its reader,
 * the other gives the connection what the program has written, at the pace of the peer.
 */
import type { Readable } from 'node:stream';
import { nextTick, setImmediate } from '../base/timers.js';
import { callProgram } from '../base/uncaught.js';
import { ChunkQueue } from './pools/chunkqueue.js';

/** The bytes of a connection in both directions. */
export interface ByteChannel {
  /** Whether bytes can be read. */
  readonly hasData: boolean;
  /** Whether the peer has said that it writes no more. */
  readonly isPeerEnded: boolean;
  /** Reads the next bytes, which the caller owns. Only with `hasData`. */
  read(): Buffer;
  /** Takes as many bytes as the peer and our buffer have room for. */
  write(unsent: ChunkQueue): void;
}

/** Takes the bytes of a stream in place of its events `data`. */
export interface DataSink<Channel extends ByteChannel> {
  /**
   * Takes bytes of a channel that has some.
   * @param onRead to be called with their number before the program gets them
   * @returns whether the program wants more
   * @throws the errors of the channel
   */
  take(channel: Channel, onRead: (bytes: number) => void): boolean;
}

/** The side that the program reads from. */
export class ReadSide<Channel extends ByteChannel = ByteChannel> {
  readonly #stream: Readable;
  readonly #onRead: (bytes: number) => void;
  readonly #sink: DataSink<Channel> | undefined;
  #isRequested = false;
  #isEnded = false;

  /**
   * @param onRead called with the number of bytes before the program gets them
   * @param sink takes the bytes. Default: the stream
   */
  constructor(stream: Readable, onRead: (bytes: number) => void = () => {}, sink?: DataSink<Channel>) {
    this.#stream = stream;
    this.#onRead = onRead;
    this.#sink = sink;
  }

  /** For `_read`. Call `deliver` in a microtask: data pushed within `_read` stalls when a listener throws. */
  request(): void {
    this.#isRequested = true;
  }

  /** The program wants no more until `request`. */
  pause(): void {
    this.#isRequested = false;
  }

  /**
   * Passes data to the program as long as it requests more, and the end after it.
   * @returns whether the program has got the end by this call
   * @throws the errors of `channel.read`
   */
  deliver(channel: Channel): boolean {
    const sink = this.#sink;
    while (this.#isRequested && channel.hasData && !this.#stream.destroyed) {
      const wantsMore = sink === undefined ? this.#pushFrom(channel) : sink.take(channel, this.#onRead);
      // a call of `pause` meanwhile holds
      if (!wantsMore) this.#isRequested = false;
    }
    // a stream holds the end back itself while it is paused
    const takesEnd = sink === undefined || this.#isRequested;
    return takesEnd && !this.#stream.destroyed && !channel.hasData && channel.isPeerEnded && this.end();
  }

  #pushFrom(channel: Channel): boolean {
    const data = channel.read();
    this.#onRead(data.length);
    return this.push(data);
  }

  /** Pushes data, also unrequested. Listeners may throw or destroy the stream. @returns whether more is requested */
  push(data: Buffer | null): boolean {
    if (this.#stream.destroyed) return false;
    return callProgram(() => this.#stream.push(data), true) && !this.#stream.destroyed;
  }

  /** Nothing more follows. @returns whether that is new */
  end(): boolean {
    if (this.#isEnded) return false;
    this.#isEnded = true;
    this.push(null);
    return true;
  }
}

/** Callback of `_write`. */
type WriteCallback = (error?: Error | null) => void;

/**
 * The side that the program writes to.
 *
 * The callback of a write comes before the data that answers it, and before what others do on account of it in the next
 * pass of the event loop: a socket of TCP reads in another phase of the loop than it calls back. TLS over any stream
 * ends a write in an immediate after the callback, and a server of HTTP fails when the next request comes earlier.
 */
export class WriteSide {
  readonly #unsent = new ChunkQueue();
  readonly #onSettled: () => void;
  /** Callbacks that were called in this pass of the event loop. */
  #unsettled = 0;
  /** Bytes of the `_write` under way, and its callback. */
  #bytes = 0;
  #callback: WriteCallback | undefined;
  #bytesEnded = 0;

  /** @param onSettled data may be delivered again */
  constructor(onSettled: () => void) {
    this.#onSettled = onSettled;
  }

  /** Whether data must wait, because the callback of a write was called in this pass of the event loop. */
  get isSettling(): boolean {
    return this.#unsettled > 0;
  }

  /** Whether the callback of a `_write` is still to be called. */
  get isBusy(): boolean {
    return this.#callback !== undefined;
  }

  /** Bytes of it that the connection has not taken. */
  get unsentBytes(): number {
    return this.#unsent.bytes;
  }

  /** Bytes of each `_write` whose callback was called. */
  get bytesEnded(): number {
    return this.#bytesEnded;
  }

  /** Adds a chunk of the `_write` or `_writev` that begins. */
  add(chunk: Uint8Array): void {
    this.#unsent.push(chunk);
  }

  /** For `_write` and `_writev`, after `add`. Call `send` then. */
  begin(callback: WriteCallback): void {
    this.#bytes = this.#unsent.bytes;
    this.#callback = callback;
  }

  /**
   * Gives the channel what it has room for.
   * @returns whether it has taken something
   * @throws the errors of `channel.write`
   */
  send(channel: ByteChannel): boolean {
    if (this.#callback === undefined) return false;
    const before = this.#unsent.bytes;
    if (before > 0) channel.write(this.#unsent);
    const isTaken = this.#unsent.bytes < before;
    if (this.#unsent.bytes === 0) this.end(null);
    return isTaken;
  }

  /** Ends the `_write` under way, whose bytes the connection does not take. @param error null: they are dropped */
  refuse(error: Error | null): void {
    this.#unsent.clear();
    this.end(error);
  }

  /** Calls the callback of the `_write` under way. */
  end(error: Error | null): void {
    const callback = this.#callback;
    if (callback === undefined) return;
    this.#callback = undefined;
    this.#bytesEnded += this.#bytes;
    this.#unsettled++;
    callProgram(() => callback(error), undefined);
    // the stream calls the program's callback in a tick, whose immediates come before this one
    nextTick(setImmediate, this.#settle);
  }

  readonly #settle = (): void => {
    if (--this.#unsettled === 0) this.#onSettled();
  };
}
