/** The report of a test: perftest's columns, or a JSON object. */
import type { Counters, Device } from '../../index.js';
import { faultsIn, nonZero } from '../counters.js';
import { hex } from '../hex.js';
import type { Output } from '../output.js';
import type { BandwidthReport, Negotiated } from './communication/handshake.js';
import type { Keys } from './communication/keys.js';
import type { LatencyReport } from './latency.js';
import { messageSize, type PerftestOptions } from './parameters.js';
import type { TestResult } from './session.js';

/** The object that `--json` prints. */
export interface PerftestReport {
  /** No message was lost, and no limit was missed. */
  readonly ok: boolean;
  readonly test: string;
  readonly role: 'client' | 'server';
  readonly link: string;
  readonly interface: string;
  readonly transport: string;
  readonly mtu: number;
  readonly qps: number;
  /** The peer's version of the handshake. */
  readonly peerVersion: string;
  readonly local: { readonly qpNum: number; readonly psn: number; readonly gid: string };
  readonly remote: { readonly qpNum: number; readonly psn: number; readonly gid: string };
  /** MiB and millions of messages per second; with --bidirectional, the sum of both directions. */
  readonly bandwidth?: readonly BandwidthReport[];
  /** Microseconds: half a round trip; for READ and atomics, the whole of it. */
  readonly latency?: readonly LatencyReport[];
  readonly retransmits: number;
  /** Messages that were not received: UC and UD do not retransmit. */
  readonly lost: number;
  /** Faults of each kind that the local link has injected. */
  readonly faults: Counters;
  readonly counters: { readonly qp: Counters; readonly device: Counters };
  readonly notes: readonly string[];
}

export function reportOf(
  device: Device,
  role: PerftestReport['role'],
  options: PerftestOptions,
  result: TestResult,
): PerftestReport {
  const { local, remote, negotiated, bandwidths, latencies, lost, counters } = result;
  const { kind, transport, qps } = options;
  const all = device.counters();
  const name = ({ qpNum, psn, gid }: Keys) => ({ qpNum, psn, gid });
  return {
    ok: failureReason(options, result) === undefined,
    test: kind.name,
    role,
    link: device.query().link.kind,
    interface: device.queryPort().interface,
    transport,
    mtu: negotiated.mtu,
    qps,
    peerVersion: negotiated.version,
    local: name(local),
    remote: name(remote),
    ...(kind.measures === 'bw' ? { bandwidth: bandwidths } : { latency: latencies }),
    retransmits: counters.retransmits ?? 0,
    lost,
    faults: faultsIn(all),
    counters: { qp: nonZero(counters), device: nonZero(all) },
    notes: [...device.notes, ...sizeNotes(options, negotiated)],
  };
}

/** Prints the table of the stock program. */
export class Table {
  constructor(
    readonly options: PerftestOptions,
    readonly output: Output,
  ) {}

  header(device: Device, local: readonly Keys[], remote: readonly Keys[], negotiated: Negotiated): void {
    const { mtu } = negotiated;
    const { kind, transport, qps, bidirectional, txDepth } = this.options;
    const { output } = this;
    const way = kind.measures === 'lat' ? 'Latency' : bidirectional ? 'Bidirectional BW' : 'BW';
    output.line(RULE);
    output.line(`                    RDMA_${kind.verb === 'SEND' ? 'Send' : title(kind.verb)} ${way} Test`);
    output.line(` Interface       : ${device.queryPort().interface}\t\tLink            : ${device.query().link.kind}`);
    output.line(` Number of qps   : ${qps}\t\tConnection type : ${transport}`);
    output.line(` TX depth        : ${txDepth}\t\tMtu             : ${mtu}[B]`);
    for (const note of sizeNotes(this.options, negotiated)) output.line(` ${note}`);
    for (const [whose, keys] of [
      ['local', local],
      ['remote', remote],
    ] as const)
      for (const { qpNum, psn, gid } of keys)
        output.line(` ${whose} address: LID 0000 QPN 0x${hex(qpNum, 4)} PSN 0x${hex(psn, 0)} GID ${gid}`);
    output.line(RULE);
    const unit = unitOf(this.options);
    output.line(
      kind.measures === 'bw'
        ? ` #bytes     #iterations    BW peak[${unit}]    BW average[${unit}]   MsgRate[Mpps]`
        : ' #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]',
    );
  }

  bandwidth({ size, iters, peak, average, rate }: BandwidthReport): void {
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

/** Returns why the test has failed: lost messages, or the first bandwidth below a limit. Undefined if it has not. */
export function failureReason(
  options: PerftestOptions,
  { bandwidths, received, lost }: Pick<TestResult, 'bandwidths' | 'received' | 'lost'>,
): string | undefined {
  const { transport, limitBandwidth = 0, limitMsgRate = 0 } = options;
  if (lost > 0)
    return (
      `${received} of ${received + lost} messages were received: ${transport} does not retransmit a message that was ` +
      'lost or found no receive (--rx-depth)'
    );
  for (const { size, average, rate } of bandwidths) {
    const bandwidth = average * scaleOf(options);
    if (bandwidth < limitBandwidth)
      return `${size} bytes: ${bandwidth.toFixed(2)} ${unitOf(options)} is less than ${limitBandwidth} (--limit_bw)`;
    if (rate < limitMsgRate)
      return `${size} bytes: ${rate.toFixed(6)} million messages per second is less than ${limitMsgRate} (--limit_msgrate)`;
  }
  return undefined;
}

function sizeNotes(options: PerftestOptions, { mtu }: Negotiated): string[] {
  const { size } = options;
  if (messageSize(options, mtu) === size) return [];
  return [`message size reduced from ${size} to ${mtu} bytes: a datagram holds at most the path MTU`];
}

const RULE = '-'.repeat(87);

const unitOf = ({ gigabits }: PerftestOptions) => (gigabits ? 'Gb/sec' : 'MiB/sec');
/** Factor from MiB to the unit of the report. */
const scaleOf = ({ gigabits }: PerftestOptions) => (gigabits ? (2 ** 20 * 8) / 1e9 : 1);

function title(verb: string): string {
  return verb.charAt(0) + verb.slice(1).toLowerCase();
}
