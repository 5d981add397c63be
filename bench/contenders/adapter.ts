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
import { type Flooded, Native, PORT, payloadOf, result } from './native.js';
import { canPoll, type OursOptions } from './ours.js';

/** Bytes of BTH, RETH and ICRC: what the largest packet has besides its payload. */
const LARGEST_HEADERS = 12 + 16 + 4;
const ADAPTER_QPN = 0x45;
/** Queue pairs that an end of ours connects; the first one is used. */
const QPS = 8;

/** Returns the command of one end. The sender is `a`. */
function rawlink(rig: Rig, work: Work, [link, role, end]: [string, string, 'a' | 'b'], ...more: string[]): string[] {
  const [from, to] = end === 'a' ? [rig.a, rig.b] : [rig.b, rig.a];
  return [
    ...[`${rig.programs}/rawlink`, link, role, '--interface', from.interface, '--port', String(PORT), '--spin'],
    ...['--local', from.address, '--peer', to.address, '--source-mac', from.mac, '--dest-mac', to.mac],
    ...['--bytes', String(payloadOf(work) + LARGEST_HEADERS), '--warm', String(work.warmMs), '--ms', String(work.ms)],
    ...['--warm-frames', String(Math.ceil((work.warmBytes ?? 0) / payloadOf(work))), ...more],
  ];
}

/** Returns the packets of the window as messages. */
function received(work: Work, { frames, seconds, all, cpu }: Flooded): Part {
  const perMessage = work.size / payloadOf(work);
  return { window: { messages: frames / perMessage, seconds, frames }, messages: all / perMessage, cpu };
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
      const adapters = Array.from({ length: QPS }, (_, i) => ({ qpn: ADAPTER_QPN + i, psn: 0, gid }));
      await end.call('connect', { endpoints: adapters, memory });
      const served = end.call<Part>('serve', work);
      const to = ['--qpn', String(endpoints[0]?.qpn), '--rkey', String(memory.rkey), '--address', String(memory.addr)];
      const command = rawlink(rig, work, ['xdp', 'write', 'a'], '--message', String(work.size), ...to);
      const adapter = rig.spawn('a', command);
      try {
        return sampleOf(work, [received(work, await result<Flooded>(adapter)), await served]);
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
      rawlink(this.rig, work, ['xdp', 'flood', 'a'], '--message', String(work.size), ...shared),
      rawlink(this.rig, work, [this.link, 'sink', 'b'], ...shared),
    ];
  }

  protected parts(work: Work, a: Flooded, b: Flooded): readonly Part[] {
    return [received(work, a), { cpu: b.cpu }];
  }
}
