/** RDMA by this project: one link in one mode. */
import { PartyProcess } from '../rig/party.js';
import type { Rig } from '../rig/program.js';
import { type Part, type Sample, sampleOf, type Work } from '../work.js';
import type { Contender } from './contender.js';

/** All that are tried; what a build or a machine does not offer is a row that says why. */
export const LINKS = ['packet', 'udp', 'xdp'] as const;
export const MODES = ['inline', 'worker'] as const;

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

  takes(): boolean {
    return true;
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
    const patience = work.warmMs + work.ms + 15_000;
    const served = b.callWithin<Part>(patience, 'serve', work);
    const done = a.callWithin<Part>(patience, 'run', work);
    return sampleOf(work, await Promise.all([done, served]));
  }

  async end(): Promise<void> {
    await Promise.all(this.#ends.map((end) => end.call('close')));
  }

  stop(): void {
    for (const end of this.#ends) end.kill();
    this.#ends = [];
  }
}
