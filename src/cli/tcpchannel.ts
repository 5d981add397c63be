/** The TCP connection over which two ends of a test exchange their parameters. */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { failure } from './exit.js';

/** Default of the most bytes that were not read yet. The ends take turns, and a message has about a hundred bytes. */
const MAX_UNREAD = 4096;

export class TcpChannel {
  readonly #socket: Socket;
  readonly #idleMs: number;
  #received = Buffer.alloc(0);
  #ended = false;
  #error: Error | undefined;

  /**
   * @param idleMs time to wait for a message of the peer; 0 = no limit
   * @param maxUnread most bytes that the peer may send ahead
   */
  constructor(socket: Socket, idleMs: number, maxUnread = MAX_UNREAD) {
    this.#socket = socket;
    this.#idleMs = idleMs;
    socket.setNoDelay(true);
    socket.on('data', (chunk: Buffer) => {
      if (this.#received.length + chunk.length <= maxUnread) this.#received = Buffer.concat([this.#received, chunk]);
      else socket.destroy(new Error(`the peer has sent more than ${maxUnread} bytes that nobody asked for`));
    });
    socket.on('error', (error) => {
      this.#error = error;
    });
    socket.once('end', () => {
      this.#ended = true;
    });
    socket.once('close', () => {
      this.#ended = true;
    });
  }

  /** Connects to a server. @throws CliError when nobody listens, or the name is unknown */
  static async connect(
    options: { host: string; port: number; localAddress?: string },
    idleMs: number,
    maxUnread?: number,
  ): Promise<TcpChannel> {
    const socket = connect({ ...options, allowHalfOpen: true });
    const timer = idleMs > 0 ? setTimeout(() => socket.destroy(timeout(options.host, idleMs)), idleMs) : undefined;
    try {
      await once(socket, 'connect');
    } catch (cause) {
      const { message } = cause as Error;
      throw failure(`no connection to ${options.host} port ${options.port} over TCP: ${message}`, { cause });
    } finally {
      clearTimeout(timer);
    }
    return new TcpChannel(socket, idleMs, maxUnread);
  }

  /** IP address of our end, as text. IPv4 has its own form also on a dual-stack socket. */
  get localAddress(): string {
    return plain(this.#socket.localAddress);
  }

  get remoteAddress(): string {
    return plain(this.#socket.remoteAddress);
  }

  /** Whether the peer has closed its end. */
  get isEnded(): boolean {
    return this.#ended;
  }

  /** Whether the peer has sent something that was not yet read. */
  get hasData(): boolean {
    return this.#received.length > 0;
  }

  /**
   * Closes our end and waits, `timeoutMs` at most, until the peer closes its own: until then it may still need a
   * retransmission from us. The stock pingpongs close their end before the first message, so theirs says nothing.
   */
  async shutdown(timeoutMs: number): Promise<void> {
    this.#socket.end();
    const end = performance.now() + timeoutMs;
    while (!this.#ended && performance.now() < end) await sleep(2);
  }

  /** Sends a message in one write. */
  write(message: Uint8Array): void {
    this.#socket.write(message);
  }

  /**
   * Reads a message.
   * @param what name of the message, for errors
   * @param idleMs as in the constructor
   * @throws CliError when it does not come
   */
  async read(count: number, what: string, idleMs = this.#idleMs): Promise<Buffer> {
    const end = performance.now() + idleMs;
    while (this.#received.length < count) {
      if (this.#error)
        throw failure(`the TCP connection broke before ${what}: ${this.#error.message}`, { code: 'ECONNRESET' });
      if (this.#ended) throw failure(`the peer closed the TCP connection before ${what}`, { code: 'ECONNRESET' });
      if (idleMs > 0 && performance.now() > end)
        throw failure(`${what} did not come in ${idleMs / 1000} s`, { code: 'ETIMEDOUT' });
      await sleep(1);
    }
    const bytes = this.#received.subarray(0, count);
    this.#received = this.#received.subarray(count);
    return bytes;
  }

  close(): void {
    this.#socket.destroy();
  }
}

function plain(address = ''): string {
  return address.replace(/^::ffff:(?=\d+\.)/, '');
}

function timeout(host: string, ms: number): Error {
  return new Error(`${host} did not answer in ${ms / 1000} s`);
}
