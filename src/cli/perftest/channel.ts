/** What carries the messages of the hand-shake. */
import { once } from 'node:events';
import type { Connection, ConnectionOptions, Message } from '../../index.js';
import { failure } from '../exit.js';
import type { Control } from '../pingpong/handshake.js';

/** TCP, or with `-R` and `-z` a connection of rdma_cm. */
export type Channel = Pick<Control, 'remoteAddress' | 'isEnded' | 'hasSpoken' | 'write' | 'read' | 'part'>;

/** Every message of the hand-shake has its room. */
export const CHANNEL_OPTIONS: ConnectionOptions = { messageBytes: 64, receives: 8, sends: 4 };

/** Each message is a SEND. */
export class CmChannel implements Channel {
  readonly #connection: Connection;
  readonly #idleMs: number;
  /** The next message, once it was asked whether there is one. */
  #ahead: Promise<Message | undefined> | undefined;
  #hasSpoken = false;

  /** @param idleMs as of `Control` */
  constructor(connection: Connection, idleMs: number) {
    this.#connection = connection;
    this.#idleMs = idleMs;
  }

  get remoteAddress(): string {
    return this.#connection.remoteAddress ?? '';
  }

  get isEnded(): boolean {
    return !this.#connection.isOpen;
  }

  get hasSpoken(): boolean {
    if (this.#ahead === undefined) {
      this.#ahead = this.#connection.receive();
      this.#ahead.catch(() => {}).then(() => (this.#hasSpoken = true));
    }
    return this.#hasSpoken;
  }

  /** What becomes of it is seen by what ends the connection, where the answer is waited for. */
  write(message: Uint8Array): void {
    this.#connection.send(message).catch(() => {});
  }

  async read(count: number, what: string, idleMs = this.#idleMs): Promise<Buffer> {
    const wait = idleMs > 0 ? { timeout: idleMs } : {};
    const message = await (this.#ahead ?? this.#connection.receive(wait)).catch((cause: Error) => {
      throw failure(`${what} did not come: ${cause.message}`, { cause });
    });
    this.#ahead = undefined;
    this.#hasSpoken = false;
    if (message === undefined) throw failure(`the peer ended the connection before ${what}`);
    const { length } = message.data;
    if (length < count) throw failure(`${what} should have ${count} bytes, the peer sent ${length}`);
    return message.data.subarray(0, count);
  }

  async part(mostMs: number): Promise<void> {
    if (this.isEnded) return;
    await once(this.#connection, 'close', { signal: AbortSignal.timeout(mostMs) }).catch(() => {});
  }
}
