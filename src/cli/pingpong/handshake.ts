/**
 * The hand-shake of the stock pingpongs over TCP: each end tells LID, queue pair number, PSN and GID in one message of
 * 52 bytes, the client first; the client ends it with "done". The stock tools read once for each message, so each is
 * written at once and none is joined to another. With a shared receive queue each end tells 256 of them, the unused ones
 * zero, and the stock tool puts together what it reads.
 */
import { once } from 'node:events';
import { connect, type ListenOptions, type Server, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Endpoint, gidText, gidToHex } from '../../index.js';
import { failure } from '../exit.js';

/** `LLLL:QQQQQQ:PPPPPP:` and 32 digits of GID, lower case hexadecimal, and a NUL. */
export const INTRODUCTION_BYTES = 52;
const DONE = Buffer.from('done\0', 'latin1');
const FORM = /^[0-9a-f]{4}:([0-9a-f]{6}):([0-9a-f]{6}):([0-9a-f]{32})\0/;

export function encodeIntroduction({ qpn, psn, gid }: Endpoint): Buffer {
  const hex = (value: number) => value.toString(16).padStart(6, '0');
  // RoCE has no LIDs.
  return Buffer.from(`0000:${hex(qpn)}:${hex(psn)}:${gidToHex(gid)}\0`, 'latin1');
}

/** @throws CliError when it is no such message */
export function decodeIntroduction(message: Buffer, tool = 'ibv_rc_pingpong'): Endpoint {
  const [, qpn = '', psn = '', gid = ''] = FORM.exec(message.toString('latin1')) ?? [];
  if (gid === '')
    throw failure(`the peer's hand-shake is ${JSON.stringify(message.toString('latin1'))}, not that of ${tool}`);
  if (/^0*$/.test(gid)) throw failure(`the peer told no GID: ${tool} needs -g and the index of a RoCE v2 GID`);
  return { qpn: Number.parseInt(qpn, 16), psn: Number.parseInt(psn, 16), gid: gidText(gid) };
}

const UNUSED: Endpoint = { qpn: 0, psn: 0, gid: '::' };

function isUnused(message: Buffer): boolean {
  return /^0000:000000:000000:0{32}\0/.test(message.toString('latin1'));
}

/** The TCP connection that goes with a pingpong. */
export class Control {
  readonly #socket: Socket;
  readonly #idleMs: number;
  #received = Buffer.alloc(0);
  #ended = false;
  #error: Error | undefined;

  /** @param idleMs how long to wait for a message of the peer; 0 = without end */
  constructor(socket: Socket, idleMs: number) {
    this.#socket = socket;
    this.#idleMs = idleMs;
    socket.setNoDelay(true);
    socket.on('data', (chunk: Buffer) => {
      this.#received = Buffer.concat([this.#received, chunk]);
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

  /** @throws the system's error when nobody listens, or the name is unknown */
  static async connect(
    options: { host: string; port: number; localAddress?: string },
    idleMs: number,
  ): Promise<Control> {
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
    return new Control(socket, idleMs);
  }

  /** IP address of our end, as text; IPv4 as such also when the socket is one for both. */
  get localAddress(): string {
    return plain(this.#socket.localAddress);
  }

  get remoteAddress(): string {
    return plain(this.#socket.remoteAddress);
  }

  /** The peer has closed its end. */
  get isEnded(): boolean {
    return this.#ended;
  }

  /** The peer has said what was not yet read. */
  get hasSpoken(): boolean {
    return this.#received.length > 0;
  }

  /** @param count introductions in all; those without an endpoint are zero */
  introduce(endpoints: readonly Endpoint[], count: number): void {
    const messages = endpoints.map(encodeIntroduction);
    while (messages.length < count) messages.push(encodeIntroduction(UNUSED));
    for (const message of messages) this.#socket.write(message);
  }

  /**
   * Of `count` introductions those that mean a queue pair.
   * @param tool name of the stock tool, for errors
   * @throws CliError
   */
  async introductions(count: number, tool: string): Promise<Endpoint[]> {
    const endpoints: Endpoint[] = [];
    for (let i = 0; i < count; i++) {
      const message = await this.#read(INTRODUCTION_BYTES, "the peer's hand-shake");
      if (i === 0 || !isUnused(message)) endpoints.push(decodeIntroduction(message, tool));
    }
    return endpoints;
  }

  done(): void {
    this.#socket.write(DONE);
  }

  async awaitDone(): Promise<void> {
    const text = await this.#read(DONE.length, "the client's 'done'");
    if (!text.equals(DONE))
      throw failure(`the client ended the hand-shake with ${JSON.stringify(text.toString('latin1'))}`);
  }

  /**
   * Says that we need nothing more, and waits until the peer says so too: until then it may still ask us for what was
   * lost. The stock tool closes its end before the first message, so that its end says nothing.
   */
  async part(mostMs: number): Promise<void> {
    this.#socket.end();
    const end = performance.now() + mostMs;
    while (!this.#ended && performance.now() < end) await sleep(2);
  }

  /** A message of another tool's protocol, in one write. */
  write(message: Uint8Array): void {
    this.#socket.write(message);
  }

  /** @param what for the error when it does not come @param idleMs as in the constructor @throws CliError */
  read(count: number, what: string, idleMs = this.#idleMs): Promise<Buffer> {
    return this.#read(count, what, idleMs);
  }

  close(): void {
    this.#socket.destroy();
  }

  async #read(count: number, what: string, idleMs = this.#idleMs): Promise<Buffer> {
    const end = performance.now() + idleMs;
    while (this.#received.length < count) {
      if (this.#error) throw failure(`the TCP connection broke before ${what}: ${this.#error.message}`);
      if (this.#ended) throw failure(`the peer closed the TCP connection before ${what}`);
      if (idleMs > 0 && performance.now() > end) throw failure(`${what} did not come in ${idleMs / 1000} s`);
      await sleep(1);
    }
    const bytes = this.#received.subarray(0, count);
    this.#received = this.#received.subarray(count);
    return bytes;
  }
}

/** Begins to listen. @throws the system's error, EADDRINUSE mostly */
export async function listen(server: Server, options: ListenOptions): Promise<void> {
  server.listen(options);
  await once(server, 'listening');
}

function plain(address = ''): string {
  return address.replace(/^::ffff:(?=\d+\.)/, '');
}

function timeout(host: string, ms: number): Error {
  return new Error(`${host} did not answer in ${ms / 1000} s`);
}
