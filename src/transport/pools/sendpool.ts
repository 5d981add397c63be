/**
 * The parts that the connections of a device share for sending: one completion queue, and registered buffers, which a
 * request has from when it is posted until it is complete. Connections without requests in flight need no memory.
 *
 * Buffers of one size come from slabs, each of which is one region. A slab without users is kept for the next requests,
 * up to a share of the device's memory; so is all that the last connection leaves, for connections one after another.
 */
import { VerbsError } from '../../errors.js';
import type { Context } from '../../verbs/objects/context.js';
import type { DeviceBase } from '../../verbs/objects/devicebase.js';
import { Mr } from '../../verbs/objects/mr.js';
import type { Pd } from '../../verbs/objects/pd.js';
import type { Qp } from '../../verbs/objects/qp.js';
import type { Wc } from '../../verbs/work/wc.js';
import type { Sge } from '../../verbs/work/wr.js';
import { SharedCq } from '../sharedcq.js';

const MIN_BUFFER_BYTES = 256;
const SLAB_BYTES = 65536;

/** Registered memory of one request: its outgoing data, or its response. */
export class SendBuffer {
  constructor(
    readonly slab: Slab,
    readonly bytes: Buffer,
    readonly addr: number,
  ) {}

  /** Returns the first `length` bytes as a scatter/gather element. */
  sge(length: number): Sge {
    return { addr: this.addr, length, lkey: this.slab.mr.lkey };
  }
}

/** One region, divided into buffers of one size. */
class Slab {
  readonly free: SendBuffer[] = [];
  readonly count: number;

  constructor(
    readonly mr: Mr,
    readonly bufferBytes: number,
  ) {
    this.count = mr.length / bufferBytes;
    for (let at = 0; at < mr.length; at += bufferBytes)
      this.free.push(new SendBuffer(this, mr.buffer.subarray(at, at + bufferBytes), mr.addr + at));
  }
}

const byDevice = new WeakMap<DeviceBase, Promise<SendPool>>();

export class SendPool {
  readonly cq: SharedCq;
  readonly #pd: Pd;
  /** Slabs with free buffers, by the size of these. */
  readonly #slabs = new Map<number, Slab[]>();
  /** Bytes of the buffers of all requests, and of slabs without any. */
  #usedBytes = 0;
  #unusedBytes = 0;
  /** Connections without a buffer that wait for one, in order. */
  readonly #waiting = new Set<() => boolean>();
  #users = 0;

  private constructor(pd: Pd, cq: SharedCq) {
    this.#pd = pd;
    this.cq = cq;
  }

  /** Returns the pool of a device for one more connection, which leaves it by `leave`. @throws VerbsError ENOMEM */
  static async join(device: Context): Promise<SendPool> {
    const pending = byDevice.get(device) ?? SendPool.#create(device);
    byDevice.set(device, pending);
    try {
      const pool = await pending;
      // The last connection may have left meanwhile.
      if (byDevice.get(device) !== pending) return await SendPool.join(device);
      pool.#users++;
      return pool;
    } catch (error) {
      if (byDevice.get(device) === pending) byDevice.delete(device);
      throw error;
    }
  }

  static async #create(device: Context): Promise<SendPool> {
    const pd = (await device.allocPd()).makeInternal();
    try {
      return new SendPool(pd, await SharedCq.create(device, 64));
    } catch (error) {
      await pd.close();
      throw error;
    }
  }

  /** The completions of a queue pair's send queue go to a handler. @throws VerbsError ENOMEM */
  async attach(qp: Qp, onSent: (wc: Wc) => void): Promise<void> {
    this.cq.add(qp.qpNum, onSent);
    await this.cq.reserve(qp.maxSendWr);
  }

  /** A connection leaves, whose queue pair is closed. */
  async leave(qp: Qp | undefined): Promise<void> {
    if (qp !== undefined) {
      this.cq.remove(qp.qpNum);
      await this.cq.reserve(-qp.maxSendWr);
    }
    if (--this.#users > 0 || this.#unusedBytes + this.cq.bytes <= this.#maxUnusedBytes) return;
    byDevice.delete(this.#pd.device);
    await this.cq.close();
    for (const slab of [...this.#slabs.values()].flat()) await slab.mr.close();
    await this.#pd.close();
  }

  /**
   * Returns a buffer, or undefined when the caller has to wait for others. The more is in use, the less one connection
   * may have, so that peers that take nothing leave memory to the others.
   * @param length bytes, 1 or more @param heldBytes of the caller's other buffers
   * @throws VerbsError ENOMEM when there is no memory although no request has any
   */
  take(length: number, heldBytes: number): SendBuffer | undefined {
    const bytes = bufferBytesFor(length);
    const limit = this.#memoryBytes / 2;
    if (heldBytes > 0 && heldBytes + bytes > limit - this.#usedBytes) return undefined;
    const slab = this.#slabs.get(bytes)?.at(-1) ?? this.#addSlab(bytes);
    if (slab === undefined) {
      if (this.#usedBytes > 0) return undefined;
      const left = this.#pd.device.card.exports.memAvailable();
      throw new VerbsError(
        'ENOMEM',
        `no memory for a message of ${length} bytes: ${left} bytes of the device are left`,
      );
    }
    if (slab.free.length === slab.count) this.#unusedBytes -= slab.mr.length;
    const buffer = slab.free.pop() as SendBuffer;
    if (slab.free.length === 0) this.#slabs.get(bytes)?.pop();
    this.#usedBytes += bytes;
    return buffer;
  }

  /** Calls `retry` when memory may be available, until it returns true. */
  wait(retry: () => boolean): void {
    this.#waiting.add(retry);
  }

  /** Takes a buffer back. The request that had it must be complete, or its queue pair in ERR. */
  release(buffer: SendBuffer): void {
    const { slab } = buffer;
    this.#usedBytes -= slab.bufferBytes;
    slab.free.push(buffer);
    if (slab.free.length === 1) this.#slabsOf(slab.bufferBytes).push(slab);
    if (slab.free.length === slab.count) {
      this.#unusedBytes += slab.mr.length;
      if (this.#unusedBytes > this.#maxUnusedBytes) this.#closeUnused();
    }
    for (const retry of this.#waiting) {
      if (!retry()) return;
      this.#waiting.delete(retry);
    }
  }

  get #memoryBytes(): number {
    return this.#pd.device.card.options.memoryBytes;
  }

  get #maxUnusedBytes(): number {
    return this.#memoryBytes / 64;
  }

  #slabsOf(bytes: number): Slab[] {
    const slabs = this.#slabs.get(bytes) ?? [];
    this.#slabs.set(bytes, slabs);
    return slabs;
  }

  #addSlab(bytes: number): Slab | undefined {
    const mr = this.#register(Math.max(bytes, SLAB_BYTES)) ?? this.#register(bytes);
    if (mr === undefined) return undefined;
    const slab = new Slab(mr, bytes);
    this.#unusedBytes += mr.length;
    this.#slabsOf(bytes).push(slab);
    return slab;
  }

  /** @returns undefined when memory or regions are exhausted */
  #register(bytes: number): Mr | undefined {
    const { device, handle } = this.#pd;
    for (;;) {
      try {
        return new Mr(this.#pd, handle, device.memory, bytes, {}).makeInternal().allowAllDomains();
      } catch (error) {
        if (!(error instanceof VerbsError) || error.code !== 'ENOMEM') throw error;
        if (this.#unusedBytes === 0) return undefined;
        this.#closeUnused();
      }
    }
  }

  #closeUnused(): void {
    for (const [bytes, slabs] of this.#slabs) {
      const isUsed = ({ free, count }: Slab) => free.length < count;
      for (const { mr } of slabs.filter((slab) => !isUsed(slab))) void mr.close();
      const used = slabs.filter(isUsed);
      if (used.length > 0) this.#slabs.set(bytes, used);
      else this.#slabs.delete(bytes);
    }
    this.#unusedBytes = 0;
  }
}

/** Returns a power of two; above the size of a slab, the next multiple of it. */
function bufferBytesFor(length: number): number {
  if (length > SLAB_BYTES) return Math.ceil(length / SLAB_BYTES) * SLAB_BYTES;
  return Math.max(MIN_BUFFER_BYTES, 2 ** Math.ceil(Math.log2(length)));
}
