/**
 * The TCP connection by which the two ends of cmtime synchronize: for each step the client sends the number of the
 * step, and continues when the server has returned it. The server returns it when it has reached the same step. Before
 * rdma-core 45 there is none: the client connects and disconnects as it likes, and the server never ends.
 */
import { once } from 'node:events';
import { createConnection, createServer, type Socket } from 'node:net';
import { GUEST_IS } from './guest/differences.js';

/** The port of the TCP connection and of the rdma_cm connections. */
export const CMTIME_PORT = 7471;

/** The steps of each round; the numbers are those of cmtime. */
export enum Step {
  BEGIN = 0,
  CONNECTED = 12,
  DISCONNECTED = 14,
}

export const hasLine = GUEST_IS.cmtime === 'steps';

/** Returns the connections of each round: one to warm up, `count` with queue pairs, `count` without. */
export function rounds(count: number): number[] {
  return hasLine ? [1, count, count] : [count];
}

/** Returns a pattern for the row of the client's table about connecting. */
export function connectRow(count: number): RegExp {
  return hasLine ? new RegExp(`^cm_conn +${count}$`, 'm') : /^connect +: +\d/m;
}

export class CmtimeLine implements Disposable {
  /** Connects to the program's server. */
  static async dial(address: string): Promise<CmtimeLine> {
    const socket = createConnection(CMTIME_PORT, address);
    await once(socket, 'connect');
    return new CmtimeLine(socket);
  }

  /** Listens for the program's client. Resolves when it listens; `line` is the connection. */
  static async listen(address: string): Promise<Disposable & { readonly line: Promise<CmtimeLine> }> {
    const server = createServer();
    server.listen(CMTIME_PORT, address);
    await once(server, 'listening');
    const line = once(server, 'connection').then(([socket]) => new CmtimeLine(socket as Socket));
    return { line, [Symbol.dispose]: () => void server.close() };
  }

  private constructor(readonly socket: Socket) {
    socket.setNoDelay(true);
  }

  /** Client: announces that we have reached a step. Resolves when the server has reached it as well. */
  async reach(step: Step): Promise<void> {
    this.socket.write(Uint8Array.of(step));
    await this.#expect(step);
  }

  /** Server: waits until the client has reached a step. */
  async await(step: Step): Promise<void> {
    await this.#expect(step);
  }

  /** Server: announces that we have reached the step as well. */
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
