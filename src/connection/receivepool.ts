/**
 * Receive buffers that the connections of a server share, in a shared receive queue; or those of the connections that a
 * device makes itself, or of one connection alone. A connection that waits for messages has no buffer of its own.
 *
 * There are as many buffers as all connections may hold, up to a limit in bytes. A connection holds a buffer from the
 * first packet of a message until the message is read. It never holds more than its `receives`. When the limit keeps
 * buffers short, one for each connection, up to half of them, are left to connections that hold none
 * (assembly/qp/quota.ts). Beyond that the peer gets RNR NAKs and repeats the message, so that a slow reader slows down
 * its own peer only.
 */
import { VerbsError } from '../errors.js';
import type { Context } from '../verbs/context.js';
import { Mr } from '../verbs/mr.js';
import type { Pd } from '../verbs/pd.js';
import type { Qp } from '../verbs/qp.js';
import type { Srq } from '../verbs/srq.js';
import type { Wc } from '../verbs/wc.js';
import type { RecvWr } from '../verbs/wr.js';
import { SharedCq } from './sharedcq.js';

/** Default limit of the buffers of a server, and the share of the device's memory that it may be. */
const POOL_BYTES = 2 ** 24;
const MEMORY_SHARE = 1 / 8;
/** Buffers at most, unless one connection asks for more. */
const MAX_BUFFERS = 4096;
/** Largest limit of the bytes: the card's memory. */
export const MAX_POOL_BYTES = 2 ** 32;

/** A message in its receive buffer. */
export interface ReceivedMessage {
  /** Valid until `release`. */
  readonly bytes: Buffer;
  readonly imm: number | undefined;
  /** Posts the buffer again for another message. */
  release(): void;
}

interface ReceiveBuffer {
  readonly bytes: Buffer;
  readonly wr: RecvWr;
  /** The connection whose message is in it. */
  holder: Receives | undefined;
}

/** The pools of a server, or of a device for its own connections: one for each size of messages. */
export class ReceivePools {
  readonly #device: Context;
  readonly #pools = new Map<number, Promise<ReceivePool>>();
  #maxBytes: number;

  /** @param maxBytes bytes of the buffers of one size. Default: 16 MiB, at most an eighth of the device's memory */
  constructor(device: Context, maxBytes?: number) {
    this.#device = device;
    this.#maxBytes = maxBytes ?? Math.min(POOL_BYTES, device.card.options.memoryBytes * MEMORY_SHARE);
  }

  /** Raises the limit, for pools that do not exist yet. */
  raise(maxBytes: number): void {
    this.#maxBytes = Math.max(this.#maxBytes, maxBytes);
  }

  /**
   * Returns the pool for one more connection, which leaves it by `leave`.
   * @param receives buffers that the connection may hold
   * @throws VerbsError ENOMEM
   */
  async join(messageBytes: number, receives: number): Promise<ReceivePool> {
    const count = Math.max(receives, Math.min(Math.floor(this.#maxBytes / messageBytes), MAX_BUFFERS));
    const pending = this.#pools.get(messageBytes) ?? ReceivePool.create(this.#device, messageBytes, count);
    this.#pools.set(messageBytes, pending);
    const forget = () => {
      if (this.#pools.get(messageBytes) === pending) this.#pools.delete(messageBytes);
    };
    try {
      const pool = await pending;
      // The last connection may have left meanwhile.
      if (this.#pools.get(messageBytes) !== pending) return await this.join(messageBytes, receives);
      pool.addUser(forget);
      return pool;
    } catch (error) {
      forget();
      throw error;
    }
  }
}

export class ReceivePool {
  readonly cq: SharedCq;
  readonly srq: Srq;
  readonly #messageBytes: number;
  readonly #maxBuffers: number;
  #onEmpty: () => void = () => {};
  readonly #buffers: ReceiveBuffer[] = [];
  readonly #mrs: Mr[] = [];
  /** Buffers that all connections together may hold. */
  #wanted = 0;
  /** Connections whose peer is ready, and all. */
  #members = 0;
  #users = 0;

  private constructor(srq: Srq, cq: SharedCq, messageBytes: number, maxBuffers: number) {
    this.srq = srq;
    this.cq = cq;
    this.#messageBytes = messageBytes;
    this.#maxBuffers = maxBuffers;
  }

  /** @throws VerbsError ENOMEM */
  static async create(device: Context, messageBytes: number, maxBuffers: number): Promise<ReceivePool> {
    const pd = (await device.allocPd()).makeInternal();
    let srq: Srq | undefined;
    try {
      srq = (await pd.createSrq({ maxWr: maxBuffers, maxSge: 1 })).makeInternal();
      const cq = await SharedCq.create(device, maxBuffers, (wc) => pool.#post(wc.wrId));
      const pool: ReceivePool = new ReceivePool(srq, cq, messageBytes, maxBuffers);
      return pool;
    } catch (error) {
      await srq?.close();
      await pd.close();
      throw error;
    }
  }

  /** Whether buffers are posted. */
  get hasBuffers(): boolean {
    return this.#buffers.length > 0;
  }

  /** @param onEmpty called when the last connection leaves */
  addUser(onEmpty: () => void): void {
    this.#users++;
    this.#onEmpty = onEmpty;
  }

  /** The last connection frees everything. */
  async leave(): Promise<void> {
    if (--this.#users > 0) return;
    this.#onEmpty();
    const { pd } = this.srq;
    await this.srq.close();
    await this.cq.close();
    for (const mr of this.#mrs) await mr.close();
    await pd.close();
  }

  /**
   * Adds the buffers of one more connection, within the limit.
   * @throws VerbsError ENOMEM when there are less than the connection alone may hold; otherwise all share what there is
   */
  grow(receives: number): void {
    this.#wanted += receives;
    this.#members++;
    const missing = Math.min(this.#wanted, this.#maxBuffers) - this.#buffers.length;
    try {
      if (missing > 0) this.#add(missing);
    } catch (error) {
      const isEnough = this.#buffers.length >= Math.min(receives, this.#maxBuffers);
      if (!isEnough || !(error instanceof VerbsError) || error.code !== 'ENOMEM') {
        this.shrink(receives);
        throw error;
      }
    }
    this.#updateReserve();
  }

  /** A connection has left. The buffers stay for others, because posted receives cannot be taken back. */
  shrink(receives: number): void {
    this.#wanted -= receives;
    this.#members--;
    this.#updateReserve();
  }

  /** Returns the buffer of a completed receive, which the connection now holds. */
  take(wc: Wc, holder: Receives): ReceiveBuffer {
    const buffer = this.#buffers[wc.wrId] as ReceiveBuffer;
    buffer.holder = holder;
    return buffer;
  }

  /** Posts the buffer again. @returns false when the connection does not hold it any more */
  release(buffer: ReceiveBuffer, holder: Receives): boolean {
    if (buffer.holder !== holder) return false;
    buffer.holder = undefined;
    this.#post(buffer.wr.wrId as number);
    return true;
  }

  /** Posts all buffers again that a connection still holds. */
  releaseAll(holder: Receives): void {
    for (const buffer of this.#buffers) this.release(buffer, holder);
  }

  #updateReserve(): void {
    const count = this.#buffers.length;
    if (this.srq.isAlive) this.srq.reserve(this.#wanted > count ? Math.min(this.#members, count >> 1) : 0);
  }

  #add(count: number): void {
    const { pd } = this.srq;
    const size = this.#messageBytes;
    const mr = new Mr(pd as Pd, pd.handle, pd.device.memory, count * size, {}).makeInternal();
    this.#mrs.push(mr);
    for (let at = 0; at < mr.length; at += size) {
      const wrId = this.#buffers.length;
      const bytes = mr.buffer.subarray(at, at + size);
      this.#buffers.push({ bytes, wr: { wrId, sgList: mr.slice(at, size) }, holder: undefined });
      this.#post(wrId);
    }
  }

  #post(index: number): void {
    const buffer = this.#buffers[index];
    if (buffer !== undefined && this.srq.isAlive) this.srq.postRecv(buffer.wr);
  }
}

/** The receives of one connection. */
export class Receives {
  /** Called with each message as it arrives. */
  onMessage: (arrival: ReceivedMessage) => void = () => {};
  #qp: Qp | undefined;
  #heldCount = 0;
  #hasBuffers = false;

  /** @param pool joined for this connection @param count buffers that it may hold */
  constructor(
    readonly pool: ReceivePool,
    readonly count: number,
  ) {}

  /** The completions of the queue pair, which takes its receives from the pool, go to a handler. */
  attach(qp: Qp, onReceived: (wc: Wc) => void): void {
    this.#qp = qp;
    qp.limitReceives(this.count);
    this.pool.cq.add(qp.qpNum, onReceived);
  }

  /** Adds the connection's buffers to the pool. A second call does nothing. @throws VerbsError ENOMEM as `grow` */
  addBuffers(): void {
    if (this.#hasBuffers) return;
    this.pool.grow(this.count);
    this.#hasBuffers = true;
  }

  /** Passes the message of a completed receive to `onMessage`. */
  onCompletion(wc: Wc): void {
    const buffer = this.#take(wc);
    // A WRITE_WITH_IMM consumes a receive as well, but places no bytes in its buffer.
    const length = wc.opcodeName === 'RECV' ? wc.byteLen : 0;
    this.onMessage({
      bytes: buffer.bytes.subarray(0, length),
      imm: wc.hasImm ? wc.immData : undefined,
      release: () => this.#release(buffer),
    });
  }

  /** Releases the buffer of a completed receive without a message for the connection. */
  discard(wc: Wc): void {
    this.#release(this.#take(wc));
  }

  /** Gives everything back to the pool. The queue pair is closed. */
  async close(): Promise<void> {
    if (this.#qp !== undefined) this.pool.cq.remove(this.#qp.qpNum);
    if (this.#heldCount > 0) this.pool.releaseAll(this);
    if (this.#hasBuffers) this.pool.shrink(this.count);
    await this.pool.leave();
  }

  #take(wc: Wc): ReceiveBuffer {
    this.#heldCount++;
    return this.pool.take(wc, this);
  }

  #release(buffer: ReceiveBuffer): void {
    if (!this.pool.release(buffer, this)) return;
    this.#heldCount--;
    this.#qp?.returnReceive();
  }
}
