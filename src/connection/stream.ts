/**
 * A connection as a Duplex. Each end tells the other how many messages it has room for (credits), so a stream is never
 * refused, however slow its reader. On the wire, the immediate of every SEND:
 *
 *     | kind: 8 bits | 0: 8 bits | credits: 16 bits |
 *
 * kind 1 HELLO: four bytes, the largest message that the sender takes, big endian; credits are the first that it gives.
 * kind 2 DATA: bytes of the stream; takes one credit. kind 3 CREDIT: no bytes. kind 4 END: no bytes; no DATA will follow.
 * kind 5 DONE: no bytes; the reader has been given all, to the END. Credits that come with any of them add up. Messages
 * without bytes of the stream need no credit: RESERVE receives are kept for them, since an end has at most one HELLO, one
 * END, one DONE and two CREDITs that the other has not taken yet.
 *
 * DONE is for the farewell. An end leaves when it has sent and received all and its DONE has arrived; the other then has END
 * and DONE, and knows that nothing of its own is missing even if the last acknowledgements were lost and nobody is there to
 * repeat them.
 */
import { Duplex } from 'node:stream';
import { VerbsError } from '../errors.js';
import type { Arrival } from './inbox.js';
import { throwLater } from './uncaught.js';

enum Kind {
  HELLO = 1,
  DATA = 2,
  CREDIT = 3,
  END = 4,
  DONE = 5,
}

const RESERVE = 5;
const NOTHING = Buffer.alloc(0);

/** A message that leaves now; bytes are copied, and may be used again. */
interface Outgoing {
  readonly data: Uint8Array;
  readonly imm: number;
}

/** What a stream stands on. */
export interface Carrier {
  readonly messageBytes: number;
  /** It takes messages. One that does not any more ends by itself, when what it took before has arrived. */
  readonly isOpen: boolean;
  /** Sends a message in its turn: `make` is called then, at once where nobody is before it. Resolves when it has arrived. */
  post(make: () => Outgoing): Promise<void>;
  close(): Promise<void>;
  destroy(error?: Error): void;
}

export class ConnectionStream extends Duplex {
  readonly #carrier: Carrier;
  /** Messages of data that we have room for. */
  readonly #window: number;
  /** Messages of data that the peer has room for, and their size; nothing before its HELLO. */
  #credits = 0;
  #peerBytes = 0;
  /** Messages of data that were read since the peer was last told. */
  #owed = 0;
  /** Data that waits for credits, and whom to tell when it has left. */
  #unsent: Buffer[] = [];
  #onSent: ((error?: Error | null) => void) | undefined;
  /** A message of data waits for its turn; the next is not to overtake it. */
  #isDataWaiting = false;
  /** Data that nobody has asked for yet, where it has arrived. */
  readonly #unread: Arrival[] = [];
  #isWanted = false;
  /** The peer has sent its END, and its DONE. */
  #isPeerAtEnd = false;
  #isPeerDone = false;
  #isAtEnd = false;
  #isEndSent = false;
  /** Whom to tell when our END has arrived. */
  #onFinished: ((error?: Error | null) => void) | undefined;

  /** @param receives messages that the carrier has room for */
  constructor(carrier: Carrier, receives: number) {
    super({ readableHighWaterMark: 4 * carrier.messageBytes, writableHighWaterMark: 4 * carrier.messageBytes });
    this.#carrier = carrier;
    this.#window = Math.min(receives - RESERVE, 0xffff);
    const hello = Buffer.alloc(4);
    hello.writeUInt32BE(carrier.messageBytes);
    this.#send(Kind.HELLO, hello, this.#window);
  }

  /** A message came, which may be from before there was a stream. */
  arrived(arrival: Arrival): void {
    const { bytes, imm = 0 } = arrival;
    const kind = imm >>> 24;
    this.#credits += imm & 0xffff;
    if (kind === Kind.DATA) this.#unread.push(arrival);
    else if (kind === Kind.END) this.#isPeerAtEnd = true;
    else if (kind === Kind.DONE) this.#isPeerDone = true;
    else if (kind === Kind.HELLO && bytes.length === 4) this.#peerBytes = bytes.readUInt32BE();
    else if (kind !== Kind.CREDIT)
      this.destroy(new VerbsError('EIO', 'the peer sent a message that is not of a stream: does it have one too?'));
    if (kind !== Kind.DATA) arrival.release();
    if (kind === Kind.DONE) this.#finished();
    this.#deliver();
    this.#pump();
  }

  /** The connection is at its end, by this error or because one of the two closed it. */
  connectionEnded(error: Error | undefined): void {
    if (this.destroyed) return;
    // the memory goes: what is unread moves to the stream's own
    for (const { bytes } of this.#unread.splice(0)) this.#give(Buffer.from(bytes));
    if (this.#isPeerAtEnd) this.#endReading();
    if (this.#isWhole) return;
    this.destroy(error ?? new VerbsError('ECONNRESET', 'the connection was closed before the stream was at its end'));
  }

  override _read(): void {
    this.#isWanted = true;
    // what is pushed in here would be heard later, out of a buffer that goes on after `destroy` and sticks when a listener throws
    queueMicrotask(() => this.#deliver());
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, callback: (error?: Error | null) => void): void {
    this.#unsent.push(chunk);
    this.#onSent = callback;
    this.#pump();
  }

  override _writev(chunks: { chunk: Buffer }[], callback: (error?: Error | null) => void): void {
    for (const { chunk } of chunks) this.#unsent.push(chunk);
    this.#onSent = callback;
    this.#pump();
  }

  override _final(callback: (error?: Error | null) => void): void {
    this.#isEndSent = true;
    this.#onFinished = callback;
    this.#send(Kind.END, NOTHING, 0).then(
      () => this.#finished(),
      (error) => this.#finished(error),
    );
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    const isWhole = error === null && this.readableEnded && this.#isEndSent;
    if (isWhole) {
      this.#carrier.close().then(() => callback(null), callback);
      return;
    }
    // one that is being closed goes its own way, and loses nothing that others have under way on it
    if (this.#carrier.isOpen) this.#carrier.destroy(error ?? undefined);
    const onSent = this.#onSent;
    this.#onSent = undefined;
    onSent?.(error ?? new VerbsError('ECANCELED', 'the stream was destroyed'));
    callback(error);
  }

  /** Neither end misses anything, however the connection ends. */
  get #isWhole(): boolean {
    return this.#isPeerAtEnd && this.#isPeerDone;
  }

  #finished(error?: Error): void {
    const onFinished = this.#onFinished;
    this.#onFinished = undefined;
    onFinished?.(error);
  }

  /** Sends what there are credits for. Where the program's requests have all places, one message at a time waits for its turn. */
  #pump(): void {
    while (this.#unsent.length > 0 && this.#credits > 0 && this.#peerBytes > 0 && !this.#isDataWaiting) {
      this.#isDataWaiting = true;
      this.#post(() => this.#makeData());
    }
    if (this.#unsent.length > 0) return;
    const onSent = this.#onSent;
    this.#onSent = undefined;
    onSent?.();
  }

  #makeData(): Outgoing {
    this.#isDataWaiting = false;
    this.#credits--;
    // behind this one, which is about to be posted
    queueMicrotask(() => this.#pump());
    return { data: this.#nextData(), imm: (Kind.DATA << 24) | this.#takeOwed() };
  }

  /** As many of the unsent bytes as one message takes. */
  #nextData(): Buffer {
    const most = Math.min(this.#peerBytes, this.#carrier.messageBytes);
    const parts: Buffer[] = [];
    for (let room = most; room > 0 && this.#unsent.length > 0; ) {
      const chunk = this.#unsent[0] as Buffer;
      const part = chunk.subarray(0, room);
      room -= part.length;
      parts.push(part);
      if (part.length === chunk.length) this.#unsent.shift();
      else this.#unsent[0] = chunk.subarray(part.length);
    }
    return parts.length === 1 ? (parts[0] as Buffer) : Buffer.concat(parts);
  }

  #takeOwed(): number {
    const owed = this.#owed;
    this.#owed = 0;
    return owed;
  }

  #send(kind: Kind, data: Buffer, credits: number): Promise<void> {
    return this.#post(() => ({ data, imm: (kind << 24) | credits }));
  }

  #post(make: () => Outgoing): Promise<void> {
    const sent = this.#carrier.post(make);
    sent.catch((error) => {
      if (!this.#isWhole) this.destroy(error);
    });
    return sent;
  }

  /** Hands data to the reader while he wants it. */
  #deliver(): void {
    while (this.#isWanted && this.#unread.length > 0) {
      const arrival = this.#unread.shift() as Arrival;
      const data = Buffer.from(arrival.bytes);
      arrival.release();
      this.#owed++;
      this.#isWanted = this.#give(data);
    }
    if (this.#unread.length === 0 && this.#isPeerAtEnd && !this.#isAtEnd) {
      this.#endReading();
      this.#send(Kind.DONE, NOTHING, 0);
    }
    // at least half of the window at once, so that two such messages are all that can be under way
    if (this.#owed * 2 >= this.#window && !this.#isPeerAtEnd) this.#send(Kind.CREDIT, NOTHING, this.#takeOwed());
  }

  #endReading(): void {
    if (!this.#isAtEnd) this.#give(null);
    this.#isAtEnd = true;
  }

  /** What a listener does must not disturb us: it may throw, and it may destroy the stream. @returns whether more is wanted */
  #give(data: Buffer | null): boolean {
    if (this.destroyed) return false;
    try {
      return this.push(data);
    } catch (error) {
      throwLater(error);
      return true;
    }
  }
}
