/** Runs the bandwidth tests: many messages in flight, in one direction or both. */

import type { BandwidthReport } from './communication/handshake.js';
import type { PerftestContext } from './resources.js';

/** Equal parts of a run, of which the best is the peak. A part lasts from its first post to its last completion. */
const PARTS = 10;
/** Time between two checks whether an interval of `runInfinitely` is over (ms). */
const POLL_MS = 50;

export interface MessageCounts {
  /** Messages of each queue pair that this end sends, and those that consume a receive of this end. */
  readonly sends: number;
  readonly receives: number;
  /** Which messages this end counts; 'both' if the peer sends no report of the other direction. */
  readonly counts: 'sent' | 'received' | 'both';
}

export interface RunListener {
  /** Called with the number of messages that are done. */
  onProgress(done: number): void;
  /** With `runInfinitely`: called at the end of each interval with its result. */
  readonly runInfinitely?: { readonly intervalMs: number; onInterval(result: BandwidthReport): void };
}

/**
 * Runs one test. The run ends with its last message. When its time is over or it is stopped, it leaves the messages in
 * flight, as the stock programs do.
 */
export async function runBandwidth(
  ctx: PerftestContext,
  size: number,
  messages: MessageCounts,
  listener: RunListener,
): Promise<BandwidthReport> {
  const { qps, txDepth, noPeak } = ctx.options;
  const { sends, receives, counts } = messages;
  const { runInfinitely } = listener;
  const each = counts === 'received' ? receives : sends;
  // an infinite run has no peak
  const part = runInfinitely ? each : Number.isFinite(each) ? Math.ceil((qps * each) / PARTS) : qps * txDepth;
  const done = () => (counts === 'both' ? ctx.sent + ctx.received : counts === 'sent' ? ctx.sent : ctx.received);
  const meter = new Meter(size, part, performance.now());
  while (!ctx.isOver) {
    ctx.fill();
    if (counts === 'sent') meter.posted(ctx.sent + ctx.outstanding);
    if (ctx.outstanding === 0 && ctx.received >= qps * receives) break;
    await ctx.complete(runInfinitely && POLL_MS);
    if (done() > 0) ctx.startClock();
    meter.done(done());
    listener.onProgress(done());
    if (runInfinitely) meter.eachInterval(runInfinitely.intervalMs, runInfinitely.onInterval);
  }
  const result = meter.result();
  return noPeak ? { ...result, peak: 0 } : result;
}

/** Measures the parts of a run. */
class Meter {
  #done = 0;
  #peak = 0;
  #last: number;
  #parts = 0;
  /** When the first message of each part was posted; at a receiver, the end of the part before. */
  readonly #begins: number[];
  /** Begin of the current interval of an infinite run. */
  #interval: { readonly at: number; readonly done: number };

  /** @param part messages of each part */
  constructor(
    readonly size: number,
    readonly part: number,
    readonly begin: number,
  ) {
    this.#begins = [begin];
    this.#last = begin;
    this.#interval = { at: begin, done: 0 };
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

  eachInterval(ms: number, report: (result: BandwidthReport) => void): void {
    const { at, done } = this.#interval;
    const now = performance.now();
    if (now - at < ms) return;
    this.#interval = { at: now, done: this.#done };
    report(this.#bandwidth(this.#done - done, now - at, 0));
  }

  result(): BandwidthReport {
    return this.#bandwidth(this.#done, this.#last - this.begin, this.#peak);
  }

  /** @param peak messages per millisecond */
  #bandwidth(iters: number, ms: number, peak: number): BandwidthReport {
    const perMs = iters / Math.max(1e-3, ms);
    const mib = (this.size * 1000) / 2 ** 20;
    return { size: this.size, iters, peak: Math.max(peak, perMs) * mib, average: perMs * mib, rate: perMs / 1000 };
  }
}
