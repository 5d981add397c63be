const NONE = new Uint8Array(0);

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
    const wanted = Math.min(max, this.#bytes);
    const first = this.#takePart(wanted);
    if (first.length === wanted) return first;
    const parts = [first];
    for (let left = wanted - first.length; left > 0; ) {
      const part = this.#takePart(left);
      parts.push(part);
      left -= part.length;
    }
    return Buffer.concat(parts, wanted);
  }

  /** Removes at most `max` bytes of the first chunk. */
  #takePart(max: number): Uint8Array {
    const chunk = this.#chunks[this.#first];
    if (chunk === undefined) return NONE;
    this.#bytes -= Math.min(max, chunk.length);
    if (chunk.length > max) {
      this.#chunks[this.#first] = chunk.subarray(max);
      return chunk.subarray(0, max);
    }
    if (this.#bytes === 0) this.clear();
    else this.#first++;
    return chunk;
  }

  clear(): void {
    this.#chunks = [];
    this.#first = 0;
    this.#bytes = 0;
  }
}
