/** The output of a command: results on stdout, everything else on stderr, and progress only on a terminal. */

import type { WriteStream } from 'node:tty';
import { styleText } from 'node:util';
import { printableJson, printableText } from '../base/printable.js';

/** Returns a text in a colour, or as it is where the stream shows none: no terminal, or NO_COLOR. */
export function styled(
  format: 'bold' | 'red' | 'green' | 'yellow' | 'cyan',
  text: string,
  stream: NodeJS.WritableStream = process.stdout,
): string {
  const { isTTY } = stream as NodeJS.WriteStream;
  return isTTY && (stream as WriteStream).hasColors() ? styleText(format, text, { validateStream: false }) : text;
}

/** Matches lines, tabs, and the codes of `styled`, which change colours and nothing else. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: the codes begin with one
const KEPT = /[\n\t]|\u001b\[(?:1|22|3[1236]|39)m/g;

/** Returns a text for a stream: see `printableText`. Only a terminal gets colours. */
function shown(text: string, stream: NodeJS.WritableStream): string {
  return printableText(text, (stream as NodeJS.WriteStream).isTTY ? KEPT : undefined);
}

export class Output {
  #progress = '';
  #lastProgress = 0;

  /** @param json write only JSON to stdout */
  constructor(
    readonly json: boolean,
    readonly stdout: NodeJS.WritableStream = process.stdout,
    readonly stderr: NodeJS.WriteStream = process.stderr,
  ) {}

  /** Prints a line of text; nothing with JSON. */
  line(text = ''): void {
    if (this.json) return;
    this.#clear();
    this.stdout.write(`${shown(text, this.stdout)}\n`);
  }

  /** Prints a remark on stderr. */
  note(text: string): void {
    this.#clear();
    this.stderr.write(`${shown(text, this.stderr)}\n`);
  }

  /** Prints a result as JSON; nothing without JSON. */
  result(value: unknown): void {
    this.#clear();
    if (this.json) this.stdout.write(`${printableJson(value)}\n`);
  }

  /** Replaces the progress line, at most ten times a second; nothing with JSON, or unless stderr is a terminal. */
  progress(text: () => string): void {
    if (this.json || !this.stderr.isTTY) return;
    const now = performance.now();
    if (now - this.#lastProgress < 100) return;
    this.#lastProgress = now;
    this.#clear();
    this.#progress = shown(text(), this.stderr).slice(0, (this.stderr.columns ?? 80) - 1);
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

/** The `chars` of cli-table3 for a table without lines. */
export const PLAIN_TABLE = Object.fromEntries(
  [
    'top top-mid top-left top-right bottom bottom-mid bottom-left bottom-right',
    'left left-mid mid mid-mid right right-mid middle',
  ]
    .join(' ')
    .split(' ')
    .map((name) => [name, '']),
);
