/**
 * A connection as a Duplex. Each end grants the other credits, one per free receive buffer, so that data always finds a
 * posted receive, however slow the reader is. Immediate data of every SEND:
 *
 *     | kind: 8 bits | 0: 8 bits | credits: 16 bits |
 *
 * - 1 HELLO: four bytes, big endian: the largest message that the sender of HELLO receives. Credits are its initial
 *   grant.
 * - 2 DATA: bytes of the stream; uses one credit.
 * - 3 CREDIT: empty; a credit update.
 * - 4 END: empty; no DATA follows.
 * - 5 DONE: empty; the reader has got all data up to END.
 *
 * Credits in any message add to the earlier ones. Messages without stream data need no credit. RESERVED_RECEIVES
 * receives are kept for them, as at most one HELLO, one END, one DONE and two CREDITs of an end are unprocessed at the
 * peer.
 *
 * DONE makes the disconnect safe. An end disconnects when it has sent and received everything and its DONE is
 * acknowledged. The other end then has END and DONE, so it knows that its data arrived even if the last ACKs were lost
 * and cannot be repeated.
 *
 * A peer that leaves after its END, without DONE, is an error only for an end that has data which the peer is not known
 * to have read: END carries the credits of what was read before.
 */
import { Duplex } from 'node:stream';
import { callProgram } from '../../base/uncaught.js';
import { VerbsError } from '../../errors.js';
import { copyOf } from '../../verbs/objects/copy.js';
import type { ReceivedMessage } from './receivepool.js';

enum MessageKind {
  HELLO = 1,
  DATA = 2,
  CREDIT = 3,
  END = 4,
  DONE = 5,
}

const RESERVED_RECEIVES = 5;
const EMPTY = Buffer.alloc(0);

/** A message to post now. Its bytes are copied and may be reused. */
interface OutgoingMessage {
  readonly data: Uint8Array;
  readonly imm: number;
}

/** The connection below a stream. */
export interface StreamTransport {
  readonly messageBytes: number;
  /** Whether it accepts messages. Otherwise it is closing, which waits for the messages that it accepted before. */
  readonly isOpen: boolean;
  /**
   * Sends a message, calling `build` when it is posted, at once if a slot is free. Resolves when it is acknowledged.
   * @param bytes room that the message needs at least; `build` gets the room that it has
   */
  post(build: (room: number) => OutgoingMessage, bytes: number): Promise<void>;
  close(): Promise<void>;
  destroy(error?: Error): void;
}

export class ConnectionStream extends Duplex {
  readonly #transport: StreamTransport;
  /** DATA messages for which we have receives. */
  readonly #maxCredits: number;
  /** Credits left, and the peer's largest message in bytes. Both are 0 before its HELLO. */
  #credits = 0;
  #peerMessageBytes = 0;
  /** DATA messages read since the last credit update. */
  #unsentCredits = 0;
  /** Data that waits for credits, and the callback of its `_write`. */
  #unsent: Buffer[] = [];
  #writeCallback: ((error?: Error | null) => void) | undefined;
  /** A DATA message waits for a slot; a later one must not overtake it. */
  #isDataWaiting = false;
  /** DATA messages that wait for a slot or for their acknowledgement. */
  #unacknowledged = 0;
  /** DATA messages whose credits the peer has not returned: it may not have read them. */
  #unconfirmed = 0;
  /** Received DATA that the reader has not requested yet, in its receive buffers. */
  readonly #unread: ReceivedMessage[] = [];
  #isReadRequested = false;
  /** END and DONE were received. */
  #isPeerAtEnd = false;
  #isPeerDone = false;
  #isReadEnded = false;
  #isEndSent = false;
  /** Callback of `_final`, called when our END is acknowledged. */
  #finalCallback: ((error?: Error | null) => void) | undefined;

  /** @param receives number of the transport's receive buffers */
  constructor(carrier: StreamTransport, receives: number) {
    super({ readableHighWaterMark: 4 * carrier.messageBytes, writableHighWaterMark: 4 * carrier.messageBytes });
    this.#transport = carrier;
    this.#maxCredits = Math.min(receives - RESERVED_RECEIVES, 0xffff);
    const hello = Buffer.alloc(4);
    hello.writeUInt32BE(carrier.messageBytes);
    this.#send(MessageKind.HELLO, hello, this.#maxCredits);
  }

  /** Processes a received message, which may have arrived before the stream was made. */
  onMessage(message: ReceivedMessage): void {
    const { bytes, imm = 0 } = message;
    const kind = imm >>> 24;
    const credits = imm & 0xffff;
    this.#credits += credits;
    if (kind !== MessageKind.HELLO) this.#unconfirmed -= credits;
    if (kind === MessageKind.DATA) this.#unread.push(message);
    else if (kind === MessageKind.END) this.#isPeerAtEnd = true;
    else if (kind === MessageKind.DONE) this.#isPeerDone = true;
    else if (kind === MessageKind.HELLO && bytes.length === 4) this.#peerMessageBytes = bytes.readUInt32BE();
    else if (kind !== MessageKind.CREDIT)
      this.destroy(
        new VerbsError('EIO', 'the peer sent a message that is no stream message: has it called stream() too?'),
      );
    if (kind !== MessageKind.DATA) message.release();
    if (kind === MessageKind.DONE) this.#callFinalCallback();
    this.#deliver();
    this.#sendData();
  }

  /**
   * The connection has ended, by this error or because one of the two ends closed it.
   * @param isLocal this end has closed it
   */
  onConnectionEnd(error: Error | undefined, isLocal: boolean): void {
    if (this.destroyed) return;
    // The receive buffers are freed, so unread data moves to the stream's own buffer.
    for (const { bytes } of this.#unread.splice(0)) this.#pushChunk(copyOf(bytes));
    if (this.#isPeerAtEnd) this.#endReading();
    if (this.#isComplete) return;
    const isQuiet = error === undefined && !this.#hasUnsentData;
    if (isQuiet && this.#isPeerAtEnd && this.#unconfirmed <= 0) this.#endWriting();
    else if (isQuiet && isLocal) this.destroy();
    else this.destroy(error ?? new VerbsError('ECONNRESET', 'the connection was closed before the end of the stream'));
  }

  override _read(): void {
    this.#isReadRequested = true;
    // Data pushed within _read is emitted later from a buffer that survives `destroy` and stalls when a listener
    // throws.
    queueMicrotask(() => this.#deliver());
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, callback: (error?: Error | null) => void): void {
    this._writev([{ chunk }], callback);
  }

  override _writev(chunks: { chunk: Buffer }[], callback: (error?: Error | null) => void): void {
    if (!this.#transport.isOpen) {
      callback(new VerbsError('ECONNRESET', 'the connection is closed'));
      return;
    }
    for (const { chunk } of chunks) this.#unsent.push(chunk);
    this.#writeCallback = callback;
    this.#sendData();
  }

  override _final(callback: (error?: Error | null) => void): void {
    // The peer has left after its END, and all data is acknowledged: nobody waits for our END.
    if (this.#isPeerAtEnd && !this.#transport.isOpen) {
      callback();
      return;
    }
    this.#isEndSent = true;
    this.#finalCallback = callback;
    this.#send(MessageKind.END, EMPTY, this.#takeUnsentCredits()).then(
      () => this.#callFinalCallback(),
      (error) => this.#callFinalCallback(error),
    );
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    // A `for await` that has read everything destroys the stream with an AbortError if its other direction is open. The
    // peer then gets the end of that direction, as with a socket.
    const isAbort = (error as NodeJS.ErrnoException | null)?.code === 'ABORT_ERR' && this.#unsent.length === 0;
    const isWhole = this.readableEnded && (isAbort || (error === null && this.#isEndSent));
    if (isWhole) {
      if (!this.#isEndSent) this.#send(MessageKind.END, EMPTY, 0);
      this.#transport.close().then(() => callback(null), callback);
      return;
    }
    // A closing connection ends by itself and completes the requests of others, so it is not destroyed.
    if (this.#transport.isOpen) this.#transport.destroy(error ?? undefined);
    const onSent = this.#writeCallback;
    this.#writeCallback = undefined;
    onSent?.(error ?? new VerbsError('ECANCELED', 'the stream was destroyed'));
    callback(error);
  }

  /** Both ends have all data, however the connection ends. */
  get #isComplete(): boolean {
    return this.#isPeerAtEnd && this.#isPeerDone;
  }

  /** Data of the application is not known to have arrived. */
  get #hasUnsentData(): boolean {
    return this.#unsent.length > 0 || this.#writeCallback !== undefined || this.#unacknowledged > 0;
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

  /** Sends data while credits last. When other requests use all slots, one DATA message at a time waits for a slot. */
  #sendData(): void {
    while (this.#unsent.length > 0 && this.#credits > 0 && this.#peerMessageBytes > 0 && !this.#isDataWaiting) {
      this.#isDataWaiting = true;
      this.#unacknowledged++;
      const bytes = Math.max(1, Math.min(this.#maxChunkBytes, this.#unsentBytes));
      this.#post((room) => this.#makeDataMessage(room), bytes).then(
        () => this.#unacknowledged--,
        () => {},
      );
    }
    if (this.#unsent.length > 0) return;
    const onSent = this.#writeCallback;
    this.#writeCallback = undefined;
    callProgram(() => onSent?.(), undefined);
  }

  #makeDataMessage(room: number): OutgoingMessage {
    this.#isDataWaiting = false;
    this.#credits--;
    this.#unconfirmed++;
    // After this message, which is about to be posted.
    queueMicrotask(() => this.#sendData());
    return { data: this.#takeChunk(room), imm: (MessageKind.DATA << 24) | this.#takeUnsentCredits() };
  }

  get #maxChunkBytes(): number {
    return Math.min(this.#peerMessageBytes, this.#transport.messageBytes);
  }

  get #unsentBytes(): number {
    return this.#unsent.reduce((bytes, { length }) => bytes + length, 0);
  }

  /** Removes as many unsent bytes as fit in one message. */
  #takeChunk(max: number): Buffer {
    const parts: Buffer[] = [];
    for (let room = Math.min(max, this.#maxChunkBytes); room > 0 && this.#unsent.length > 0; ) {
      const chunk = this.#unsent[0] as Buffer;
      const part = chunk.subarray(0, room);
      room -= part.length;
      parts.push(part);
      if (part.length === chunk.length) this.#unsent.shift();
      else this.#unsent[0] = chunk.subarray(part.length);
    }
    return parts.length === 1 ? (parts[0] as Buffer) : Buffer.concat(parts);
  }

  #takeUnsentCredits(): number {
    const owed = this.#unsentCredits;
    this.#unsentCredits = 0;
    return owed;
  }

  #send(kind: MessageKind, data: Buffer, credits: number): Promise<void> {
    return this.#post(() => ({ data, imm: (kind << 24) | credits }), Math.max(data.length, 1));
  }

  #post(build: (room: number) => OutgoingMessage, bytes: number): Promise<void> {
    const sent = this.#transport.post(build, bytes);
    sent.catch((error) => {
      // The end of the connection decides about messages that carry no data.
      if (!this.#isComplete && (this.#hasUnsentData || !this.#isPeerAtEnd)) this.destroy(error);
    });
    return sent;
  }

  /** Passes data to the reader as long as it requests more. */
  #deliver(): void {
    while (this.#isReadRequested && this.#unread.length > 0) {
      const message = this.#unread.shift() as ReceivedMessage;
      const data = copyOf(message.bytes);
      message.release();
      this.#unsentCredits++;
      this.#isReadRequested = this.#pushChunk(data);
    }
    if (this.#unread.length === 0 && this.#isPeerAtEnd && !this.#isReadEnded) {
      this.#endReading();
      this.#send(MessageKind.DONE, EMPTY, 0);
    }
    // Half of the grant at least, so that at most two CREDITs are in flight.
    if (this.#unsentCredits * 2 >= this.#maxCredits && !this.#isPeerAtEnd)
      this.#send(MessageKind.CREDIT, EMPTY, this.#takeUnsentCredits());
  }

  #endReading(): void {
    if (!this.#isReadEnded) this.#pushChunk(null);
    this.#isReadEnded = true;
  }

  /** Pushes to the reader, whose listeners may throw or destroy the stream. @returns whether it requests more */
  #pushChunk(data: Buffer | null): boolean {
    if (this.destroyed) return false;
    return callProgram(() => this.push(data), true);
  }
}
