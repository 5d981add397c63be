/** Runs of the tests of bandwidth: many messages at once, one way or both ways. */
import type { End } from './end.js';
import type { Bandwidth } from './handshake.js';

/** The peak is the best of so many equal parts of a run, each from its first message's posting to its last one's completion. */
const PARTS = 10;

export interface Share {
  /** Messages of each queue pair that this end sends, and that it receives with a receive of its own. */
  readonly sends: number;
  readonly receives: number;
  /** Stops sending after so many milliseconds; 0 = when all are sent. */
  readonly durationMs: number;
}

/** @param onProgress is told how many messages are done */
export async function runBandwidth(
  end: End,
  size: number,
  { sends, receives, durationMs }: Share,
  onProgress: (done: number) => void,
): Promise<Bandwidth> {
  const { qps, txDepth } = end.options;
  const isSender = sends > 0;
  const begin = performance.now();
  const part = durationMs > 0 ? qps * txDepth : Math.ceil((qps * (isSender ? sends : receives)) / PARTS);
  const meter = new Meter(size, part, begin);
  const until = durationMs > 0 ? begin + durationMs : Number.POSITIVE_INFINITY;
  const receivesAll = qps * receives;
  for (;;) {
    if (performance.now() >= until) end.stop();
    end.fill();
    if (isSender) meter.posted(end.sent + end.outstanding);
    if (end.outstanding === 0 && end.received >= receivesAll) break;
    await end.complete();
    meter.done(isSender ? end.sent : end.received);
    onProgress(end.sent + end.received);
  }
  return meter.result();
}

/** Takes the times of parts of a run. */
class Meter {
  #done = 0;
  #peak = 0;
  #last: number;
  #parts = 0;
  /** When the first message of each part was posted; a receiver takes the end of the part before. */
  readonly #begins: number[];

  /** @param part messages of a part */
  constructor(
    readonly size: number,
    readonly part: number,
    readonly begin: number,
  ) {
    this.#begins = [begin];
    this.#last = begin;
  }

  posted(count: number): void {
    while (this.#begins.length * this.part < count) this.#begins.push(performance.now());
  }

  done(count: number): void {
    if (count === this.#done) return;
    this.#done = count;
    this.#last = performance.now();
    for (; (this.#parts + 1) * this.part <= count; this.#parts++) {
      const begin = this.#begins[this.#parts] ?? this.#last;
      this.#peak = Math.max(this.#peak, this.part / Math.max(1e-3, this.#last - begin));
      if (this.#begins.length === this.#parts + 1) this.#begins.push(this.#last);
    }
  }

  result(): Bandwidth {
    const perMs = this.#done / Math.max(1e-3, this.#last - this.begin);
    const mib = (this.size * 1000) / 2 ** 20;
    const peak = Math.max(this.#peak, perMs);
    return { size: this.size, iters: this.#done, peak: peak * mib, average: perMs * mib, rate: perMs / 1000 };
  }
}
