/**
 * The line that the two ends of cmtime have beside their connections, over TCP: for each step the client says its number
 * and goes on when it has the same back from the server, which answers when it has come as far.
 */
import { once } from 'node:events';
import { createConnection, createServer, type Socket } from 'node:net';

/** The port of the line, and of the connections. */
export const CMTIME_PORT = 7471;

/** What the two agree on in each round; numbers are cmtime's own. */
export enum Step {
  BEGIN = 0,
  CONNECTED = 12,
  DISCONNECTED = 14,
}

/** Connections of each round: one to warm up, so many with queue pairs, so many without. */
export function rounds(count: number): number[] {
  return [1, count, count];
}

export class CmtimeLine implements Disposable {
  /** To the program's server. */
  static async dial(address: string): Promise<CmtimeLine> {
    const socket = createConnection(CMTIME_PORT, address);
    await once(socket, 'connect');
    return new CmtimeLine(socket);
  }

  /** For the program's client. @returns a promise, when it listens, of the line */
  static async listen(address: string): Promise<{ readonly line: Promise<CmtimeLine> }> {
    const server = createServer();
    server.listen(CMTIME_PORT, address);
    await once(server, 'listening');
    const line = once(server, 'connection').then(([socket]) => {
      server.close();
      return new CmtimeLine(socket as Socket);
    });
    return { line };
  }

  private constructor(readonly socket: Socket) {
    socket.setNoDelay(true);
  }

  /** As client: we have come to this step. Resolves when the server has, too. */
  async reach(step: Step): Promise<void> {
    this.socket.write(Uint8Array.of(step));
    await this.#expect(step);
  }

  /** As server: the client has come to this step. */
  async await(step: Step): Promise<void> {
    await this.#expect(step);
  }

  /** As server: we have, too. */
  answer(step: Step): void {
    this.socket.write(Uint8Array.of(step));
  }

  async #expect(step: Step): Promise<void> {
    const byte = (this.socket.read(1) ?? (await this.#read())) as Buffer | null;
    if (byte?.[0] !== step) throw new Error(`cmtime is at step ${byte?.[0]}, not ${step}`);
  }

  async #read(): Promise<Buffer | null> {
    await once(this.socket, 'readable');
    return this.socket.read(1);
  }

  [Symbol.dispose](): void {
    this.socket.destroy();
  }
}
