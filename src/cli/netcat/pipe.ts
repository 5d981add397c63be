/** Joins standard input and output to one connection after another. */
import { once } from 'node:events';
import type { Duplex } from 'node:stream';
import { VerbsError } from '../../index.js';
import { failure } from '../exit.js';
import type { Channel } from './channels.js';
import type { Meter } from './meter.js';

export interface JoinOptions {
  readonly meter: Meter;
  /** Ends the connection. `join` then throws its reason. */
  readonly stop: AbortSignal;
  /** Prints a message for the user. */
  readonly note: (text: string) => void;
}

export class Pipe {
  readonly #input = process.stdin;
  readonly #output = process.stdout;
  #isInputAtEnd = false;
  #isOutputGone = false;
  #outputError: Error | undefined;
  #inputError: Error | undefined;
  /** Ends the current connection. */
  #cut = () => {};

  constructor() {
    this.#input.on('end', () => {
      this.#isInputAtEnd = true;
    });
    this.#input.on('error', (error) => {
      this.#inputError = failure(`standard input cannot be read: ${error.message}`, { cause: error });
      this.#cut();
    });
    // the reader of our output may close it early; the connection then ends in order
    this.#output.removeAllListeners('error');
    this.#output.on('error', (error: NodeJS.ErrnoException) => {
      this.#isOutputGone = true;
      if (error.code !== 'EPIPE')
        this.#outputError = failure(`standard output cannot be written: ${error.message}`, { cause: error });
      this.#cut();
    });
  }

  /** Nobody reads standard output any more. */
  get isOutputGone(): boolean {
    return this.#isOutputGone;
  }

  /**
   * Transfers both directions until both have ended and the connection is closed, or until nobody reads our output.
   * @throws CliError when the connection, standard input or standard output fails; the reason of `stop`
   */
  async join(channel: Channel, { meter, stop, note }: JoinOptions): Promise<void> {
    const { stream } = channel;
    const cut = () => void stream.destroy();
    const count = (chunk: Buffer) => {
      meter.sent += chunk.length;
    };
    this.#cut = cut;
    stop.addEventListener('abort', cut, { once: true });
    if (stop.aborted || this.#isOutputGone || this.#inputError) cut();
    this.#receive(stream, meter, note);
    this.#input.on('data', count);
    if (this.#isInputAtEnd) stream.end();
    else this.#input.pipe(stream);
    const error = await once(stream, 'close').then(
      () => undefined,
      (error: Error) => explain(error, channel),
    );
    await this.#flushed();
    this.#cut = () => {};
    stop.removeEventListener('abort', cut);
    this.#input.off('data', count).unpipe(stream).pause();
    await channel.close();
    stop.throwIfAborted();
    const why = this.#inputError ?? this.#outputError ?? error;
    if (why !== undefined) throw why;
  }

  /** Closes standard input. */
  [Symbol.dispose](): void {
    this.#input.destroy();
  }

  #receive(stream: Duplex, meter: Meter, note: (text: string) => void): void {
    stream.on('data', (chunk: Buffer) => {
      meter.received += chunk.length;
    });
    stream.pipe(this.#output, { end: false });
    stream.once('end', () => {
      if (this.#isInputAtEnd || !this.#input.isTTY) return;
      if (this.#output.isTTY) {
        note('the other end has closed its direction; Ctrl-D ends the connection');
      } else {
        this.#input.unpipe(stream);
        stream.end();
      }
    });
  }

  /** Waits until standard output has taken what was written to it. */
  async #flushed(): Promise<void> {
    if (!this.#isOutputGone) await new Promise<void>((resolve) => this.#output.write('', () => resolve()));
  }
}

/** Returns an error that says what happened to the connection. */
function explain(error: Error, { remoteAddress, remotePort }: Channel): Error {
  const peer = `${remoteAddress} port ${remotePort}`;
  if (error instanceof VerbsError && error.code === 'ETIMEDOUT')
    return failure(`${peer} no longer answers: ${error.message}`, { cause: error });
  if (error instanceof VerbsError && error.code === 'ECONNRESET')
    return failure(`${peer} closed the connection before the end of its data`, { cause: error });
  return error;
}
