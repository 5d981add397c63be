/** A capture in memory, which a device or a link writes and a test reads. */
import { Writable } from 'node:stream';
import type { Capture } from '../../src/probe/capture/captured.js';
import { readCapture } from '../../src/probe/capture/read.js';

export class Recording extends Writable {
  readonly #chunks: Buffer[] = [];

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.#chunks.push(chunk);
    done();
  }

  /** Returns everything that was written. */
  bytes(): Buffer {
    return Buffer.concat(this.#chunks);
  }

  /** Returns the capture so far. */
  capture(): Capture {
    return readCapture(this.bytes());
  }
}
