/** The option `onread` of a socket: bytes go into memory of the program, instead of events. */
import { callProgram } from '../base/uncaught.js';
import type { DataSink } from '../transport/duplexsides.js';
import { noReadBuffer } from './errors.js';
import type { OnRead } from './options.js';
import type { Transport } from './protocol.js';

const NONE = new Uint8Array(0);

export class OnReadSink implements DataSink<Transport> {
  readonly #options: OnRead;

  constructor(options: OnRead) {
    this.#options = options;
  }

  take(channel: Transport, onRead: (bytes: number) => void): boolean {
    const { buffer, callback } = this.#options;
    const memory = typeof buffer === 'function' ? callProgram(buffer, NONE) : buffer;
    if (memory.length === 0) throw noReadBuffer();
    const bytes = channel.readInto(memory);
    onRead(bytes);
    return callProgram(() => callback(bytes, memory), true) !== false;
  }
}
