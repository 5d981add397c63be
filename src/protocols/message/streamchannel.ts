/**
 * The bytes of a stream in messages of a connection. Each end grants the other credits, one per free receive buffer, so
 * that data always finds a posted receive, however slow the reader is. Immediate data of every SEND:
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
 */
import { queueMicrotask } from '../../base/timers.js';
import { VerbsError } from '../../errors.js';
import type { ByteChannel } from '../../transport/duplexsides.js';
import type { ChunkQueue } from '../../transport/pools/chunkqueue.js';
import type { ReceivedMessage } from '../../transport/pools/receivepool.js';
import { copyOf } from '../../verbs/objects/copy.js';

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

/** The stream, as its channel sees it. */
export interface StreamListener {
  /** Data may be written, as there is a credit and a slot. */
  onWritable(): void;
  /** A message was not acknowledged. */
  onSendFailure(error: Error): void;
}

/** See the head of this file. */
export class StreamChannel implements ByteChannel {
  readonly #transport: StreamTransport;
  readonly #listener: StreamListener;
  /** DATA messages for which we have receives. */
  readonly #maxCredits: number;
  /** Credits left, and the peer's largest message in bytes. Both are 0 before its HELLO. */
  #credits = 0;
  #peerMessageBytes = 0;
  /** DATA messages read since the last credit update. */
  #unsentCredits = 0;
  /** A DATA message waits for a slot; a later one must not overtake it. */
  #isDataWaiting = false;
  /** DATA messages that wait for a slot or for their acknowledgement. */
  #unacknowledged = 0;
  /** DATA messages whose credits the peer has not returned: it may not have read them. */
  #unconfirmed = 0;
  /** Received DATA that the reader has not requested yet, in its receive buffers. */
  readonly #unread: ReceivedMessage[] = [];
  #isPeerEnded = false;
  #isPeerDone = false;

  /** Sends HELLO. @param receives number of the transport's receive buffers */
  constructor(transport: StreamTransport, receives: number, listener: StreamListener) {
    this.#transport = transport;
    this.#listener = listener;
    this.#maxCredits = Math.min(receives - RESERVED_RECEIVES, 0xffff);
    const hello = Buffer.alloc(4);
    hello.writeUInt32BE(transport.messageBytes);
    this.#send(MessageKind.HELLO, hello, this.#maxCredits);
  }

  get hasData(): boolean {
    return this.#unread.length > 0;
  }

  get isPeerEnded(): boolean {
    return this.#isPeerEnded;
  }

  /** Whether the peer's reader has got all data. */
  get isPeerDone(): boolean {
    return this.#isPeerDone;
  }

  /** Whether the peer's adapter has acknowledged all data. */
  get isAcknowledged(): boolean {
    return this.#unacknowledged === 0;
  }

  /** Whether the peer is known to have read all data. */
  get isConfirmed(): boolean {
    return this.#unconfirmed <= 0;
  }

  /** Takes a message of the peer. @throws VerbsError EIO when it is none of a stream */
  onMessage(message: ReceivedMessage): void {
    const { bytes, imm = 0 } = message;
    const kind = imm >>> 24;
    const credits = imm & 0xffff;
    this.#credits += credits;
    if (kind !== MessageKind.HELLO) this.#unconfirmed -= credits;
    if (kind === MessageKind.DATA) {
      this.#unread.push(message);
      return;
    }
    const length = bytes.length;
    if (kind === MessageKind.HELLO && length === 4) this.#peerMessageBytes = bytes.readUInt32BE();
    message.release();
    if (kind === MessageKind.END) this.#isPeerEnded = true;
    else if (kind === MessageKind.DONE) this.#isPeerDone = true;
    else if (kind !== MessageKind.CREDIT && (kind !== MessageKind.HELLO || length !== 4))
      throw new VerbsError('EIO', 'the peer sent a message that is no stream message: has it called stream() too?');
  }

  read(): Buffer {
    const message = this.#unread.shift() as ReceivedMessage;
    const data = copyOf(message.bytes);
    message.release();
    this.#unsentCredits++;
    return data;
  }

  /** Returns copies of what was not read. The connection frees the receive buffers. */
  takeUnread(): Buffer[] {
    return this.#unread.splice(0).map(({ bytes }) => copyOf(bytes));
  }

  /** Sends while credits last. When other requests use all slots, one DATA message at a time waits for a slot. */
  write(unsent: ChunkQueue): void {
    while (unsent.bytes > 0 && this.#credits > 0 && this.#peerMessageBytes > 0 && !this.#isDataWaiting) {
      this.#isDataWaiting = true;
      this.#unacknowledged++;
      this.#post((room) => this.#makeDataMessage(unsent, room), Math.min(this.#maxChunkBytes, unsent.bytes)).then(
        () => this.#unacknowledged--,
        () => {},
      );
    }
  }

  /** Sends END, after all data. Resolves when it is acknowledged. */
  end(): Promise<void> {
    return this.#send(MessageKind.END, EMPTY, this.#takeUnsentCredits());
  }

  /** Sends DONE: our reader has got all data. */
  done(): void {
    this.#send(MessageKind.DONE, EMPTY, 0);
  }

  /** Sends the credits of what was read. Half of the grant at least, so that at most two CREDITs are in flight. */
  giveCredits(): void {
    if (this.#unsentCredits * 2 >= this.#maxCredits && !this.#isPeerEnded)
      this.#send(MessageKind.CREDIT, EMPTY, this.#takeUnsentCredits());
  }

  #makeDataMessage(unsent: ChunkQueue, room: number): OutgoingMessage {
    this.#isDataWaiting = false;
    this.#credits--;
    this.#unconfirmed++;
    // After this message, which is about to be posted.
    queueMicrotask(() => this.#listener.onWritable());
    const data = unsent.take(Math.min(room, this.#maxChunkBytes));
    return { data, imm: (MessageKind.DATA << 24) | this.#takeUnsentCredits() };
  }

  get #maxChunkBytes(): number {
    return Math.min(this.#peerMessageBytes, this.#transport.messageBytes);
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
    sent.catch((error) => this.#listener.onSendFailure(error));
    return sent;
  }
}
