/**
 * A peer like an adapter: a C program that sends RC WRITEs as a ConnectX does, one frame for each packet and no UDP
 * checksum, so that the receiver's kernel joins no frames. Its receivers are ours, and C programs that only count the
 * same frames.
 */
import type { Rig } from '../rig/program.js';
import { WorkerProcess } from '../rig/worker.js';
import { type Part, type Sample, sampleOf, type Work } from '../work.js';
import type { Introduction } from '../workers/rdma.js';
import type { Contender } from './contender.js';
import { type Flooded, flooded, Native, payloadOf, rawlink, result } from './native.js';
import { canPoll, type OursOptions } from './ours.js';

/** Bytes of BTH, RETH and ICRC, which the largest packet has in addition to its payload. */
const LARGEST_HEADERS = 12 + 16 + 4;
/** OWN_QPN of bench/native/write.c: the first of the adapter's queue pairs. */
const ADAPTER_QPN = 0x45;

const sizeOf = (work: Work) => ['--bytes', String(payloadOf(work) + LARGEST_HEADERS)];

/** Returns the command of the sender. */
function send(rig: Rig, work: Work, role: 'write' | 'flood', ...more: string[]): string[] {
  return rawlink(rig, work, 'a', 'xdp', role, ...sizeOf(work), '--message', String(work.size), ...more);
}

/** The receiving end: devices of one address, each in a process of its own, that share the queue pairs of the work. */
export interface Receivers extends OursOptions {
  readonly devices?: number;
  /** Devices besides, which have no traffic. */
  readonly idle?: number;
  readonly flowSteering?: boolean;
}

/** A link of ours that receives. */
export class FromAdapter implements Contender {
  readonly kind = 'ours';
  readonly link: string;
  #ends: readonly WorkerProcess[] = [];
  #rig!: Rig;

  constructor(
    readonly options: Receivers,
    readonly name = `${options.link}, ${options.mode}`,
  ) {
    this.link = options.link;
  }

  takes({ waiting }: Work): boolean {
    return waiting === (canPoll(this.options) ? 'spin' : 'sleep');
  }

  async begin(rig: Rig): Promise<void> {
    this.#rig = rig;
    const { devices = 1, idle = 0 } = this.options;
    if (this.#ends.length === 0)
      this.#ends = Array.from({ length: devices + idle }, () => WorkerProcess.start(rig, 'b', 'rdma'));
  }

  /** Connects new queue pairs for each measurement, because the adapter's first PSN is always 0. */
  async measure(work: Work): Promise<Sample> {
    const rig = this.#rig;
    const { devices = 1, idle: _, ...options } = this.options;
    const opened = this.#ends.map((end) => end.call<Introduction>('open', { ...options, interface: rig.b.interface }));
    try {
      const introductions = (await Promise.all(opened)).slice(0, devices);
      const each = work.qps / devices;
      await Promise.all(introductions.map((introduction, i) => this.#connect(i, introduction, i * each)));
      const served = introductions.map((_, i) => this.#end(i).call<Part>('serve', work));
      const to = introductions.flatMap((introduction) => targets(introduction, each));
      const adapter = rig.spawn('a', send(rig, work, 'write', ...to));
      try {
        return sampleOf(work, [flooded(work, await result<Flooded>(adapter)), ...(await Promise.all(served))]);
      } catch (error) {
        // the ends still serve: only the end of their processes ends that
        this.stop();
        throw error;
      } finally {
        adapter.kill();
      }
    } finally {
      await Promise.all(this.#ends.map((end) => end.call('close')));
    }
  }

  /** Connects all queue pairs of an end, though only the first ones are used. */
  async #connect(index: number, { endpoints, memory }: Introduction, first: number): Promise<void> {
    const gid = `::ffff:${this.#rig.a.address}`;
    const adapters = endpoints.map((_, i) => ({ qpNum: ADAPTER_QPN + first + i, psn: 0, gid }));
    await this.#end(index).call('connect', { endpoints: adapters, memory });
  }

  #end(index: number): WorkerProcess {
    return this.#ends[index] as WorkerProcess;
  }

  async end(): Promise<void> {}

  stop(): void {
    for (const end of this.#ends) end.kill();
    this.#ends = [];
  }
}

/** Returns the options that name the first queue pairs of an end to the sender. */
function targets({ endpoints, memory: { rkey, addr } }: Introduction, qps: number): string[] {
  const memory = ['--rkey', String(rkey), '--address', String(addr)];
  return endpoints.slice(0, qps).flatMap(({ qpNum }) => ['--qpn', String(qpNum), ...memory]);
}

/** Ways of a C program to receive the frames. */
export const SINKS = {
  packet: 'recvmmsg',
  udp: 'recvmmsg, UDP socket',
  ring: 'TPACKET_V3',
  uring: 'io_uring multishot',
  xdp: 'AF_XDP',
} as const;

/** A C program that counts the frames that an adapter would send, or several, each with a queue pair of its own. */
export class SinkOfAdapter extends Native {
  readonly kind = 'bare';

  constructor(
    readonly link: keyof typeof SINKS,
    readonly programs = 1,
    readonly waiting: Work['waiting'] = 'spin',
    readonly name = `C, ${SINKS[link]}`,
  ) {
    super();
  }

  takes({ waiting }: Work): boolean {
    return waiting === this.waiting;
  }

  protected commands(work: Work): readonly [string[], ...string[][]] {
    const shared = ['--shared', this.rig.sharedFile()];
    const qpns = Array.from({ length: work.qps }, (_, i) => ['--qpn', String(i)]);
    const sink = (...own: string[]) =>
      rawlink(this.rig, work, 'b', this.link, 'sink', ...sizeOf(work), ...shared, ...own);
    const sinks = this.programs === 1 ? [sink()] : qpns.map((own) => sink(...own));
    return [send(this.rig, work, 'flood', ...shared, ...qpns.flat()), ...sinks];
  }

  protected parts(work: Work, a: Flooded, ...sinks: readonly Flooded[]): readonly Part[] {
    return [flooded(work, a), ...sinks.map(({ cpu }) => ({ cpu }))];
  }
}
