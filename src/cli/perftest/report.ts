/** What a test tells: perftest's columns, or one JSON object. */
import type { Counters, Device } from '../../index.js';
import type { Output } from '../output.js';
import type { Bandwidth, Terms } from './handshake.js';
import type { Keys } from './keys.js';
import { type PerftestOptions, sizeWithin } from './kinds.js';
import type { LatencyReport } from './latency.js';
import type { Result } from './session.js';

/** What `--json` prints. */
export interface PerftestReport {
  /** Nothing was lost for good, and no limit was missed. */
  readonly ok: boolean;
  readonly test: string;
  readonly role: 'client' | 'server';
  readonly link: string;
  readonly interface: string;
  readonly transport: string;
  readonly mtu: number;
  readonly qps: number;
  /** The peer's version of the hand-shake. */
  readonly peerVersion: string;
  readonly local: { readonly qpn: number; readonly psn: number; readonly gid: string };
  readonly remote: { readonly qpn: number; readonly psn: number; readonly gid: string };
  /** MiB and millions of messages a second; with --bidirectional of both directions. */
  readonly bandwidth?: readonly Bandwidth[];
  /** Microseconds; half a round trip, for READ a whole one. */
  readonly latency?: readonly LatencyReport[];
  readonly retransmits: number;
  /** Messages that have not come, as UC and UD send nothing again. */
  readonly lost: number;
  /** Frames that met each fate on our own link, by the options. */
  readonly faults: Counters;
  readonly counters: { readonly qp: Counters; readonly device: Counters };
  readonly notes: readonly string[];
}

export function reportOf(
  device: Device,
  role: PerftestReport['role'],
  options: PerftestOptions,
  result: Result,
): PerftestReport {
  const { local, remote, terms, bandwidths, latencies, lost, counters } = result;
  const { kind, transport, qps } = options;
  const all = device.counters();
  const fault = /^link\.fault_/;
  const faults = Object.entries(all).filter(([name, count]) => fault.test(name) && count > 0);
  const name = ({ qpn, psn, gid }: Keys) => ({ qpn, psn, gid });
  return {
    ok: missed(options, result) === undefined,
    test: kind.name,
    role,
    link: device.query().link.kind,
    interface: device.queryPort().interface,
    transport,
    mtu: terms.mtu,
    qps,
    peerVersion: terms.version,
    local: name(local),
    remote: name(remote),
    ...(kind.measures === 'bw' ? { bandwidth: bandwidths } : { latency: latencies }),
    retransmits: counters.retransmits ?? 0,
    lost,
    faults: Object.fromEntries(faults.map(([key, count]) => [key.replace(fault, ''), count])),
    counters: { qp: positive(counters), device: positive(all) },
    notes: [...device.notes, ...sizeNotes(options, terms)],
  };
}

/** Prints in the manner of the stock program. */
export class Table {
  constructor(
    readonly options: PerftestOptions,
    readonly output: Output,
  ) {}

  header(device: Device, local: readonly Keys[], remote: readonly Keys[], terms: Terms): void {
    const { mtu } = terms;
    const { kind, transport, qps, bidirectional, txDepth } = this.options;
    const { output } = this;
    const way = kind.measures === 'lat' ? 'Latency' : bidirectional ? 'Bidirectional BW' : 'BW';
    output.line(RULE);
    output.line(`                    RDMA_${kind.verb === 'SEND' ? 'Send' : title(kind.verb)} ${way} Test`);
    output.line(` Interface       : ${device.queryPort().interface}\t\tLink            : ${device.query().link.kind}`);
    output.line(` Number of qps   : ${qps}\t\tConnection type : ${transport}`);
    output.line(` TX depth        : ${txDepth}\t\tMtu             : ${mtu}[B]`);
    for (const note of sizeNotes(this.options, terms)) output.line(` ${note}`);
    for (const [whose, keys] of [
      ['local', local],
      ['remote', remote],
    ] as const)
      for (const { qpn, psn, gid } of keys)
        output.line(
          ` ${whose} address: LID 0000 QPN 0x${qpn.toString(16).padStart(4, '0')} PSN 0x${psn.toString(16)} GID ${gid}`,
        );
    output.line(RULE);
    const unit = unitOf(this.options);
    output.line(
      kind.measures === 'bw'
        ? ` #bytes     #iterations    BW peak[${unit}]    BW average[${unit}]   MsgRate[Mpps]`
        : ' #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]',
    );
  }

  bandwidth({ size, iters, peak, average, rate }: Bandwidth): void {
    const scale = scaleOf(this.options);
    const texts = [(peak * scale).toFixed(2), (average * scale).toFixed(2), rate.toFixed(6)];
    const [best = '', mean = '', messages = ''] = texts;
    this.output.line(
      ` ${String(size).padEnd(10)} ${String(iters).padEnd(14)} ${best.padEnd(18)} ${mean.padEnd(21)} ${messages}`,
    );
  }

  latency({ size, iters, min, max, typical, average, stdev, p99, p999, times = [] }: LatencyReport): void {
    const { unsorted, histogram } = this.options;
    if (unsorted) this.#list(times);
    if (histogram) this.#list([...times].sort((a, b) => a - b));
    const widths = [15, 13, 18, 15, 17, 23, 0];
    const columns = [min, max, typical, average, stdev, p99, p999].map((time, i) =>
      time.toFixed(2).padEnd(widths[i] as number),
    );
    this.output.line(` ${String(size).padEnd(7)}${String(iters).padEnd(15)}${columns.join('')}`);
  }

  #list(times: readonly number[]): void {
    this.output.line('#, usec');
    for (const [i, time] of times.entries()) this.output.line(`${i + 1}, ${Number(time.toPrecision(6))}`);
  }

  end({ link, retransmits, faults }: PerftestReport): void {
    this.output.line(RULE);
    const met = Object.entries(faults).map(([name, count]) => `, ${name} ${count}`);
    if (retransmits > 0 || met.length > 0)
      this.output.line(` link ${link}: ${retransmits} packets retransmitted${met.join('')}`);
  }
}

/** What the result lacks, in words: messages, or by the first of its bandwidths what a limit asks for. */
export function missed(
  options: PerftestOptions,
  { bandwidths, received, lost }: Pick<Result, 'bandwidths' | 'received' | 'lost'>,
): string | undefined {
  const { transport, leastBandwidth = 0, leastRate = 0 } = options;
  if (lost > 0)
    return (
      `${received} of ${received + lost} messages have come: ${transport} sends nothing again that was lost on the way ` +
      'or found no receive (--rx-depth)'
    );
  for (const { size, average, rate } of bandwidths) {
    const bandwidth = average * scaleOf(options);
    if (bandwidth < leastBandwidth)
      return `${size} bytes: ${bandwidth.toFixed(2)} ${unitOf(options)} are less than ${leastBandwidth} (--limit_bw)`;
    if (rate < leastRate)
      return `${size} bytes: ${rate.toFixed(6)} million messages a second are less than ${leastRate} (--limit_msgrate)`;
  }
  return undefined;
}

function sizeNotes(options: PerftestOptions, { mtu }: Terms): string[] {
  const { size } = options;
  if (sizeWithin(options, mtu) === size) return [];
  return [`messages of ${mtu} bytes at most instead of ${size}: a datagram holds no more than the path MTU`];
}

const RULE = '-'.repeat(87);

const unitOf = ({ gigabits }: PerftestOptions) => (gigabits ? 'Gb/sec' : 'MiB/sec');
/** From MiB to that unit. */
const scaleOf = ({ gigabits }: PerftestOptions) => (gigabits ? (2 ** 20 * 8) / 1e9 : 1);

function title(verb: string): string {
  return verb.charAt(0) + verb.slice(1).toLowerCase();
}

const positive = (counters: Counters): Counters =>
  Object.fromEntries(Object.entries(counters).filter(([, count]) => count > 0));
