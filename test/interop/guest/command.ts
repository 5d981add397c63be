/** A command that runs in the guest, and the frames that control it (documented in agent.c). */

import { setTimeout as sleep } from 'node:timers/promises';

export enum FrameType {
  RUN = 1,
  INPUT = 2,
  KILL = 3,
  READY = 4,
  OUT = 5,
  ERR = 6,
  EXIT = 7,
}

export const FRAME_HEADER = 12;

export function frame(channel: number, type: FrameType, data: Uint8Array): Buffer {
  const bytes = Buffer.alloc(FRAME_HEADER + data.length);
  bytes.writeUInt32LE(channel, 0);
  bytes.writeUInt32LE(type, 4);
  bytes.writeUInt32LE(data.length, 8);
  bytes.set(data, FRAME_HEADER);
  return bytes;
}

/** The output and the exit status of a command. */
export interface Result {
  /** Exit code, or 128 + signal number. */
  readonly status: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** A command in the guest. It stores all output from the start. */
export class GuestCommand implements AsyncDisposable {
  /** Resolves when the command has ended. Rejects only if the guest itself ends first. */
  readonly exited: Promise<Result>;
  #stdout = '';
  #stderr = '';
  #over = false;
  #wake = () => {};
  #settle!: { resolve: (result: Result) => void; reject: (error: Error) => void };
  readonly #send: (type: FrameType, data: Uint8Array) => void;
  readonly #decoders = { [FrameType.OUT]: new TextDecoder(), [FrameType.ERR]: new TextDecoder() };

  /** Called by Guest. @param send sends a frame of this command's channel to the guest */
  constructor(
    readonly title: string,
    send: (type: FrameType, data: Uint8Array) => void,
  ) {
    this.#send = send;
    this.exited = new Promise((resolve, reject) => {
      this.#settle = { resolve, reject };
    });
    this.exited.catch(() => {});
  }

  get stdout(): string {
    return this.#stdout;
  }

  get stderr(): string {
    return this.#stderr;
  }

  /** Writes to standard input. */
  write(data: string | Uint8Array): void {
    const bytes = typeof data === 'string' ? Buffer.from(data) : data;
    if (bytes.length > 0 && !this.#over) this.#send(FrameType.INPUT, bytes);
  }

  /** Ends standard input. */
  end(): void {
    if (!this.#over) this.#send(FrameType.INPUT, new Uint8Array());
  }

  /** Sends a signal to the command and its children, and waits until it ends. @param signal the number; 9 = SIGKILL */
  async kill(signal = 9): Promise<Result> {
    const number = Buffer.alloc(4);
    number.writeUInt32LE(signal);
    if (!this.#over) this.#send(FrameType.KILL, number);
    return this.exited;
  }

  /** Kills the command, unless it has ended: a server that outlives its test would keep its port. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill().catch(() => {});
  }

  /** Iterates over the lines of standard output from the first, as they arrive. Ends with the command. */
  async *lines(): AsyncGenerator<string, void, void> {
    let at = 0;
    for (;;) {
      for (let end = this.#stdout.indexOf('\n', at); end >= 0; end = this.#stdout.indexOf('\n', at)) {
        const line = this.#stdout.slice(at, end);
        at = end + 1;
        yield line;
      }
      if (this.#over) {
        if (at < this.#stdout.length) yield this.#stdout.slice(at);
        return;
      }
      await new Promise<void>((resolve) => {
        const others = this.#wake;
        this.#wake = () => {
          others();
          resolve();
        };
      });
    }
  }

  /**
   * Waits for the first line that matches.
   * @throws Error with all output when the command ends, or `timeout` milliseconds pass, without such a line
   */
  async waitFor(pattern: RegExp, timeout = 10_000): Promise<RegExpMatchArray> {
    const expired = sleep(timeout, undefined, { ref: false });
    const lines = this.lines();
    for (;;) {
      const line = await Promise.race([lines.next(), expired]);
      if (!line || line.done)
        throw this.error(`no line like ${pattern} ${line ? 'until its end' : `within ${timeout} ms`}`);
      const match = line.value.match(pattern);
      if (match) return match;
    }
  }

  /** Returns an error about this command that includes its output. */
  error(what: string): Error {
    return new Error(`${this.title}: ${what}\n--- stdout\n${this.#stdout}\n--- stderr\n${this.#stderr}`);
  }

  /** Called by Guest for each frame of this channel. @returns whether it was the last one */
  take(type: FrameType, data: Buffer): boolean {
    if (type === FrameType.OUT) this.#stdout += this.#decoders[type].decode(data, { stream: true });
    if (type === FrameType.ERR) this.#stderr += this.#decoders[type].decode(data, { stream: true });
    if (type === FrameType.EXIT) {
      this.#over = true;
      this.#settle.resolve({ status: data.readUInt32LE(0), stdout: this.#stdout, stderr: this.#stderr });
    }
    this.#notify();
    return this.#over;
  }

  /** Called by Guest when the guest ends while the command runs. */
  abandon(reason: string): void {
    this.#over = true;
    this.#settle.reject(this.error(reason));
    this.#notify();
  }

  #notify(): void {
    const wake = this.#wake;
    this.#wake = () => {};
    wake();
  }
}
