/** Counts the bytes of a connection, and shows the progress. */
import type { Output } from '../output.js';

/** Time between two lines of progress: on a terminal, in a file (ms). */
const TERMINAL_MS = 250;
const FILE_MS = 1000;

export class Meter {
  sent = 0;
  received = 0;
  readonly #from = performance.now();
  readonly #timer: NodeJS.Timeout | undefined;
  #last = 0;
  #lastAt = this.#from;
  #seconds: number | undefined;

  /** @param isShown whether to print the progress */
  constructor(output: Output, isShown: boolean) {
    if (!isShown) return;
    const { isTTY } = output.stderr;
    const print = () => (isTTY ? output.progress(() => this.#progress()) : output.note(this.#progress()));
    this.#timer = setInterval(print, isTTY ? TERMINAL_MS : FILE_MS);
    this.#timer.unref();
  }

  /** Seconds since the connection was made, until `stop`. */
  get seconds(): number {
    return this.#seconds ?? (performance.now() - this.#from) / 1000;
  }

  stop(): void {
    this.#seconds = this.seconds;
    clearInterval(this.#timer);
  }

  /** The bytes, and the rate since the last call. */
  #progress(): string {
    const now = performance.now();
    const both = this.sent + this.received;
    const rate = ((both - this.#last) * 1000) / Math.max(1, now - this.#lastAt);
    this.#last = both;
    this.#lastAt = now;
    return `${byteCounts(this.sent, this.received)} in ${clock(this.seconds)}, ${bytesText(rate)}/s`;
  }
}

/** `sent 1.2 MiB, received 0 B` */
export function byteCounts(sent: number, received: number): string {
  return `sent ${bytesText(sent)}, received ${bytesText(received)}`;
}

/** Bytes in the unit that leaves one to four digits: `17 B`, `1.5 KiB`, `640 MiB`. */
export function bytesText(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = bytes;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

/** `0:07`, `1:02:03` */
function clock(seconds: number): string {
  const whole = Math.floor(seconds);
  const parts = [Math.floor(whole / 60) % 60, whole % 60].map((part) => String(part).padStart(2, '0'));
  const hours = Math.floor(whole / 3600);
  return hours > 0 ? `${hours}:${parts.join(':')}` : parts.join(':').replace(/^0/, '');
}
