/** Bytes that wait to be sent, in the chunks in which the program has written them. */
export class ChunkQueue {
  #chunks: Uint8Array[] = [];
  /** Index of the first chunk that waits. `shift` would move all others of a long array. */
  #first = 0;
  #bytes = 0;

  /** Bytes that wait. */
  get bytes(): number {
    return this.#bytes;
  }

  push(chunk: Uint8Array): void {
    if (chunk.length === 0) return;
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
  }

  /**
   * Removes the first bytes.
   * @returns `max` bytes, or all if fewer wait: memory of the program when they are of one chunk, otherwise a copy
   */
  take(max: number): Uint8Array {
    const parts: Uint8Array[] = [];
    let room = Math.min(max, this.#bytes);
    this.#bytes -= room;
    while (room > 0) {
      const chunk = this.#chunks[this.#first] as Uint8Array;
      const part = chunk.subarray(0, room);
      if (part.length === chunk.length) this.#first++;
      else this.#chunks[this.#first] = chunk.subarray(part.length);
      room -= part.length;
      parts.push(part);
    }
    if (this.#bytes === 0) this.clear();
    const [only] = parts;
    return parts.length === 1 && only !== undefined ? only : Buffer.concat(parts);
  }

  clear(): void {
    this.#chunks = [];
    this.#first = 0;
    this.#bytes = 0;
  }
}
