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
const ADAPTER_QPN = 0x45;

const sizeOf = (work: Work) => ['--bytes', String(payloadOf(work) + LARGEST_HEADERS)];

/** Returns the command of the sender. */
function send(rig: Rig, work: Work, role: 'write' | 'flood', ...more: string[]): string[] {
  return rawlink(rig, work, 'a', 'xdp', role, ...sizeOf(work), '--message', String(work.size), ...more);
}

/** A link of ours that receives. */
export class FromAdapter implements Contender {
  readonly kind = 'ours';
  readonly name: string;
  readonly link: string;
  #end: WorkerProcess | undefined;
  #rig!: Rig;

  constructor(readonly options: OursOptions) {
    this.name = `${options.link}, ${options.mode}`;
    this.link = options.link;
  }

  takes({ waiting }: Work): boolean {
    return waiting === (canPoll(this.options) ? 'spin' : 'sleep');
  }

  async begin(rig: Rig): Promise<void> {
    this.#rig = rig;
    this.#end ??= WorkerProcess.start(rig, 'b', 'rdma');
  }

  /** Connects a new queue pair for each measurement, because the adapter's first PSN is always 0. */
  async measure(work: Work): Promise<Sample> {
    const [rig, end] = [this.#rig, this.#end as WorkerProcess];
    const { endpoints, memory } = await end.call<Introduction>('open', { ...this.options, interface: rig.b.interface });
    try {
      const gid = `::ffff:${rig.a.address}`;
      // the end connects all its queue pairs; the first one is used
      const adapters = endpoints.map((_, i) => ({ qpn: ADAPTER_QPN + i, psn: 0, gid }));
      await end.call('connect', { endpoints: adapters, memory });
      const served = end.call<Part>('serve', work);
      const to = ['--qpn', String(endpoints[0]?.qpn), '--rkey', String(memory.rkey), '--address', String(memory.addr)];
      const adapter = rig.spawn('a', send(rig, work, 'write', ...to));
      try {
        return sampleOf(work, [flooded(work, await result<Flooded>(adapter)), await served]);
      } catch (error) {
        // the end still serves: only its process ends that
        this.stop();
        throw error;
      } finally {
        adapter.kill();
      }
    } finally {
      await this.#end?.call('close');
    }
  }

  async end(): Promise<void> {}

  stop(): void {
    this.#end?.kill();
    this.#end = undefined;
  }
}

/** Ways of a C program to receive the frames. */
export const SINKS = {
  packet: 'recvmmsg',
  udp: 'recvmmsg, UDP socket',
  ring: 'TPACKET_V3',
  uring: 'io_uring multishot',
  xdp: 'AF_XDP',
} as const;

/** A C program that counts the frames that an adapter would send. */
export class SinkOfAdapter extends Native {
  readonly kind = 'bare';
  readonly name: string;

  constructor(readonly link: keyof typeof SINKS) {
    super();
    this.name = `C, ${SINKS[link]}`;
  }

  takes({ waiting }: Work): boolean {
    return waiting === 'spin';
  }

  protected commands(work: Work): readonly [string[], string[]] {
    const shared = ['--shared', this.rig.sharedFile()];
    return [
      send(this.rig, work, 'flood', ...shared),
      rawlink(this.rig, work, 'b', this.link, 'sink', ...sizeOf(work), ...shared),
    ];
  }

  protected parts(work: Work, a: Flooded, b: Flooded): readonly Part[] {
    return [flooded(work, a), { cpu: b.cpu }];
  }
}
