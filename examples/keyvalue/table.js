/**
 * A hash table of slots of equal size, in memory that clients read while the server changes it. A slot:
 *
 *     | checksum: 8 | key bytes: 2 | value bytes: 2 | 0: 4 | key | value |
 *
 * The checksum covers the rest of the slot. When a READ returns a slot in the middle of a PUT, the checksum does not
 * match, and the client reads again. The home of a key is the slot that its hash selects. If that is taken, the next
 * free slot holds the key. A slot whose key was deleted is marked, not emptied, so that the search continues behind it.
 */
import { createHash } from 'node:crypto';

export const SLOT_BYTES = 256;
const HEADER = 16;
/** Bytes for a key and its value together. */
export const ROOM = SLOT_BYTES - HEADER;
/** Marks a deleted key: the `key bytes` of its slot. */
const DELETED = 0xffff;

/** Returns the index of a key's home. */
export function homeOf(key, slots) {
  return createHash('sha1').update(key).digest().readUInt32LE() % slots;
}

function checksum(slot) {
  return createHash('sha1').update(slot.subarray(8)).digest().subarray(0, 8);
}

/**
 * Decodes a slot: empty, deleted, full with key and value, or torn by a change during the READ.
 * @param {Buffer} slot
 */
export function readSlot(slot) {
  const keyBytes = slot.readUInt16LE(8);
  const valueBytes = slot.readUInt16LE(10);
  if (keyBytes === 0 && slot.every((byte) => byte === 0)) return { state: 'empty' };
  if (!checksum(slot).equals(slot.subarray(0, 8))) return { state: 'torn' };
  if (keyBytes === DELETED) return { state: 'deleted' };
  const end = HEADER + keyBytes;
  return {
    state: 'full',
    key: slot.toString('utf8', HEADER, end),
    value: Buffer.from(slot.subarray(end, end + valueBytes)),
  };
}

function writeSlot(slot, keyBytes, key, value) {
  const next = Buffer.alloc(SLOT_BYTES);
  next.writeUInt16LE(keyBytes, 8);
  next.writeUInt16LE(value.length, 10);
  key.copy(next, HEADER);
  value.copy(next, HEADER + key.length);
  checksum(next).copy(next);
  next.copy(slot);
}

/** The table at the server, which alone writes it. */
export class Table {
  /** @param {Buffer} memory a whole number of slots, zeroed */
  constructor(memory) {
    this.memory = memory;
    this.slots = Math.floor(memory.length / SLOT_BYTES);
  }

  /** Stores a value. @throws when key and value are too long, or the table is full */
  put(key, value) {
    const bytes = Buffer.from(key);
    if (bytes.length === 0 || bytes.length + value.length > ROOM)
      throw new Error(`key and value have ${bytes.length} and ${value.length} bytes, at most ${ROOM} together`);
    const slot = this.#find(key) ?? this.#firstFree(key);
    if (slot === undefined) throw new Error(`the table is full: ${this.slots} slots`);
    writeSlot(slot, bytes.length, bytes, value);
  }

  /** Deletes a key. @returns whether it was there */
  delete(key) {
    const slot = this.#find(key);
    if (slot !== undefined) writeSlot(slot, DELETED, Buffer.alloc(0), Buffer.alloc(0));
    return slot !== undefined;
  }

  slot(index) {
    return this.memory.subarray(index * SLOT_BYTES, (index + 1) * SLOT_BYTES);
  }

  #find(key) {
    for (const slot of this.#from(key)) {
      const found = readSlot(slot);
      if (found.state === 'empty') return undefined;
      if (found.key === key) return slot;
    }
    return undefined;
  }

  #firstFree(key) {
    for (const slot of this.#from(key)) if (['empty', 'deleted'].includes(readSlot(slot).state)) return slot;
    return undefined;
  }

  *#from(key) {
    const home = homeOf(key, this.slots);
    for (let i = 0; i < this.slots; i++) yield this.slot((home + i) % this.slots);
  }
}

/** Slots that one READ fetches: most keys are near their home. */
const NEIGHBOURS = 4;

/** The table as a client reads it. */
export class RemoteTable {
  /** Number of READs, and of torn slots among their results. */
  reads = 0;
  torn = 0;

  /** @param {(offset: number, length: number) => Promise<Buffer>} fetch reads the server's memory */
  constructor(fetch, slots) {
    this.fetch = fetch;
    this.slots = slots;
  }

  /** Returns the value of a key, or undefined if the key is not there. */
  async get(key) {
    const home = homeOf(key, this.slots);
    for (let done = 0; done < this.slots; ) {
      const first = (home + done) % this.slots;
      const count = Math.min(NEIGHBOURS, this.slots - first, this.slots - done);
      const found = await this.#search(key, first, count);
      if (found !== 'elsewhere') return found.value;
      done += count;
    }
    return undefined;
  }

  async #search(key, first, count) {
    const bytes = await this.#read(first, count);
    for (let i = 0; i < count; i++) {
      let slot = readSlot(bytes.subarray(i * SLOT_BYTES, (i + 1) * SLOT_BYTES));
      while (slot.state === 'torn') {
        this.torn++;
        slot = readSlot(await this.#read(first + i, 1));
      }
      if (slot.state === 'empty' || slot.key === key) return { value: slot.value };
    }
    return 'elsewhere';
  }

  #read(first, count) {
    this.reads++;
    return this.fetch(first * SLOT_BYTES, count * SLOT_BYTES);
  }
}
