/**
 * Receive buffers that the connections of a server share, in a shared receive queue; or those of the connections that a
 * device makes itself, or of one connection alone. A connection that waits for messages has no buffer of its own. The
 * buffers have no memory where the bytes of messages go elsewhere, by WRITE with immediate.
 *
 * There are as many buffers as all connections may hold, up to a limit in bytes. A connection holds a buffer from the
 * first packet of a message until the message is read. It never holds more than its `receives`. When the limit keeps
 * buffers short, one for each connection, up to half of them, are left to connections that hold none
 * (assembly/qp/quota.ts). Beyond that the peer gets RNR NAKs and repeats the message, so that a slow reader slows down
 * its own peer only.
 *
 * A small pool that its last connection has left is kept for the next one: making it takes a third of the time of
 * connecting.
 */
import { VerbsError } from '../../errors.js';
import type { Context } from '../../verbs/objects/context.js';
import { Mr } from '../../verbs/objects/mr.js';
import type { Qp } from '../../verbs/objects/qp.js';
import type { Srq } from '../../verbs/objects/srq.js';
import type { Wc } from '../../verbs/work/wc.js';
import type { RecvWr } from '../../verbs/work/wr.js';
import { SharedCq } from '../sharedcq.js';

/** Default limit of the buffers of a server, and the share of the device's memory that it may be. */
const POOL_BYTES = 2 ** 24;
const MEMORY_SHARE = 1 / 8;
/** Share of the device's memory that the pools without connections take at most. */
const KEPT_SHARE = 1 / 64;
/** Bytes of a receive in the card (assembly/host/wqe.ts). */
const RECEIVE_BYTES = 32;
/** Buffers at most, unless one connection asks for more. */
const MAX_BUFFERS = 4096;
/** Largest limit of the bytes: the card's memory. */
export const MAX_POOL_BYTES = 2 ** 32;
const NO_BYTES = Buffer.alloc(0);

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
  readonly wr: RecvWr & { readonly wrId: number };
  /** The connection whose message is in it. */
  holder: Receives | undefined;
}

/** The pools of a server, or of a device for its own connections: one for each size of messages. */
export class ReceivePools {
  readonly #device: Context;
  readonly #pools = new Map<number, Promise<ReceivePool>>();
  /** Those of them that no connection has. */
  readonly #unused = new Set<ReceivePool>();
  #maxBytes: number;
  #maxKeptBytes: number;

  /**
   * @param maxBytes bytes of the buffers of one size. Default: 16 MiB, at most an eighth of the device's memory
   * @param isKept whether pools without connections may be kept, until `close`
   */
  constructor(device: Context, { maxBytes, isKept }: { maxBytes?: number | undefined; isKept: boolean }) {
    const { memoryBytes } = device.card.options;
    this.#device = device;
    this.#maxBytes = maxBytes ?? Math.min(POOL_BYTES, memoryBytes * MEMORY_SHARE);
    this.#maxKeptBytes = isKept ? memoryBytes * KEPT_SHARE : 0;
  }

  /** Raises the limit, for pools that do not exist yet or have no connection. */
  raise(maxBytes: number): void {
    this.#maxBytes = Math.max(this.#maxBytes, maxBytes);
  }

  /**
   * Returns the pool for one more connection, which leaves it by `leave`.
   * @param messageBytes bytes of a buffer; 0: none
   * @param receives buffers that the connection may hold
   * @throws VerbsError ENOMEM
   */
  async join(messageBytes: number, receives: number): Promise<ReceivePool> {
    const count = Math.max(receives, Math.min(Math.floor(this.#maxBytes / messageBytes), MAX_BUFFERS));
    const pending = this.#pools.get(messageBytes) ?? this.#create(messageBytes, count);
    this.#pools.set(messageBytes, pending);
    try {
      const pool = await pending;
      // The last connection may have left meanwhile.
      if (this.#pools.get(messageBytes) !== pending) return await this.join(messageBytes, receives);
      if (this.#unused.delete(pool) && pool.maxBuffers !== count) {
        this.#pools.delete(messageBytes);
        await pool.close();
        return await this.join(messageBytes, receives);
      }
      pool.addUser();
      return pool;
    } catch (error) {
      if (this.#pools.get(messageBytes) === pending) this.#pools.delete(messageBytes);
      throw error;
    }
  }

  /** Frees the pools without connections, and from now on each with its last connection. */
  async close(): Promise<void> {
    this.#maxKeptBytes = 0;
    for (const pool of this.#unused) {
      this.#unused.delete(pool);
      this.#pools.delete(pool.messageBytes);
      await pool.close();
    }
  }

  #create(messageBytes: number, count: number): Promise<ReceivePool> {
    return ReceivePool.create(this.#device, messageBytes, count, async (pool) => {
      const keptBytes = [...this.#unused, pool].reduce((sum, { bytes }) => sum + bytes, 0);
      if (keptBytes <= this.#maxKeptBytes) {
        this.#unused.add(pool);
        return;
      }
      this.#pools.delete(messageBytes);
      await pool.close();
    });
  }
}

export class ReceivePool {
  readonly cq: SharedCq;
  readonly srq: Srq;
  readonly messageBytes: number;
  readonly maxBuffers: number;
  /** Called when the last connection leaves. */
  readonly #onUnused: (pool: ReceivePool) => Promise<void>;
  readonly #buffers: ReceiveBuffer[] = [];
  readonly #mrs: Mr[] = [];
  /** Buffers that all connections together may hold. */
  #wanted = 0;
  /** Connections whose peer is ready, and all. */
  #members = 0;
  #users = 0;

  private constructor(
    srq: Srq,
    cq: SharedCq,
    messageBytes: number,
    maxBuffers: number,
    onUnused: (pool: ReceivePool) => Promise<void>,
  ) {
    this.srq = srq;
    this.cq = cq;
    this.messageBytes = messageBytes;
    this.maxBuffers = maxBuffers;
    this.#onUnused = onUnused;
  }

  /** @param onUnused called when the last connection leaves @throws VerbsError ENOMEM */
  static async create(
    device: Context,
    messageBytes: number,
    maxBuffers: number,
    onUnused: (pool: ReceivePool) => Promise<void>,
  ): Promise<ReceivePool> {
    const pd = (await device.allocPd()).makeInternal();
    let srq: Srq | undefined;
    try {
      srq = (await pd.createSrq({ maxWr: maxBuffers, maxSge: 1 })).makeInternal();
      const cq = await SharedCq.create(device, maxBuffers, (wc) => pool.#post(wc.wrId));
      const pool: ReceivePool = new ReceivePool(srq, cq, messageBytes, maxBuffers, onUnused);
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

  /** Bytes of the card's memory that it takes. */
  get bytes(): number {
    return this.#mrs.reduce((sum, mr) => sum + mr.length, this.maxBuffers * RECEIVE_BYTES + this.cq.bytes);
  }

  addUser(): void {
    this.#users++;
  }

  async leave(): Promise<void> {
    if (--this.#users === 0) await this.#onUnused(this);
  }

  /** Frees everything. No connection has the pool. */
  async close(): Promise<void> {
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
    const missing = Math.min(this.#wanted, this.maxBuffers) - this.#buffers.length;
    try {
      if (missing > 0) this.#add(missing);
    } catch (error) {
      const isEnough = this.#buffers.length >= Math.min(receives, this.maxBuffers);
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
    this.#post(buffer.wr.wrId);
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
    const size = this.messageBytes;
    const mr = size > 0 ? new Mr(pd, pd.handle, pd.device.memory, count * size, {}).makeInternal() : undefined;
    if (mr !== undefined) this.#mrs.push(mr);
    const first = this.#buffers.length;
    for (let n = 0; n < count; n++) {
      const bytes = mr?.buffer.subarray(n * size, (n + 1) * size) ?? NO_BYTES;
      const wr = { wrId: first + n, sgList: mr?.sge(n * size, size) ?? [] };
      this.#buffers.push({ bytes, wr, holder: undefined });
    }
    this.srq.postRecv(this.#buffers.slice(first).map(({ wr }) => wr));
  }

  #post(index: number): void {
    const buffer = this.#buffers[index];
    if (buffer !== undefined && this.srq.isAlive) this.srq.postRecv(buffer.wr);
  }
}

/** The receives of one connection. */
export class Receives {
  #onMessage: (arrival: ReceivedMessage) => void = () => {};
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

  /** Passes each message to a handler as it arrives. A call, for the reason of `EventChannel.observe`. */
  deliverTo(onMessage: (arrival: ReceivedMessage) => void): void {
    this.#onMessage = onMessage;
  }

  /** Adds the connection's buffers to the pool. A second call does nothing. @throws VerbsError ENOMEM as `grow` */
  addBuffers(): void {
    if (this.#hasBuffers) return;
    this.pool.grow(this.count);
    this.#hasBuffers = true;
  }

  /** Passes the message of a completed receive to the handler. */
  onCompletion(wc: Wc): void {
    const buffer = this.#take(wc);
    // A WRITE_WITH_IMM consumes a receive as well, but places no bytes in its buffer.
    const length = wc.opcodeName === 'RECV' ? wc.byteLen : 0;
    this.#onMessage({
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
