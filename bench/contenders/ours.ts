/** RDMA by this project: one link in one mode. */
import { cpusOf } from '../rig/cpus.js';
import { PartyProcess } from '../rig/party.js';
import type { Rig } from '../rig/program.js';
import { type Part, type Sample, sampleOf, type Work } from '../work.js';
import type { Contender } from './contender.js';

/** All that are tried; what a build or a machine does not offer is a row that says why. */
export const LINKS = ['packet', 'udp', 'xdp'] as const;
export const MODES = ['inline', 'worker'] as const;

/** Each end. */
const HAS_TWO_CPUS = cpusOf().a.includes(',');

export interface OursOptions {
  readonly link: string;
  readonly mode: string;
  /** Frames lost on the way, 0 to 1, at either end. */
  readonly drop?: number;
}

export class Ours implements Contender {
  readonly kind = 'ours';
  readonly name: string;
  readonly link: string;
  #ends: readonly PartyProcess[] = [];

  constructor(readonly options: OursOptions) {
    const { link, mode } = options;
    this.name = `${link}, ${mode}`;
    this.link = link;
  }

  /**
   * A worker's program sleeps: where both its threads share a CPU, one that spins keeps the other from its work. Inline,
   * sleeping is measured where there is something asleep beside it.
   */
  takes({ kind, operation, waiting, qps }: Work): boolean {
    if (this.options.mode === 'worker') return waiting === 'sleep' || HAS_TWO_CPUS;
    return waiting === 'spin' || kind === 'pingpong' || (operation === 'SEND' && qps === 1);
  }

  async begin(rig: Rig): Promise<void> {
    if (this.#ends.length === 0)
      this.#ends = [PartyProcess.start(rig, 'a', 'rdma'), PartyProcess.start(rig, 'b', 'rdma')];
    const [a, b] = this.#ends as [PartyProcess, PartyProcess];
    try {
      const open = (end: PartyProcess, name: string) => end.call('open', { ...this.options, interface: name });
      const [introductionA, introductionB] = await Promise.all([open(a, rig.a.interface), open(b, rig.b.interface)]);
      await Promise.all([a.call('connect', introductionB), b.call('connect', introductionA)]);
    } catch (error) {
      this.stop();
      throw error;
    }
  }

  async measure(work: Work): Promise<Sample> {
    const [a, b] = this.#ends as [PartyProcess, PartyProcess];
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
