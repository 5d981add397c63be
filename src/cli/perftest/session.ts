/** One test, from handshake to handshake: its barriers, and the runs between them. */
import type { CmAddress, Counters, Device } from '../../index.js';
import { usageError } from '../exit.js';
import type { Output } from '../output.js';
import { runBandwidth } from './bandwidth.js';
import { CmConnections } from './communication/cmconnections.js';
import type { BandwidthReport, Handshake, Negotiated } from './communication/handshake.js';
import type { Keys } from './communication/keys.js';
import { type LatencyReport, runReads, runSends, runWrites } from './latency.js';
import { messageSize, type PerftestOptions, type RunInfinitely, takesReceives } from './parameters.js';
import { PerftestContext } from './resources.js';
import { supervise } from './supervise.js';

export interface TestResult {
  readonly local: Keys;
  readonly remote: Keys;
  readonly negotiated: Negotiated;
  /** For each size. A server that has nothing to measure has those of the client. */
  readonly bandwidths: readonly BandwidthReport[];
  readonly latencies: readonly LatencyReport[];
  /** Messages that were received, and those that were lost. */
  readonly received: number;
  readonly lost: number;
  readonly counters: Counters;
}

export interface SessionListeners {
  onConnected(local: readonly Keys[], remote: readonly Keys[], negotiated: Negotiated): void;
  /** With `runInfinitely`: the result of each interval. */
  onInterval(result: BandwidthReport): void;
  onBandwidth(result: BandwidthReport): void;
  onLatency(result: LatencyReport): void;
}

/** Runs a test. @param peer its address, by which ours is chosen; with `rdmaCm` also its port */
export async function runSession(
  device: Device,
  handshake: Handshake,
  requested: PerftestOptions,
  peer: CmAddress,
  listeners: SessionListeners,
  output: Output,
): Promise<TestResult> {
  const { activeMtu } = device.queryPort();
  const { mtu = activeMtu } = requested;
  if (mtu > activeMtu)
    throw usageError(`path MTU ${mtu} (--mtu) is more than the interface carries: its MTU allows ${activeMtu}`);
  const negotiated = await handshake.negotiate(mtu);
  const options = { ...requested, size: messageSize(requested, negotiated.mtu) };
  if (requested.isSizeGiven && options.size < requested.size)
    throw usageError(`a datagram of ${requested.size} bytes (--size) is more than the path MTU, ${negotiated.mtu}`);
  const ctx = await PerftestContext.open(device, options, negotiated);
  const cmConnections = options.rdmaCm ? new CmConnections(ctx, handshake.role, peer) : undefined;
  try {
    return await new Session(ctx, handshake, peer.address, cmConnections, listeners, output).run();
  } finally {
    await cmConnections?.close();
    await ctx.close();
  }
}

class Session {
  readonly #local: Keys[] = [];
  readonly #remote: Keys[] = [];
  readonly #bandwidths: BandwidthReport[] = [];
  readonly #latencies: LatencyReport[] = [];
  #received = 0;
  #lost = 0;

  constructor(
    readonly ctx: PerftestContext,
    readonly handshake: Handshake,
    readonly peer: string,
    readonly cmConnections: CmConnections | undefined,
    readonly listeners: SessionListeners,
    readonly output: Output,
  ) {}

  async run(): Promise<TestResult> {
    const { ctx } = this;
    const { kind } = ctx.options;
    await this.cmConnections?.connect(() => this.#barrier());
    // The latency tests of one-sided verbs begin with one more barrier.
    if (kind.measures === 'lat' && kind.verb !== 'SEND') await this.#barrier();
    await this.#exchangeKeys();
    for (const [i, remote] of this.#remote.entries()) await ctx.connect(i, remote);
    this.listeners.onConnected(this.#local, this.#remote, ctx.negotiated);
    if (kind.verb === 'SEND') await this.#barrier();
    await this.#exchangeKeys();
    if (kind.verb !== 'SEND') await this.#barrier();
    if (kind.measures === 'bw') await this.#bandwidth();
    else await this.#latency();
    const counters = ctx.counters();
    await this.cmConnections?.disconnect();
    const [local, remote] = [this.#local[0] as Keys, this.#remote[0] as Keys];
    const [bandwidths, latencies, received, lost] = [this.#bandwidths, this.#latencies, this.#received, this.#lost];
    return { local, remote, negotiated: ctx.negotiated, bandwidths, latencies, received, lost, counters };
  }

  async #bandwidth(): Promise<void> {
    const { options } = this.ctx;
    const { bidirectional, runInfinitely } = options;
    const isClient = this.handshake.role === 'client';
    const bothWork = takesReceives(options) || bidirectional;
    if (bothWork || isClient) for (const size of this.#sizes()) await this.#run(size);
    // a stock program runs until it is killed
    if (bothWork && runInfinitely) return;
    if (!bothWork) {
      await this.#barrier(true);
      const theirs = await this.handshake.exchangeReports(this.#bandwidths.at(-1) ?? NO_BANDWIDTH);
      // a stock client that is stopped does not report what it has done
      if (!isClient && !runInfinitely) this.#report(theirs);
    }
    await this.#barrier(true);
  }

  async #run(size: number): Promise<void> {
    const { ctx, handshake, output } = this;
    const { options } = ctx;
    const { iters, bidirectional, all, durationMs, runInfinitely } = options;
    const isClient = handshake.role === 'client';
    const twoSided = takesReceives(options);
    // SENDs with a duration have no reports: each end knows both directions
    const isReported = bidirectional && !(twoSided && durationMs > 0);
    const sends = isClient || bidirectional ? iters : 0;
    const receives = twoSided && (!isClient || bidirectional) ? iters : 0;
    const counts = bidirectional && !isReported ? 'both' : sends > 0 ? 'sent' : 'received';
    ctx.begin({ size, sends, receives });
    if (twoSided || (bidirectional && !runInfinitely)) await this.#barrier(true);
    const onProgress = (done: number) => output.progress(() => `${size} bytes: ${done} messages`);
    const watcher = { onProgress, ...(runInfinitely && { runInfinitely: this.#watch(runInfinitely) }) };
    const run = runBandwidth(ctx, size, { sends, receives, counts }, watcher);
    const mine = await supervise(run, ctx, handshake.channel);
    this.#received += ctx.received;
    this.#lost += ctx.missing;
    if (bidirectional && all && !twoSided) await this.#barrier(true);
    const theirs = isReported && !runInfinitely ? await handshake.exchangeReports(mine) : undefined;
    if (all && twoSided) await this.#barrier(true);
    this.#report(theirs ? addBandwidths(mine, theirs) : mine);
  }

  /** An infinite run ends when it is stopped, or when the peer leaves. */
  #watch({ intervalMs, onStop }: RunInfinitely) {
    onStop(() => this.ctx.stop());
    const onInterval = (result: BandwidthReport) => this.listeners.onInterval(result);
    return { intervalMs, onInterval };
  }

  async #latency(): Promise<void> {
    const { ctx, handshake, output } = this;
    const { kind, iters } = ctx.options;
    const twoSided = takesReceives(ctx.options);
    const isClient = handshake.role === 'client';
    const bothWork = kind.verb === 'SEND' || kind.verb === 'WRITE';
    if (bothWork || isClient)
      for (const size of this.#sizes()) {
        ctx.begin({ size, sends: iters, receives: twoSided ? iters : 0 });
        if (twoSided) await this.#barrier(true);
        const run =
          kind.verb === 'SEND'
            ? runSends(ctx, size, handshake.role)
            : kind.verb === 'WRITE'
              ? runWrites(ctx, size, handshake.role)
              : runReads(ctx, size);
        // seldom, since every line costs a message some time
        const show = () => output.progress(() => `${size} bytes: ${ctx.sent} of ${iters} messages`);
        const timer = setInterval(show, PROGRESS_MS);
        const report = await supervise(run, ctx, handshake.channel).finally(() => clearInterval(timer));
        this.#latencies.push(report);
        this.listeners.onLatency(report);
      }
    // The stock WRITE test ends with its last message, without a barrier.
    if (kind.verb === 'WRITE') await handshake.channel.shutdown(SHUTDOWN_MS);
    else await this.#barrier(true);
  }

  #sizes(): number[] {
    const { all, size } = this.ctx.options;
    if (!all) return [size];
    return Array.from({ length: Math.floor(Math.log2(size)) }, (_, i) => 2 ** (i + 1));
  }

  #report(result: BandwidthReport): void {
    this.#bandwidths.push(result);
    this.listeners.onBandwidth(result);
  }

  /** Exchanges the keys of every queue pair. */
  async #exchangeKeys(): Promise<void> {
    for (let i = 0; i < this.ctx.options.qps; i++)
      this.#remote[i] = await this.handshake.exchangeKeys((theirs) => this.#keys(i, theirs));
  }

  /** Waits for the peer, by exchanging the keys of the first queue pair again. */
  async #barrier(patient = false): Promise<void> {
    await this.handshake.exchangeKeys((theirs) => this.#keys(0, theirs), { patient });
  }

  #keys(index: number, theirs: Keys | undefined): Keys {
    const mine = this.#local[index] ?? this.ctx.keys(index, theirs?.gid ?? this.peer);
    this.#local[index] = mine;
    return mine;
  }
}

/** Time that an end stays when it is done, to acknowledge again if its last ACK was lost (ms). */
const SHUTDOWN_MS = 2000;
/** Time between two lines of progress of the latency tests (ms). */
const PROGRESS_MS = 1000;

const NO_BANDWIDTH: BandwidthReport = { size: 0, iters: 0, peak: 0, average: 0, rate: 0 };

function addBandwidths(mine: BandwidthReport, theirs: BandwidthReport): BandwidthReport {
  return {
    size: mine.size,
    iters: mine.iters,
    peak: mine.peak + theirs.peak,
    average: mine.average + theirs.average,
    rate: mine.rate + theirs.rate,
  };
}
