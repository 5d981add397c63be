/** The option `onread` of a socket: bytes go into memory of the program, instead of events. */
import { callProgram } from '../base/uncaught.js';
import type { DataSink } from '../transport/duplexsides.js';
import type { OnRead } from './options.js';

const NONE = Buffer.alloc(0);

export class OnReadSink implements DataSink {
  readonly #options: OnRead;
  #rest: Buffer = NONE;

  constructor(options: OnRead) {
    this.#options = options;
  }

  get hasRest(): boolean {
    return this.#rest.length > 0;
  }

  take(data: Buffer): boolean {
    this.#rest = data;
    return this.takeRest();
  }

  takeRest(): boolean {
    const { buffer, callback } = this.#options;
    while (this.hasRest) {
      const memory = typeof buffer === 'function' ? buffer() : buffer;
      const part = this.#rest.subarray(0, memory.length);
      memory.set(part);
      this.#rest = this.#rest.subarray(part.length);
      if (callProgram(() => callback(part.length, memory), true) === false) return false;
    }
    return true;
  }
}
