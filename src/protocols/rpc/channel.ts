/**
 * Frames over a connection. Frames that are ready at the same time share a message. Long bodies stay in registered
 * memory until the peer has read them.
 */

import { wrongType } from '../../base/options.js';
import type { Shares } from '../../base/shares.js';
import { clearTimeout, queueMicrotask, setTimeout } from '../../base/timers.js';
import type { Connection, Mr } from '../../index.js';
import type { PeerMemory } from '../../transport/peermemory.js';
import { Progress } from '../../transport/progress.js';
import { RpcError } from './status.js';
import {
  decodeLarge,
  encodeLarge,
  type Frame,
  type FrameInit,
  FrameType,
  frameBytes,
  LARGE,
  PROTOCOL,
  readFrames,
  writeFrame,
} from './wire.js';

/** Longest body that goes by SEND: a longer one costs less by READ, which needs a round trip more. */
export const SHORT_BYTES = 65_536;
/** Options of the connections of both ends. A message has room for the longest frame. */
export const CONNECTION_OPTIONS = {
  messageBytes: SHORT_BYTES + 512,
  receives: 32,
  sends: 32,
  privateData: PROTOCOL,
} as const;
/** Whether the peer speaks this protocol. */
export function isOurs({ privateData, peerMessageBytes = 0 }: Connection): boolean {
  return PROTOCOL.equals(privateData) && peerMessageBytes >= CONNECTION_OPTIONS.messageBytes;
}

/** Messages in flight from which on frames wait, so that more of them share a message. */
const BUSY = 4;
/** Bytes of frames that wait until the peer takes messages. Beyond, a server carries out and reads nothing. */
const MAX_WAITING_BYTES = 4 * CONNECTION_OPTIONS.messageBytes;
/** Frames RELEASE that wait at a client: a server that takes none has nothing to be read any more. */
const MAX_WAITING_RELEASES = 65_536;
/** A body that is less than half of a message of more bytes is copied, so that it does not keep the message. */
const CARRIER_BYTES = 8192;
/** Bytes in registered memory that wait for the peer; further bodies wait. */
const MAX_HELD_BYTES = 16 * 2 ** 20;
/** Time that the peer has to read a body (ms). */
const READ_MS = 60_000;

interface OutgoingMessage {
  readonly buffer: Buffer;
  /** Bytes of the frames in it. */
  bytes: number;
  /** Frames RELEASE in it. */
  releases: number;
}

/** Memory that the peer reads. */
interface Held {
  readonly mr: Mr;
  readonly timer: NodeJS.Timeout;
}

/** A body that waits for others to be read. */
interface Waiting {
  readonly bytes: number;
  resolve(): void;
  reject(error: Error): void;
}

export interface ChannelListener {
  /** A frame has come; `RELEASE` is none of them. @throws Error when the peer breaks the protocol */
  onFrame(frame: Frame): void;
  /** The connection has ended. Called once. */
  onEnd(error: RpcError): void;
}

export class Channel {
  readonly #connection: Connection;
  readonly #listener: ChannelListener;
  readonly #maxMessageBytes: number;
  /** Messages that wait; frames are added to the last one while it has room. */
  #messages: OutgoingMessage[] = [];
  /** Buffers of messages that were sent. */
  readonly #buffers: Buffer[] = [];
  #isScheduled = false;
  #inFlight = 0;
  /** Bytes of `#messages`, and their frames RELEASE. */
  #waitingBytes = 0;
  #waitingReleases = 0;
  /** Called when fewer bytes wait. */
  readonly #onRoom: (() => void)[] = [];
  readonly #progress: Progress;
  readonly #memory: Shares | undefined;
  readonly #held = new Map<number, Held>();
  #heldBytes = 0;
  readonly #waiting: Waiting[] = [];
  #end: RpcError | undefined;

  /**
   * @param maxMessageBytes longest body in both directions
   * @param memory of a server: the shares that its clients have of the device's memory
   */
  constructor(connection: Connection, maxMessageBytes: number, listener: ChannelListener, memory?: Shares) {
    this.#connection = connection;
    this.#maxMessageBytes = maxMessageBytes;
    this.#listener = listener;
    this.#memory = memory;
    this.#progress = new Progress(connection.qp, (error) => this.destroy(error));
    connection.once('end', () => this.#freeHeld());
    connection.once('close', (error) => this.#onClose(error));
    void this.#receiveAll();
  }

  get address(): string {
    return this.#connection.remoteAddress;
  }

  /** @param name of the argument @throws TypeError; RpcError RESOURCE_EXHAUSTED for a body that is too long */
  checkBody(name: string, body: Uint8Array): void {
    if (!(body instanceof Uint8Array)) throw wrongType(name, body, 'a Uint8Array');
    if (body.length > this.#maxMessageBytes) throw tooLong(body.length, this.#maxMessageBytes);
  }

  /** Sends a frame with a short body. */
  send(frame: FrameInit): void {
    if (this.#end !== undefined) return;
    let message = this.#messages.at(-1);
    if (message === undefined || message.bytes + frameBytes(frame) > message.buffer.length) {
      const buffer = this.#buffers.pop() ?? Buffer.allocUnsafeSlow(CONNECTION_OPTIONS.messageBytes);
      message = { buffer, bytes: 0, releases: 0 };
      this.#messages.push(message);
    }
    const before = message.bytes;
    message.bytes = writeFrame(message.buffer, before, frame);
    this.#waitingBytes += message.bytes - before;
    if (frame.type === FrameType.RELEASE) {
      message.releases++;
      if (++this.#waitingReleases > MAX_WAITING_RELEASES && !this.#isServer)
        this.destroy(new Error(`it takes none of ${MAX_WAITING_RELEASES} frames RELEASE`));
    }
    this.#schedule();
  }

  /**
   * Sends a frame with any body. The body may be changed when the promise has resolved.
   * @throws RpcError RESOURCE_EXHAUSTED when the device has no memory for it; why the connection has ended
   */
  async sendBody(frame: FrameInit & { readonly body: Uint8Array }): Promise<void> {
    if (this.#mustWait) await this.#untilRoom();
    if (this.#end !== undefined) throw this.#end;
    if (frame.body.length <= SHORT_BYTES) {
      this.send(frame);
      return;
    }
    await this.#reserve(frame.body.length);
    try {
      await this.#hold(frame, frame.body);
    } catch (error) {
      this.#unreserve(frame.body.length);
      throw error;
    }
  }

  /**
   * Returns the body of a frame, which the caller owns. Bytes in the peer's memory are read.
   * @throws RpcError RESOURCE_EXHAUSTED when it is longer than allowed; why the connection has ended
   */
  async body({ flags, body }: Frame): Promise<Buffer> {
    if ((flags & LARGE) === 0) return body;
    const large = decodeLarge(body);
    try {
      if (large.length > this.#maxMessageBytes) throw tooLong(large.length, this.#maxMessageBytes);
      return await this.#read(large);
    } finally {
      this.#release(large);
    }
  }

  async #read(large: PeerMemory): Promise<Buffer> {
    let bytes = 0;
    this.#progress.begin();
    try {
      const data = await this.#connection.read(large);
      bytes = data.length;
      return data;
    } catch (cause) {
      throw this.#end ?? new RpcError('UNAVAILABLE', (cause as Error).message, { cause });
    } finally {
      this.#progress.end(bytes);
    }
  }

  /** Frees a body that is not read. */
  discard({ flags, body }: Frame): void {
    if ((flags & LARGE) !== 0) this.#release(decodeLarge(body));
  }

  /** Sends what waits, then closes the connection. */
  async close(): Promise<void> {
    this.#flush(Number.POSITIVE_INFINITY);
    await this.#connection.close().catch(() => {});
  }

  /** Ends the connection at once. */
  destroy(error: Error): void {
    this.#connection.destroy(error);
  }

  #release({ rkey }: Pick<PeerMemory, 'rkey'>): void {
    this.send({ type: FrameType.RELEASE, call: 0, argument: rkey });
  }

  /** Waits until a body may be held. One body may have any length. */
  async #reserve(bytes: number): Promise<void> {
    if (this.#heldBytes > 0 && this.#heldBytes + bytes > MAX_HELD_BYTES)
      await new Promise<void>((resolve, reject) => this.#waiting.push({ bytes, resolve, reject }));
    else this.#heldBytes += bytes;
  }

  #unreserve(bytes: number): void {
    this.#heldBytes -= bytes;
    for (let next = this.#waiting[0]; next !== undefined; next = this.#waiting[0]) {
      if (this.#heldBytes > 0 && this.#heldBytes + next.bytes > MAX_HELD_BYTES) return;
      this.#waiting.shift();
      this.#heldBytes += next.bytes;
      next.resolve();
    }
  }

  /** Puts a body into registered memory, and tells the peer where. */
  async #hold(frame: FrameInit, body: Uint8Array): Promise<void> {
    if (this.#memory?.take(this.address, body.length) === false) {
      const held = this.#memory.held(this.address);
      throw new RpcError('RESOURCE_EXHAUSTED', `${this.address} has ${held} bytes of the device already`);
    }
    let mr: Mr;
    try {
      mr = await this.#connection.pd.regMr(body.length, { access: ['remoteRead'] });
    } catch (cause) {
      this.#memory?.release(this.address, body.length);
      throw this.#end ?? new RpcError('RESOURCE_EXHAUSTED', (cause as Error).message, { cause });
    }
    if (this.#end !== undefined) {
      this.#memory?.release(this.address, body.length);
      await mr.close();
      throw this.#end;
    }
    mr.copyIn(body);
    const late = () => this.destroy(new Error(`the peer has not read a message within ${READ_MS} ms`));
    this.#held.set(mr.rkey, { mr, timer: setTimeout(late, READ_MS).unref() });
    this.send({ ...frame, flags: LARGE, body: encodeLarge(mr.remote) });
  }

  #onRelease(rkey: number): void {
    const held = this.#held.get(rkey);
    if (held === undefined) throw new Error(`it has released memory with key ${rkey}, which it was not given`);
    this.#held.delete(rkey);
    this.#free(held);
    this.#unreserve(held.mr.length);
  }

  #free({ mr, timer }: Held): void {
    clearTimeout(timer);
    this.#memory?.release(this.address, mr.length);
    void mr.close();
  }

  // ---- messages ----

  #schedule(): void {
    if (this.#isScheduled || this.#inFlight >= BUSY) return;
    this.#isScheduled = true;
    // what else becomes ready in this turn of the event loop goes along
    queueMicrotask(() => {
      this.#isScheduled = false;
      this.#flush(BUSY);
    });
  }

  /** Sends messages while fewer than `busy` are in flight. */
  #flush(busy: number): void {
    while (this.#messages.length > 0 && this.#inFlight < busy && this.#end === undefined) {
      const { buffer, bytes, releases } = this.#messages.shift() as OutgoingMessage;
      this.#waitingBytes -= bytes;
      this.#waitingReleases -= releases;
      this.#inFlight++;
      const onSent = () => {
        this.#inFlight--;
        if (this.#buffers.length < BUSY) this.#buffers.push(buffer);
        this.#flush(BUSY);
        if (this.#waitingBytes <= MAX_WAITING_BYTES) for (const resolve of this.#onRoom.splice(0)) resolve();
      };
      // without the frames of the message the peer would wait for ever
      this.#connection.send(buffer.subarray(0, bytes)).then(onSent, (error) => this.destroy(error));
    }
  }

  get #isServer(): boolean {
    return this.#memory !== undefined;
  }

  /** Whether a server has more to send than its client takes. */
  get #mustWait(): boolean {
    return this.#isServer && this.#waitingBytes > MAX_WAITING_BYTES;
  }

  /** Waits until few enough bytes wait, or the connection has ended. */
  async #untilRoom(): Promise<void> {
    while (this.#mustWait && this.#end === undefined) await new Promise<void>((resolve) => this.#onRoom.push(resolve));
  }

  async #receiveAll(): Promise<void> {
    try {
      for (;;) {
        const message = await this.#connection.receive();
        if (message === undefined) return;
        for (const frame of readFrames(message.data)) {
          if (frame.type === FrameType.RELEASE) this.#onRelease(frame.argument);
          else this.#listener.onFrame({ ...frame, body: apart(frame.body) });
          // A client takes what comes: otherwise both ends might wait for each other.
          if (this.#mustWait) await this.#untilRoom();
        }
      }
    } catch (error) {
      this.destroy(error as Error);
    }
  }

  /** The peer reads nothing any more. */
  #freeHeld(): void {
    this.#end = new RpcError('UNAVAILABLE', 'the connection has ended');
    this.#progress.stop();
    for (const held of this.#held.values()) this.#free(held);
    this.#held.clear();
  }

  #onClose(cause: Error | undefined): void {
    this.#end = new RpcError('UNAVAILABLE', cause?.message ?? 'the connection was closed', cause && { cause });
    this.#messages = [];
    for (const { reject } of this.#waiting.splice(0)) reject(this.#end);
    for (const resolve of this.#onRoom.splice(0)) resolve();
    this.#listener.onEnd(this.#end);
  }
}

/** Returns a body that keeps no more memory than it needs, or little more: it may wait for long. */
function apart(body: Buffer): Buffer {
  const { byteLength } = body.buffer;
  if (byteLength <= CARRIER_BYTES || 2 * body.length >= byteLength) return body;
  const copy = Buffer.allocUnsafeSlow(body.length);
  body.copy(copy);
  return copy;
}

function tooLong(length: number, most: number): RpcError {
  return new RpcError('RESOURCE_EXHAUSTED', `the message has ${length} bytes, at most ${most} are allowed`);
}
