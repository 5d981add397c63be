/** Runs of the tests of bandwidth: many messages at once, one way or both ways. */
import type { End } from './end.js';
import type { Bandwidth } from './handshake.js';

/** The peak is the best of so many equal parts of a run, each from its first message's posting to its last one's completion. */
const PARTS = 10;
/** How often an endless run looks whether an interval is over, ms. */
const LOOK_MS = 50;

export interface Share {
  /** Messages of each queue pair that this end sends, and that it receives with a receive of its own. */
  readonly sends: number;
  readonly receives: number;
  /** What counts where no report of the peer tells of the other direction. */
  readonly counts: 'sent' | 'received' | 'both';
}

export interface Watcher {
  /** Is told how many messages are done. */
  onProgress(done: number): void;
  /** An endless run: what it has done since the last time. */
  readonly endless?: { readonly intervalMs: number; onInterval(result: Bandwidth): void };
}

/** A run ends with its last message; what has an end in time or is stopped leaves what is on the way, as the stock programs do. */
export async function runBandwidth(end: End, size: number, share: Share, watcher: Watcher): Promise<Bandwidth> {
  const { qps, txDepth, noPeak } = end.options;
  const { sends, receives, counts } = share;
  const { endless } = watcher;
  const each = counts === 'received' ? receives : sends;
  // without end there is no best part of the whole
  const part = endless ? each : Number.isFinite(each) ? Math.ceil((qps * each) / PARTS) : qps * txDepth;
  const done = () => (counts === 'both' ? end.sent + end.received : counts === 'sent' ? end.sent : end.received);
  const meter = new Meter(size, part, performance.now());
  while (!end.isOver) {
    end.fill();
    if (counts === 'sent') meter.posted(end.sent + end.outstanding);
    if (end.outstanding === 0 && end.received >= qps * receives) break;
    await end.complete(endless && LOOK_MS);
    if (done() > 0) end.startClock();
    meter.done(done());
    watcher.onProgress(done());
    if (endless) meter.eachInterval(endless.intervalMs, endless.onInterval);
  }
  const result = meter.result();
  return noPeak ? { ...result, peak: 0 } : result;
}

/** Takes the times of parts of a run. */
class Meter {
  #done = 0;
  #peak = 0;
  #last: number;
  #parts = 0;
  /** When the first message of each part was posted; a receiver takes the end of the part before. */
  readonly #begins: number[];
  /** Where the present interval of an endless run begins. */
  #interval: { readonly at: number; readonly done: number };

  /** @param part messages of a part */
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

  eachInterval(ms: number, tell: (result: Bandwidth) => void): void {
    const { at, done } = this.#interval;
    const now = performance.now();
    if (now - at < ms) return;
    this.#interval = { at: now, done: this.#done };
    tell(this.#bandwidth(this.#done - done, now - at, 0));
  }

  result(): Bandwidth {
    return this.#bandwidth(this.#done, this.#last - this.begin, this.#peak);
  }

  /** @param peak messages a millisecond */
  #bandwidth(iters: number, ms: number, peak: number): Bandwidth {
    const perMs = iters / Math.max(1e-3, ms);
    const mib = (this.size * 1000) / 2 ** 20;
    return { size: this.size, iters, peak: Math.max(peak, perMs) * mib, average: perMs * mib, rate: perMs / 1000 };
  }
}
