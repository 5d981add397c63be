/** Runs of the tests of bandwidth: many messages at once, one way or both ways. */
import type { End } from './end.js';
import type { Bandwidth } from './handshake.js';

/** The peak is the best of so many parts of a run, or of fewer: a part is no less than what may be on the way at once. */
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
  const meter = new Meter(
    size,
    Math.max(durationMs > 0 ? 0 : (qps * (isSender ? sends : receives)) / PARTS, qps * txDepth),
    begin,
  );
  const until = durationMs > 0 ? begin + durationMs : Number.POSITIVE_INFINITY;
  const receivesAll = qps * receives;
  if (durationMs > 0 && !isSender) return { size, iters: 0, peak: 0, average: 0, rate: 0 };
  for (;;) {
    if (performance.now() >= until) end.stop();
    end.fill();
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
  #partBegin: number;
  #partDone = 0;
  #last: number;

  constructor(
    readonly size: number,
    /** Messages. */
    readonly part: number,
    readonly begin: number,
  ) {
    this.#partBegin = begin;
    this.#last = begin;
  }

  done(count: number): void {
    if (count === this.#done) return;
    this.#done = count;
    this.#last = performance.now();
    if (count - this.#partDone < this.part) return;
    this.#peak = Math.max(this.#peak, (count - this.#partDone) / Math.max(1e-3, this.#last - this.#partBegin));
    this.#partBegin = this.#last;
    this.#partDone = count;
  }

  result(): Bandwidth {
    const perMs = this.#done / Math.max(1e-3, this.#last - this.begin);
    const mib = (this.size * 1000) / 2 ** 20;
    const peak = Math.max(this.#peak, perMs);
    return { size: this.size, iters: this.#done, peak: peak * mib, average: perMs * mib, rate: perMs / 1000 };
  }
}
