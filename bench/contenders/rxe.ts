/** Linux soft-RoCE (rxe), measured by perftest in the virtual machine, the only place where it is available. */

import { type GuestRig, RXE, RXE_TO_B } from '../rig/guest.js';
import type { Rig } from '../rig/program.js';
import type { Sample, Work } from '../work.js';
import type { Contender } from './contender.js';
import { GID_INDEX, measured, PORT, runs, wordsOf } from './perftest.js';

/** Under emulation our program takes longer to reach its full speed. perftest leaves out the first quarter. */
const SECONDS_OF_OURS = 8;

export class Rxe implements Contender {
  readonly name = 'rxe';
  readonly kind = 'beside';

  constructor(readonly rig: GuestRig) {}

  takes = runs;

  async begin(_: Rig): Promise<void> {}

  async measure(work: Work): Promise<Sample> {
    const [program = '', ...options] = wordsOf(work);
    const server = this.rig.spawnRxe('b', [program, '-d', RXE.b.device, ...options]);
    const client = () => this.rig.spawnRxe('a', [program, '-d', RXE.a.device, ...options, RXE.b.address]);
    return measured(work, { rig: this.rig, server, listening: () => this.rig.guest.listening(PORT), client });
  }

  async end(): Promise<void> {}
  stop(): void {}
}

/** The names of what `RxeToOurs` measures begin so. */
export const RXE_TO_OURS = 'rxe to ours';

/** rxe sends WRITEs to a link of ours: perftest to `wasm-roce write-bw`. */
export class RxeToOurs implements Contender {
  readonly kind = 'beside';
  readonly name: string;

  constructor(
    readonly rig: GuestRig,
    readonly link: string,
  ) {
    this.name = `${RXE_TO_OURS}: ${link}, inline`;
  }

  takes({ kind, operation, waiting }: Work): boolean {
    return kind === 'bulk' && operation === 'WRITE' && waiting === 'spin';
  }

  async begin(_: Rig): Promise<void> {}

  async measure(work: Work): Promise<Sample> {
    const options = ['-s', String(work.size), '-F', '-D', String(SECONDS_OF_OURS), '--report_gbits'];
    const own = ['--link', this.link, '-d', RXE_TO_B.far];
    const server = this.rig.spawn('b', [this.rig.node, this.rig.command, 'write-bw', ...own, ...options]);
    const words = ['ib_write_bw', '-x', GID_INDEX, '-d', RXE_TO_B.device, ...options, RXE_TO_B.address];
    const client = () => this.rig.spawnRxe('a', words);
    return measured(work, { rig: this.rig, server, listening: () => this.rig.listening('b', PORT), client });
  }

  async end(): Promise<void> {}
  stop(): void {}
}
