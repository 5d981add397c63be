/**
 * Mapped memory of a connection of rsockets: one end maps it, and the other end writes to it. This file keeps the
 * updates and writes that wait or are in flight. The transport posts them.
 */
import { type Mr, type Pd, VerbsError } from '../../index.js';
import type { PeerMemory } from '../../transport/peermemory.js';
import { OwnMappings, PeerMappings } from './mappings.js';
import { broken, MAPPING_BYTES, type Mapping } from './wire.js';

/** Bytes for memory that the peer has mapped. */
interface MappedWrite {
  readonly to: PeerMemory;
  readonly data: Uint8Array;
  /** Called when they are acknowledged, if they are the last ones of a call. */
  readonly done?: (error?: Error) => void;
}

/** An entry of the peer's table that has to be written. */
interface MappingUpdate {
  readonly index: number;
  readonly entry: Mapping;
  readonly done: (error?: Error) => void;
}

/** The transport, as its mappings see it. */
export interface IomapTransport {
  /** Writes an entry of the peer's table. @returns false when it has to wait */
  postMapping(index: number, entry: Mapping): boolean;
  /** Writes bytes to memory of the peer. @returns the number that has left; 0: they have to wait */
  postMapped(to: PeerMemory, data: Uint8Array): number;
}

export class Iomap {
  readonly #transport: IomapTransport;
  readonly #peerMappings: PeerMappings;
  readonly #ownMappings = new OwnMappings();
  /** The first one may be on its way. */
  readonly #updates: MappingUpdate[] = [];
  #isUpdateInFlight = false;
  /** Writes that wait, and what is called for each message of them in flight. */
  readonly #writes: MappedWrite[] = [];
  readonly #inFlight: (((error?: Error) => void) | undefined)[] = [];
  #isEnded = false;
  /** Entries of our table that the peer has written. */
  taken = 0;

  /** @param table the memory of our table, which the peer writes */
  constructor(transport: IomapTransport, table: Buffer) {
    this.#transport = transport;
    this.#peerMappings = new PeerMappings(table);
  }

  /** Entries of our table. */
  get size(): number {
    return this.#peerMappings.size;
  }

  /** Entries and writes that wait or are not acknowledged as a whole. */
  get pending(): number {
    return this.#updates.length + this.#writes.length;
  }

  /**
   * Maps memory for the peer, which knows of it before what is written later.
   * @param size entries of the peer's table
   * @returns when the peer's adapter has acknowledged the entry
   * @throws VerbsError EINVAL, ENOMEM as `OwnMappings.map`, ECANCELED when the socket ends before
   */
  async map(pd: Pd, bytes: number, offset: bigint, size: number): Promise<Mr> {
    const { mr, index, entry } = await this.#ownMappings.map(pd, bytes, offset, size);
    if (this.#isEnded) throw ended();
    await new Promise<void>((resolve, reject) => {
      this.#updates.push({ index, entry, done: (error) => (error ? reject(error) : resolve()) });
      this.sendMappings();
    });
    return mr;
  }

  /**
   * Writes to memory that the peer has mapped.
   * @returns when the peer's adapter has acknowledged all
   * @throws VerbsError EINVAL when the peer has not mapped all of it, ECANCELED when the socket ends before
   */
  async write(data: Uint8Array, offset: bigint): Promise<void> {
    const parts: Omit<MappedWrite, 'done'>[] = [];
    for (let at = 0; at < data.length; ) {
      const to = this.#peerMappings.find(offset + BigInt(at));
      parts.push({ to, data: data.subarray(at, at + to.length) });
      at += to.length;
    }
    if (this.#isEnded) throw ended();
    const last = parts.pop();
    if (last === undefined) return;
    await new Promise<void>((resolve, reject) => {
      this.#writes.push(...parts, { ...last, done: (error) => (error ? reject(error) : resolve()) });
      this.sendWrites();
    });
  }

  /** Tells the peer of our mappings, one after the other. */
  sendMappings(): void {
    const [first] = this.#updates;
    if (first === undefined || this.#isUpdateInFlight) return;
    this.#isUpdateInFlight = this.#transport.postMapping(first.index, first.entry);
  }

  /** Writes to mapped memory as long as there is room. */
  sendWrites(): void {
    for (let [first] = this.#writes; first !== undefined; [first] = this.#writes) {
      const { to, data, done } = first;
      const length = this.#transport.postMapped(to, data);
      if (length === 0) return;
      const isWhole = length === data.length;
      this.#inFlight.push(isWhole ? done : undefined);
      if (isWhole) this.#writes.shift();
      else this.#writes[0] = { ...first, to: { ...to, addr: to.addr + BigInt(length) }, data: data.subarray(length) };
    }
  }

  /** An entry of the peer's table is acknowledged. */
  onMappingSent(): void {
    this.#isUpdateInFlight = false;
    this.#updates.shift()?.done();
    this.sendMappings();
  }

  /** The oldest message to mapped memory is acknowledged. */
  onWriteSent(): void {
    this.#inFlight.shift()?.();
  }

  /** The peer has written an entry of our table. @throws VerbsError EIO for an entry that the table does not have */
  onMapping(index: number, bytes: number): void {
    if (index >= this.size) throw broken(`it mapped memory with the index ${index} of a table of ${this.size} entries`);
    if (bytes !== MAPPING_BYTES) throw broken(`it wrote ${bytes} bytes of an entry, which has ${MAPPING_BYTES}`);
    this.#peerMappings.take(index);
    this.taken++;
  }

  /** The socket ends: nothing more leaves, and the calls that wait fail. */
  end(): void {
    this.#isEnded = true;
    for (const { done } of this.#updates.splice(0)) done(ended());
    for (const done of this.#inFlight.splice(0)) done?.(ended());
    for (const { done } of this.#writes.splice(0)) done?.(ended());
  }

  /** Frees the memory that is mapped, after `end`. The queue pair is closed before. */
  close(): Promise<void> {
    return this.#ownMappings.close();
  }
}

const ended = () => new VerbsError('ECANCELED', 'the socket has ended');
