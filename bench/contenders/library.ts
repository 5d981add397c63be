/** A C program on the library for C programs: perftest by `wasm-roce run`. */
import type { EndName, Program, Rig } from '../rig/program.js';
import type { Sample, Work } from '../work.js';
import type { Contender } from './contender.js';
import { measured, PORT, runs, wordsOf } from './perftest.js';

/** The interfaces have no link-local address. */
const GID_INDEX = '0';
const PINGS = 20_000;

/** Starts a C program on the library at one end. */
export function runLibrary(rig: Rig, end: EndName, words: readonly string[]): Program {
  // in the guest, Node's own path is that of its loader
  const broker = `WASM_ROCE_BROKER_COMMAND=${rig.node} ${rig.command} broker --idle 5`;
  return rig.spawn(end, [
    'env',
    broker,
    rig.node,
    rig.command,
    'run',
    '--interface',
    rig[end].interface,
    '--',
    ...words,
  ]);
}

/** See the head of this file. */
export class Library implements Contender {
  readonly name = 'C program by run (perftest)';
  readonly kind = 'beside';
  readonly takes = runs;
  #rig!: Rig;

  async begin(rig: Rig): Promise<void> {
    this.#rig = rig;
  }

  async measure(work: Work): Promise<Sample> {
    const rig = this.#rig;
    const words = wordsOf(work, GID_INDEX, PINGS);
    const client = () => runLibrary(rig, 'a', [...words, rig.b.address]);
    const server = runLibrary(rig, 'b', words);
    return measured(work, { rig, server, listening: () => rig.listening('b', PORT), client });
  }

  async end(): Promise<void> {}
  stop(): void {}
}
