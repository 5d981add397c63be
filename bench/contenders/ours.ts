/** RDMA by this project, with one link in one mode. */
import { cpusOf } from '../rig/cpus.js';
import type { EndName, Rig } from '../rig/program.js';
import { WorkerProcess } from '../rig/worker.js';
import { type Part, type Sample, sampleOf, type Work } from '../work.js';
import type { Contender } from './contender.js';

/** All links that are measured. A link that the build or the machine does not offer becomes a row with the reason. */
export const LINKS = ['packet', 'udp', 'xdp'] as const;
export const MODES = ['inline', 'worker'] as const;

/** Whether each end has two CPUs. */
const HAS_TWO_CPUS = cpusOf().a.includes(',');

export interface OursOptions {
  readonly link: string;
  readonly mode: string;
  /** Fraction of the frames that each end loses, 0 to 1. */
  readonly drop?: number;
  /** Whether the link computes its part of the ICRC. Default true. */
  readonly icrcOffload?: boolean;
  /** The folder of the compiled programs of another build of this project. Default: those of this one. */
  readonly programs?: string;
}

/** Returns the name of our link in a mode, and that it is of the build before. */
export function nameOf({ link, mode, programs }: OursOptions): string {
  return `${link}, ${mode}${programs === undefined ? '' : ', before'}`;
}

export function kindOf({ programs }: OursOptions): Contender['kind'] {
  return programs === undefined ? 'ours' : 'before';
}

/**
 * Whether the program of an end can poll. In worker mode it does only if each end has two CPUs: on a shared CPU a
 * spinning thread delays the other one.
 */
export function canPoll({ mode }: Pick<OursOptions, 'mode'>): boolean {
  return mode === 'inline' || HAS_TWO_CPUS;
}

/** End of the name of a contender whose cards compute the whole ICRC. */
export const ICRC_BY_CARD = ', ICRC by the card';

export class Ours implements Contender {
  readonly kind: Contender['kind'];
  readonly name: string;
  readonly link: string;
  #ends: readonly WorkerProcess[] = [];

  constructor(readonly options: OursOptions) {
    const { link, icrcOffload = true } = options;
    this.kind = kindOf(options);
    this.name = `${nameOf(options)}${icrcOffload ? '' : ICRC_BY_CARD}`;
    this.link = link;
  }

  /** In inline mode sleeping is measured only where another contender sleeps as well. */
  takes({ kind, operation, waiting, qps }: Work): boolean {
    if (this.options.mode === 'worker') return waiting === 'sleep' || canPoll(this.options);
    return waiting === 'spin' || kind === 'pingpong' || (operation === 'SEND' && qps === 1);
  }

  async begin(rig: Rig): Promise<void> {
    const start = (end: EndName) => WorkerProcess.start(rig, end, 'rdma', this.options.programs);
    if (this.#ends.length === 0) this.#ends = [start('a'), start('b')];
    const [a, b] = this.#ends as [WorkerProcess, WorkerProcess];
    try {
      const open = (end: WorkerProcess, name: string) => end.call('open', { ...this.options, interface: name });
      const [introductionA, introductionB] = await Promise.all([open(a, rig.a.interface), open(b, rig.b.interface)]);
      await Promise.all([a.call('connect', introductionB), b.call('connect', introductionA)]);
    } catch (error) {
      this.stop();
      throw error;
    }
  }

  async measure(work: Work): Promise<Sample> {
    const [a, b] = this.#ends as [WorkerProcess, WorkerProcess];
    return sampleOf(work, await Promise.all([a.call<Part>('run', work), b.call<Part>('serve', work)]));
  }

  async end(): Promise<void> {
    await Promise.all(this.#ends.map((end) => end.call('close')));
  }

  stop(): void {
    for (const end of this.#ends) end.kill();
    this.#ends = [];
  }
}
