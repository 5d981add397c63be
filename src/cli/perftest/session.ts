/** One test from hand-shake to hand-shake: which barriers there are, and what runs between them. */
import type { CmAddress, Device } from '../../index.js';
import { usageError } from '../exit.js';
import type { Output } from '../output.js';
import { runBandwidth } from './bandwidth.js';
import { CmPairs } from './cmpairs.js';
import { End } from './end.js';
import type { Bandwidth, Exchange, Terms } from './handshake.js';
import type { Keys } from './keys.js';
import { type Endless, type PerftestOptions, sizeWithin, takesReceives } from './kinds.js';
import { type LatencyReport, runReads, runSends, runWrites } from './latency.js';
import { watched } from './watch.js';

export interface Result {
  readonly local: Keys;
  readonly remote: Keys;
  readonly terms: Terms;
  /** For each size; those of the server are the client's where it has nothing to measure. */
  readonly bandwidths: readonly Bandwidth[];
  readonly latencies: readonly LatencyReport[];
  /** Messages that have come, and those that should have as well. */
  readonly received: number;
  readonly lost: number;
  readonly counters: Readonly<Record<string, number>>;
}

export interface Listeners {
  onConnected(local: readonly Keys[], remote: readonly Keys[], terms: Terms): void;
  /** Of an endless test, what an interval was like. */
  onInterval(result: Bandwidth): void;
  onBandwidth(result: Bandwidth): void;
  onLatency(result: LatencyReport): void;
}

/** @param peer its address, to choose ours by; with `rdmaCm` also the port where the two ends have met */
export async function runSession(
  device: Device,
  exchange: Exchange,
  asked: PerftestOptions,
  peer: CmAddress,
  listeners: Listeners,
  output: Output,
): Promise<Result> {
  const { activeMtu } = device.queryPort();
  const { mtu = activeMtu } = asked;
  if (mtu > activeMtu)
    throw usageError(`path MTU ${mtu} (--mtu) is more than the interface carries: its MTU allows ${activeMtu}`);
  const terms = await exchange.terms(mtu);
  const options = { ...asked, size: sizeWithin(asked, terms.mtu) };
  if (asked.sizeIsGiven && options.size < asked.size)
    throw usageError(`a datagram holds ${terms.mtu} bytes at most, the path MTU: not ${asked.size} (--size)`);
  const end = await End.open(device, options, terms);
  const pairs = options.rdmaCm ? new CmPairs(end, exchange.role, peer) : undefined;
  try {
    return await new Session(end, exchange, peer.address, pairs, listeners, output).run();
  } finally {
    await pairs?.close();
    await end.close();
  }
}

class Session {
  readonly #local: Keys[] = [];
  readonly #remote: Keys[] = [];
  readonly #bandwidths: Bandwidth[] = [];
  readonly #latencies: LatencyReport[] = [];
  #received = 0;
  #lost = 0;

  constructor(
    readonly end: End,
    readonly exchange: Exchange,
    readonly peer: string,
    readonly pairs: CmPairs | undefined,
    readonly listeners: Listeners,
    readonly output: Output,
  ) {}

  async run(): Promise<Result> {
    const { end } = this;
    const { kind } = end.options;
    await this.pairs?.connect(() => this.#barrier());
    // The latency tests of one-sided verbs have one barrier more, before all else.
    if (kind.measures === 'lat' && kind.verb !== 'SEND') await this.#barrier();
    await this.#introduce();
    for (const [i, remote] of this.#remote.entries()) await end.connect(i, remote);
    this.listeners.onConnected(this.#local, this.#remote, end.terms);
    if (kind.verb === 'SEND') await this.#barrier();
    await this.#introduce();
    if (kind.verb !== 'SEND') await this.#barrier();
    if (kind.measures === 'bw') await this.#bandwidth();
    else await this.#latency();
    const counters = end.counters();
    await this.pairs?.part();
    const [local, remote] = [this.#local[0] as Keys, this.#remote[0] as Keys];
    const [bandwidths, latencies, received, lost] = [this.#bandwidths, this.#latencies, this.#received, this.#lost];
    return { local, remote, terms: end.terms, bandwidths, latencies, received, lost, counters };
  }

  async #bandwidth(): Promise<void> {
    const { options } = this.end;
    const { bidirectional, endless } = options;
    const isClient = this.exchange.role === 'client';
    const bothWork = takesReceives(options) || bidirectional;
    if (bothWork || isClient) for (const size of this.#sizes()) await this.#run(size);
    // there a stock program goes on until it is killed
    if (bothWork && endless) return;
    if (!bothWork) {
      await this.#barrier(true);
      const theirs = await this.exchange.report(this.#bandwidths.at(-1) ?? NOTHING);
      // and does not know what it has done when it is stopped
      if (!isClient && !endless) this.#tell(theirs);
    }
    await this.#barrier(true);
  }

  async #run(size: number): Promise<void> {
    const { end, exchange, output } = this;
    const { options } = end;
    const { iters, bidirectional, all, durationMs, endless } = options;
    const isClient = exchange.role === 'client';
    const twoSided = takesReceives(options);
    // SENDs for a time: no reports, as either end knows both directions
    const isReported = bidirectional && !(twoSided && durationMs > 0);
    const sends = isClient || bidirectional ? iters : 0;
    const receives = twoSided && (!isClient || bidirectional) ? iters : 0;
    const counts = bidirectional && !isReported ? 'both' : sends > 0 ? 'sent' : 'received';
    end.begin({ size, sends, receives });
    if (twoSided || (bidirectional && !endless)) await this.#barrier(true);
    const onProgress = (done: number) => output.progress(() => `${size} bytes: ${done} messages`);
    const watcher = { onProgress, ...(endless && { endless: this.#watch(endless) }) };
    const run = runBandwidth(end, size, { sends, receives, counts }, watcher);
    const mine = await watched(run, end, exchange.control);
    this.#received += end.received;
    this.#lost += end.missing;
    if (bidirectional && all && !twoSided) await this.#barrier(true);
    const theirs = isReported && !endless ? await exchange.report(mine) : undefined;
    if (all && twoSided) await this.#barrier(true);
    this.#tell(theirs ? sum(mine, theirs) : mine);
  }

  /** An endless run ends when it is stopped here, or when the peer goes. */
  #watch({ intervalMs, onStop }: Endless) {
    onStop(() => this.end.stop());
    const onInterval = (result: Bandwidth) => this.listeners.onInterval(result);
    return { intervalMs, onInterval };
  }

  async #latency(): Promise<void> {
    const { end, exchange } = this;
    const { kind, iters } = end.options;
    const twoSided = takesReceives(end.options);
    const isClient = exchange.role === 'client';
    const bothWork = kind.verb === 'SEND' || kind.verb === 'WRITE';
    if (bothWork || isClient)
      for (const size of this.#sizes()) {
        end.begin({ size, sends: iters, receives: twoSided ? iters : 0 });
        if (twoSided) await this.#barrier(true);
        const run =
          kind.verb === 'SEND'
            ? runSends(end, size, exchange.role)
            : kind.verb === 'WRITE'
              ? runWrites(end, size, exchange.role)
              : runReads(end, size);
        const report = await watched(run, end, exchange.control);
        this.#latencies.push(report);
        this.listeners.onLatency(report);
      }
    // WRITE ends with its last message; the stock program asks nothing more.
    if (kind.verb === 'WRITE') await exchange.control.part(PART_MS);
    else await this.#barrier(true);
  }

  #sizes(): number[] {
    const { all, size } = this.end.options;
    if (!all) return [size];
    return Array.from({ length: Math.floor(Math.log2(size)) }, (_, i) => 2 ** (i + 1));
  }

  #tell(result: Bandwidth): void {
    this.#bandwidths.push(result);
    this.listeners.onBandwidth(result);
  }

  /** Every queue pair's keys, the first time and again. */
  async #introduce(): Promise<void> {
    for (let i = 0; i < this.end.options.qps; i++)
      this.#remote[i] = await this.exchange.keys((theirs) => this.#keys(i, theirs));
  }

  /** The first queue pair's keys again: both ends have come so far. */
  async #barrier(patient = false): Promise<void> {
    await this.exchange.keys((theirs) => this.#keys(0, theirs), { patient });
  }

  #keys(index: number, theirs: Keys | undefined): Keys {
    const mine = this.#local[index] ?? this.end.keys(index, theirs?.gid ?? this.peer);
    this.#local[index] = mine;
    return mine;
  }
}

/** How long an end that is done stays, to answer when its last acknowledgement was lost. */
const PART_MS = 2000;

const NOTHING: Bandwidth = { size: 0, iters: 0, peak: 0, average: 0, rate: 0 };

function sum(mine: Bandwidth, theirs: Bandwidth): Bandwidth {
  return {
    size: mine.size,
    iters: mine.iters,
    peak: mine.peak + theirs.peak,
    average: mine.average + theirs.average,
    rate: mine.rate + theirs.rate,
  };
}
