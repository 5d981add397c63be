/** Programs in C: a plain TCP ping-pong, and links without any protocol, which are the upper limit of ours. */
import { type EndName, lineLike, type Program, type Rig } from '../rig/program.js';
import { type Latency, type Part, type Sample, sampleOf, type Work } from '../work.js';
import type { Contender } from './contender.js';

/** Bytes of BTH and ICRC, which an RDMA packet has in addition to its payload. */
const RDMA_BYTES = 16;
/** The most bytes and the most frames of one super-packet, where the link has segmentation offload. */
const BURST_BYTES = 64_000;
const BURST_FRAMES = 64;
const PORT = 4791;

export interface Flooded {
  readonly frames: number;
  readonly seconds: number;
  readonly all: number;
  readonly cpu: number;
}

/** Returns the result that a program prints as JSON when it ends. */
export async function result<T>(program: Program): Promise<T> {
  const line = await lineLike(program, /^\{/, 30_000);
  await program.exited;
  return JSON.parse(line) as T;
}

export abstract class Native implements Contender {
  abstract readonly name: string;
  abstract readonly kind: 'beside' | 'bare';
  protected rig!: Rig;

  abstract takes(work: Work): boolean;
  /** The commands of both ends. The programs of end b are passive and start first. */
  protected abstract commands(work: Work): readonly [a: string[], ...b: string[][]];
  protected abstract parts(work: Work, a: unknown, ...b: readonly unknown[]): readonly Part[];

  async begin(rig: Rig): Promise<void> {
    this.rig = rig;
  }

  async measure(work: Work): Promise<Sample> {
    const [commandA, ...commandsB] = this.commands(work);
    const b = commandsB.map((command) => this.rig.spawn('b', command));
    try {
      await Promise.all(b.map((program) => lineLike(program, /^ready$/)));
      const a = this.rig.spawn('a', commandA);
      try {
        return sampleOf(work, this.parts(work, await result(a), ...(await Promise.all(b.map(result)))));
      } finally {
        a.kill();
      }
    } finally {
      for (const program of b) program.kill();
    }
  }

  async end(): Promise<void> {}
  stop(): void {}
}

export class PlainTcp extends Native {
  readonly name: string;
  readonly kind = 'beside';
  readonly #zerocopy: boolean;

  /** @param zerocopy whether the kernel sends from the program's memory (MSG_ZEROCOPY), for bulk only */
  constructor(zerocopy = false) {
    super();
    this.name = zerocopy ? 'C, TCP socket, MSG_ZEROCOPY' : 'C, TCP socket';
    this.#zerocopy = zerocopy;
  }

  takes({ kind, operation, waiting }: Work): boolean {
    if (operation !== 'SEND') return false;
    return kind === 'pingpong' ? !this.#zerocopy : kind === 'bulk' && waiting === 'sleep';
  }

  protected commands({ kind, size, warmMs, ms, warmBytes = 0, waiting }: Work): readonly [string[], string[]] {
    const program = `${this.rig.programs}/tcp`;
    const same = [
      ...['--port', '7999', '--bytes', String(size), '--warm', String(warmMs), '--ms', String(ms)],
      ...['--warm-frames', String(Math.ceil(warmBytes / size))],
      ...(waiting === 'spin' ? ['--spin'] : []),
      ...(this.#zerocopy ? ['--zerocopy'] : []),
    ];
    const { address } = this.rig.b;
    const [active, passive] = kind === 'pingpong' ? ['ping', 'serve'] : ['flood', 'sink'];
    return [
      [program, active, '--peer', address, ...same],
      [program, passive, '--local', address, ...same],
    ];
  }

  protected parts({ kind }: Work, a: Latency & { cpu: number }, b: Flooded): readonly Part[] {
    if (kind === 'pingpong') return pinged(a, b);
    return [{ cpu: a.cpu }, { window: { messages: b.frames, seconds: b.seconds }, messages: b.all, cpu: b.cpu }];
  }
}

export class Bare extends Native {
  readonly kind = 'bare';
  readonly name: string;

  /** @param hasGso whether frames leave in GSO bursts, for links that can send them one by one as well */
  constructor(
    readonly link: string,
    readonly hasGso: boolean,
  ) {
    super();
    this.name = `C, bare ${link}${hasGso ? ', GSO' : ''}`;
  }

  takes({ kind, operation, waiting, qps }: Work): boolean {
    if (operation !== 'SEND' || qps !== 1) return false;
    if (kind === 'pingpong') return !this.hasGso;
    return waiting === 'spin' && (kind === 'rate' || this.hasGso || this.link === 'xdp');
  }

  protected commands(work: Work): readonly [string[], string[]] {
    const bytes = payloadOf(work) + RDMA_BYTES;
    const segments = this.hasGso ? Math.min(BURST_FRAMES, Math.floor(BURST_BYTES / bytes)) : 1;
    const same = ['--bytes', String(bytes), '--segments', String(segments), '--shared', this.rig.sharedFile()];
    const [roleA, roleB] = work.kind === 'pingpong' ? ['ping', 'echo'] : ['flood', 'sink'];
    return [
      rawlink(this.rig, work, 'a', this.link, roleA, ...same),
      rawlink(this.rig, work, 'b', this.link, roleB, ...same),
    ];
  }

  protected parts(work: Work, a: Flooded & Latency, b: Flooded): readonly Part[] {
    if (work.kind === 'pingpong') return pinged(a, b);
    return [flooded(work, a), { cpu: b.cpu }];
  }
}

/** Returns the command of the program `rawlink` at one end. */
export function rawlink(rig: Rig, work: Work, end: EndName, link: string, role: string, ...more: string[]): string[] {
  const [from, to] = end === 'a' ? [rig.a, rig.b] : [rig.b, rig.a];
  return [
    ...[`${rig.programs}/rawlink`, link, role, '--interface', from.interface, '--port', String(PORT)],
    ...['--local', from.address, '--peer', to.address, '--source-mac', from.mac, '--dest-mac', to.mac],
    ...['--warm', String(work.warmMs), '--ms', String(work.ms)],
    ...['--warm-frames', String(Math.ceil((work.warmBytes ?? 0) / payloadOf(work)))],
    ...(work.waiting === 'spin' ? ['--spin'] : []),
    ...more,
  ];
}

/** Returns the frames of a window as messages. */
export function flooded(work: Work, { frames, seconds, all, cpu }: Flooded): Part {
  const perMessage = work.size / payloadOf(work);
  return { window: { messages: frames / perMessage, seconds, frames }, messages: all / perMessage, cpu };
}

/** Returns the bytes of RDMA payload that one frame carries, or would carry. */
export function payloadOf({ size, mtu }: Work): number {
  return Math.min(size, mtu >= 4200 ? 4096 : 1024);
}

function pinged(a: Latency & { cpu: number }, b: { cpu: number }): readonly Part[] {
  return [{ latency: a, messages: a.count, cpu: a.cpu }, { cpu: b.cpu }];
}
