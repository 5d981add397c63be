/** The TCP port at which the server of a test waits for its clients. */
import { once } from 'node:events';
import { createServer, type ListenOptions, type Server } from 'node:net';
import { TcpChannel } from './tcpchannel.js';

/** Maximum number of open connections. Further ones are closed at once. */
const MAX_CONNECTIONS = 32;

/**
 * Listens for peers. One that connects while the program is busy, such as with the start of its device, waits until it
 * is accepted.
 */
export class TcpListener {
  readonly #server = createServer({ allowHalfOpen: true });
  readonly #waiting: TcpChannel[] = [];

  /**
   * @param where the port, and the only address if not all
   * @param idleMs passed to each TcpChannel, as is `maxUnread`
   * @throws the system's error, mostly EADDRINUSE
   */
  static async open(where: ListenOptions, idleMs: number, maxUnread?: number): Promise<TcpListener> {
    const listener = new TcpListener(idleMs, maxUnread);
    await listen(listener.#server, where);
    return listener;
  }

  private constructor(idleMs: number, maxUnread?: number) {
    this.#server.maxConnections = MAX_CONNECTIONS;
    this.#server.on('connection', (socket) => this.#waiting.push(new TcpChannel(socket, idleMs, maxUnread)));
    // `accept` rejects if it waits; at other times the next connection may succeed.
    this.#server.on('error', () => {});
  }

  /** The TCP port. */
  get port(): number {
    return (this.#server.address() as { port: number }).port;
  }

  /**
   * Returns the connection that has waited longest, or the next one. Those that the peer has closed are skipped.
   * @throws the system's error if the connection cannot be accepted, such as EMFILE
   */
  async accept(): Promise<TcpChannel> {
    for (;;) {
      const channel = this.#waiting.shift();
      if (!channel) await once(this.#server, 'connection');
      else if (!channel.isEnded) return channel;
      else channel.close();
    }
  }

  /** Stops listening, and closes the connections that wait. */
  close(): void {
    this.#server.close();
    for (const channel of this.#waiting.splice(0)) channel.close();
  }
}

/** Resolves when the server listens. @throws the system's error, mostly EADDRINUSE */
export async function listen(server: Server, where: ListenOptions): Promise<void> {
  server.listen(where);
  await once(server, 'listening');
}
