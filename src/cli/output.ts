/** What a command tells: results on stdout, everything else on stderr, and progress only on a terminal. */

/** Where a command writes. */
export class Output {
  #progress = '';
  #lastProgress = 0;

  /** @param json nothing but JSON may go to stdout */
  constructor(
    readonly json: boolean,
    readonly stdout: NodeJS.WritableStream = process.stdout,
    readonly stderr: NodeJS.WriteStream = process.stderr,
  ) {}

  /** A line for people; with JSON not at all. */
  line(text = ''): void {
    if (this.json) return;
    this.#clear();
    this.stdout.write(`${text}\n`);
  }

  /** A remark that is no result. */
  note(text: string): void {
    this.#clear();
    this.stderr.write(`${text}\n`);
  }

  /** The one result of the command, for programs. */
  result(value: unknown): void {
    this.#clear();
    if (this.json) this.stdout.write(`${JSON.stringify(value)}\n`);
  }

  /** Overwrites the last progress, at most ten times a second; nothing where nobody watches. */
  progress(text: () => string): void {
    if (this.json || !this.stderr.isTTY) return;
    const now = performance.now();
    if (now - this.#lastProgress < 100) return;
    this.#lastProgress = now;
    this.#clear();
    this.#progress = text().slice(0, (this.stderr.columns ?? 80) - 1);
    this.stderr.write(this.#progress);
  }

  #clear(): void {
    if (this.#progress === '') return;
    this.#progress = '';
    this.stderr.write('\r\u001b[K');
  }
}

/** `64 B`, `4 KiB`, `1 MiB`; other sizes in bytes. */
export function sizeText(bytes: number): string {
  if (bytes >= 2 ** 20 && bytes % 2 ** 20 === 0) return `${bytes / 2 ** 20} MiB`;
  if (bytes >= 2 ** 10 && bytes % 2 ** 10 === 0) return `${bytes / 2 ** 10} KiB`;
  return `${bytes} B`;
}
