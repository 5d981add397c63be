/**
 * A connection as a Duplex, by the messages of `streamchannel.ts`.
 *
 * DONE makes the disconnect safe. An end disconnects when it has sent and received everything and its DONE is
 * acknowledged. The other end then has END and DONE, so it knows that its data arrived even if the last ACKs were lost
 * and cannot be repeated.
 *
 * A peer that leaves after its END, without DONE, is an error only for an end that has data which the peer is not known
 * to have read: END carries the credits of what was read before.
 */
import { Duplex } from 'node:stream';
import { queueMicrotask } from '../../base/timers.js';
import { callProgram } from '../../base/uncaught.js';
import { VerbsError } from '../../errors.js';
import { ReadSide, WriteSide } from '../../transport/duplexsides.js';
import type { ReceivedMessage } from '../../transport/pools/receivepool.js';
import { StreamChannel, type StreamTransport } from './streamchannel.js';

export class ConnectionStream extends Duplex {
  readonly #transport: StreamTransport;
  readonly #channel: StreamChannel;
  readonly #reading = new ReadSide(this);
  readonly #writing = new WriteSide(() => this.#deliver());
  #isEndSent = false;
  /** Callback of `_final`, called when our END is acknowledged. */
  #finalCallback: ((error?: Error | null) => void) | undefined;

  /** @param receives number of the transport's receive buffers */
  constructor(transport: StreamTransport, receives: number) {
    super({ readableHighWaterMark: 4 * transport.messageBytes, writableHighWaterMark: 4 * transport.messageBytes });
    this.#transport = transport;
    this.#channel = new StreamChannel(transport, receives, {
      onWritable: () => this.#send(),
      onSendFailure: (error) => this.#onSendFailure(error),
    });
  }

  /** Processes a received message, which may have arrived before the stream was made. */
  onMessage(message: ReceivedMessage): void {
    try {
      this.#channel.onMessage(message);
    } catch (error) {
      this.destroy(error as Error);
    }
    if (this.#channel.isPeerDone) this.#callFinalCallback();
    this.#deliver();
    this.#send();
  }

  /**
   * The connection has ended, by this error or because one of the two ends closed it.
   * @param isLocal this end has closed it
   */
  onConnectionEnd(error: Error | undefined, isLocal: boolean): void {
    if (this.destroyed) return;
    for (const data of this.#channel.takeUnread()) this.#reading.push(data);
    if (this.#channel.isPeerEnded) this.#reading.end();
    if (this.#isComplete) return;
    const isQuiet = error === undefined && !this.#hasUnsentData;
    if (isQuiet && this.#channel.isPeerEnded && this.#channel.isConfirmed) this.#endWriting();
    else if (isQuiet && isLocal) this.destroy();
    else this.destroy(error ?? new VerbsError('ECONNRESET', 'the connection was closed before the end of the stream'));
  }

  override _read(): void {
    this.#reading.request();
    queueMicrotask(() => this.#deliver());
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, callback: (error?: Error | null) => void): void {
    this.#writing.add(chunk);
    this.#begin(callback);
  }

  override _writev(chunks: { chunk: Buffer }[], callback: (error?: Error | null) => void): void {
    for (const { chunk } of chunks) this.#writing.add(chunk);
    this.#begin(callback);
  }

  override _final(callback: (error?: Error | null) => void): void {
    // The peer has left after its END, and all data is acknowledged: nobody waits for our END.
    if (this.#channel.isPeerEnded && !this.#transport.isOpen) {
      callback();
      return;
    }
    this.#isEndSent = true;
    this.#finalCallback = callback;
    this.#channel.end().then(
      () => this.#callFinalCallback(),
      (error) => this.#callFinalCallback(error),
    );
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    // A `for await` that has read everything destroys the stream with an AbortError if its other direction is open. The
    // peer then gets the end of that direction, as with a socket.
    const isAbort = (error as NodeJS.ErrnoException | null)?.code === 'ABORT_ERR' && this.#writing.unsentBytes === 0;
    const isWhole = this.readableEnded && (isAbort || (error === null && this.#isEndSent));
    if (isWhole) {
      if (!this.#isEndSent) void this.#channel.end();
      this.#transport.close().then(() => callback(null), callback);
      return;
    }
    // A closing connection ends by itself and completes the requests of others, so it is not destroyed.
    if (this.#transport.isOpen) this.#transport.destroy(error ?? undefined);
    this.#writing.end(error ?? new VerbsError('ECANCELED', 'the stream was destroyed'));
    callback(error);
  }

  /** Both ends have all data, however the connection ends. */
  get #isComplete(): boolean {
    return this.#channel.isPeerEnded && this.#channel.isPeerDone;
  }

  /** Data of the application is not known to have arrived. */
  get #hasUnsentData(): boolean {
    return this.#writing.isBusy || !this.#channel.isAcknowledged;
  }

  /** The peer has left after its END, and all data is acknowledged. */
  #endWriting(): void {
    this.#callFinalCallback();
    if (!this.writableEnded) this.end();
  }

  #callFinalCallback(error?: Error): void {
    const onFinished = this.#finalCallback;
    this.#finalCallback = undefined;
    callProgram(() => onFinished?.(error), undefined);
  }

  #begin(callback: (error?: Error | null) => void): void {
    this.#writing.begin(callback);
    if (this.#transport.isOpen) this.#send();
    else this.#writing.refuse(new VerbsError('ECONNRESET', 'the connection is closed'));
  }

  #send(): void {
    this.#writing.send(this.#channel);
  }

  #deliver(): void {
    if (!this.#writing.isSettling && this.#reading.deliver(this.#channel)) this.#channel.done();
    this.#channel.giveCredits();
  }

  /** The end of the connection decides about messages that carry no data. */
  #onSendFailure(error: Error): void {
    if (!this.#isComplete && (this.#hasUnsentData || !this.#channel.isPeerEnded)) this.destroy(error);
  }
}
