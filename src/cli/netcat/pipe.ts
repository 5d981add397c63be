/** Standard input and output, joined to one connection after the other. */
import { once } from 'node:events';
import type { Duplex } from 'node:stream';
import { type Connection, VerbsError, WcError } from '../../index.js';
import { failure } from '../exit.js';
import type { Meter } from './meter.js';

export interface JoinOptions {
  readonly meter: Meter;
  /** Ends the connection; its reason is what `join` throws then. */
  readonly stop: AbortSignal;
  /** Tells the user something. */
  readonly note: (text: string) => void;
}

export class Pipe {
  readonly #input = process.stdin;
  readonly #output = process.stdout;
  #isInputAtEnd = false;
  #isOutputGone = false;
  #outputError: Error | undefined;
  #inputError: Error | undefined;
  /** Ends the connection of the moment. */
  #cut = () => {};

  constructor() {
    this.#input.on('end', () => {
      this.#isInputAtEnd = true;
    });
    this.#input.on('error', (error) => {
      this.#inputError = failure(`standard input cannot be read: ${error.message}`, { cause: error });
      this.#cut();
    });
    // who reads our output may have seen enough; the connection is to end in good order then
    this.#output.removeAllListeners('error');
    this.#output.on('error', (error: NodeJS.ErrnoException) => {
      this.#isOutputGone = true;
      if (error.code !== 'EPIPE')
        this.#outputError = failure(`standard output cannot be written: ${error.message}`, { cause: error });
      this.#cut();
    });
  }

  /** Nobody reads what comes in any more. */
  get isOutputGone(): boolean {
    return this.#isOutputGone;
  }

  /**
   * Everything to and fro, until both directions are at their end and the connection is closed; or nobody reads our output.
   * @throws CliError when the connection or one of our own ends fails, the signal's reason
   */
  async join(connection: Connection, { meter, stop, note }: JoinOptions): Promise<void> {
    const stream = connection.stream();
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
    const [error] = await once(stream, 'close').catch((error: Error) => [explained(error, connection)]);
    await this.#flushed();
    this.#cut = () => {};
    stop.removeEventListener('abort', cut);
    this.#input.off('data', count).unpipe(stream).pause();
    await connection.close();
    stop.throwIfAborted();
    const why = this.#inputError ?? this.#outputError ?? error;
    if (why !== undefined) throw why;
  }

  /** No more input is wanted. */
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
        note('the other end has said all; Ctrl-D ends the connection');
      } else {
        this.#input.unpipe(stream);
        stream.end();
      }
    });
  }

  /** What was handed to our output has left. */
  async #flushed(): Promise<void> {
    if (!this.#isOutputGone) await new Promise<void>((resolve) => this.#output.write('', () => resolve()));
  }
}

/** What a user would say had happened. */
function explained(error: Error, { remoteAddress, remotePort }: Connection): Error {
  const peer = `${remoteAddress} port ${remotePort}`;
  if (error instanceof WcError && error.status === 'RETRY_EXC_ERR')
    return failure(`${peer} does not answer any more: ${error.message}`, { cause: error });
  if (error instanceof VerbsError && error.code === 'ECONNRESET')
    return failure(`${peer} has closed the connection before all was said`, { cause: error });
  return error;
}
