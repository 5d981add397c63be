/** A storage in memory that notes what was asked of it, and fails when a test says so. */
import type { Storage } from '../../../src/nvme.js';

export class MemoryStorage implements Storage {
  readonly data: Buffer;
  flushes = 0;
  isClosed = false;
  /** Thrown by the next calls. */
  failure: Error | undefined;

  constructor(
    readonly bytes: number,
    readonly isReadOnly = false,
  ) {
    this.data = Buffer.alloc(bytes);
  }

  async read(into: Uint8Array, position: number): Promise<void> {
    this.#mayFail();
    into.set(this.data.subarray(position, position + into.length));
  }

  async write(from: Uint8Array, position: number): Promise<void> {
    this.#mayFail();
    this.data.set(from, position);
  }

  async flush(): Promise<void> {
    this.#mayFail();
    this.flushes++;
  }

  async close(): Promise<void> {
    this.isClosed = true;
  }

  #mayFail(): void {
    if (this.isClosed) throw new Error('the storage is closed');
    if (this.failure) throw this.failure;
  }
}
