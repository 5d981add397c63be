/**
 * Memory that one end has mapped and the other one writes at offsets, as riomap and riowrite of librdmacm do: the
 * mappings of the peer, and our own. The end that maps writes an entry into the table of the other one.
 */
import { type Mr, type Pd, VerbsError } from '../../index.js';
import type { PeerMemory } from '../../transport/peermemory.js';
import { MAPPING_BYTES, type Mapping, readMapping } from './wire.js';

/** The memory that the peer has mapped: our table, which the peer writes. */
export class PeerMappings {
  readonly #table: DataView;
  /** Entries by their index: the table may change while we read it, these do not. */
  readonly #entries: (Mapping | undefined)[];

  constructor(table: Buffer) {
    this.#table = new DataView(table.buffer, table.byteOffset, table.length);
    this.#entries = new Array(table.length / MAPPING_BYTES);
  }

  /** Number of entries. */
  get size(): number {
    return this.#entries.length;
  }

  /** The peer has written an entry, which is less than `size`. */
  take(index: number): void {
    this.#entries[index] = readMapping(this.#table, index * MAPPING_BYTES);
  }

  /**
   * Returns where bytes from an offset on are, of which there may be fewer than there are to write.
   * @throws VerbsError EINVAL when the peer has not mapped the offset
   */
  find(offset: bigint): PeerMemory {
    for (const entry of this.#entries) {
      const at = entry === undefined ? -1n : offset - entry.offset;
      if (entry === undefined || at < 0n || at >= BigInt(entry.target.length)) continue;
      const { addr, rkey, length } = entry.target;
      return { addr: addr + at, rkey, length: length - Number(at) };
    }
    throw new VerbsError('EINVAL', `the peer has not mapped the offset ${offset}`);
  }
}

/** The memory that we have mapped: regions of ours, in the order of their entries in the peer's table. */
export class OwnMappings {
  readonly #regions: { readonly mr: Mr; readonly offset: bigint }[] = [];

  /**
   * Registers memory for the peer.
   * @param size entries of the peer's table
   * @returns the index of the entry that the peer is to have
   * @throws VerbsError EINVAL when the peer's table is full or a mapping overlaps, ENOMEM
   */
  async map(pd: Pd, bytes: number, offset: bigint, size: number): Promise<{ mr: Mr; index: number; entry: Mapping }> {
    const mr = await pd.regMr(bytes, { access: ['localWrite', 'remoteWrite'] });
    try {
      if (this.#regions.length >= size)
        throw new VerbsError('EINVAL', `the peer takes ${size} mappings (its option iomapSize, or RDMA_IOMAPSIZE)`);
      const over = this.#regions.find(
        (one) => offset < one.offset + BigInt(one.mr.length) && one.offset < offset + BigInt(bytes),
      );
      if (over)
        throw new VerbsError(
          'EINVAL',
          `offsets ${offset} to ${offset + BigInt(bytes)} overlap the mapping at ${over.offset}`,
        );
    } catch (error) {
      await mr.close();
      throw error;
    }
    const index = this.#regions.push({ mr, offset }) - 1;
    return { mr, index, entry: { offset, target: { addr: BigInt(mr.iova), rkey: mr.rkey, length: bytes } } };
  }

  /** Frees the memory. The queue pair is closed before. */
  async close(): Promise<void> {
    for (const { mr } of this.#regions.splice(0)) await mr.close();
  }
}
