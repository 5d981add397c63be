/** Linux soft-RoCE (rxe), measured by perftest in the virtual machine, the only place where it is available. */

import { type GuestRig, RXE, RXE_TO_B } from '../rig/guest.js';
import { GUEST_FOLDER } from '../rig/guestimage.js';
import type { Program, Rig } from '../rig/program.js';
import type { Sample, Work } from '../work.js';
import type { Contender } from './contender.js';

/** GID 0 is the link-local address, GID 1 the IPv4 address. */
const GID_INDEX = '1';
const PINGS = 400;
/** perftest accepts whole seconds only. */
const SECONDS = 2;
/** Under emulation our program takes longer to reach its full speed. perftest leaves out the first quarter. */
const SECONDS_OF_OURS = 8;
const PORT = 18515;

export class Rxe implements Contender {
  readonly name = 'rxe';
  readonly kind = 'beside';

  constructor(readonly rig: GuestRig) {}

  /** perftest cannot sleep in a run that is limited by time. */
  takes({ kind, waiting }: Work): boolean {
    return kind === 'pingpong' || (kind === 'bulk' && waiting === 'spin');
  }

  async begin(_: Rig): Promise<void> {}

  async measure(work: Work): Promise<Sample> {
    const isPing = work.kind === 'pingpong';
    const program = `ib_${work.operation.toLowerCase()}_${isPing ? 'lat' : 'bw'}`;
    const options = [
      ...['-x', GID_INDEX, '-s', String(work.size), '-F'],
      ...(isPing ? ['-n', String(PINGS)] : ['-D', String(SECONDS), '--report_gbits']),
      ...(work.waiting === 'sleep' ? ['-e'] : []),
    ];
    const server = this.rig.spawnRxe('b', [program, '-d', RXE.b.device, ...options]);
    const client = [program, '-d', RXE.a.device, ...options, RXE.b.address];
    const { numbers, cpu } = await ran(this.rig, server, () => this.rig.guest.listening(PORT), client);
    return isPing ? pinged(work, numbers, cpu) : streamed(work, numbers, cpu);
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
    const command = `${GUEST_FOLDER}/dist/cli/main.js`;
    const own = ['--link', this.link, '-d', RXE_TO_B.far];
    const server = this.rig.spawn('b', [this.rig.node, command, 'write-bw', ...own, ...options]);
    const client = ['ib_write_bw', '-x', GID_INDEX, '-d', RXE_TO_B.device, ...options, RXE_TO_B.address];
    const { numbers, cpu } = await ran(this.rig, server, () => this.rig.listening('b', PORT), client);
    return streamed(work, numbers, cpu);
  }

  async end(): Promise<void> {}
  stop(): void {}
}

/**
 * Runs a client of perftest at end a when its server listens, and ends the server.
 * @returns the client's figures, and the CPU time of the whole machine meanwhile
 */
async function ran(
  rig: GuestRig,
  server: Program,
  listening: () => Promise<void>,
  client: readonly string[],
): Promise<{ numbers: number[]; cpu: number }> {
  try {
    await listening();
    const before = await rig.cpuSeconds();
    const program = rig.spawnRxe('a', client);
    const lines: string[] = [];
    for await (const line of program.lines()) lines.push(line);
    await program.exited;
    return { numbers: figures(lines), cpu: (await rig.cpuSeconds()) - before };
  } finally {
    server.kill();
    await server.exited.catch(() => {});
  }
}

/** Returns the numbers of the line below `#bytes`. */
function figures(lines: readonly string[]): number[] {
  const head = lines.findIndex((line) => line.includes('#bytes'));
  const numbers = (lines[head + 1] ?? '').trim().split(/\s+/).map(Number);
  if (head < 0 || numbers.length < 4 || numbers.some(Number.isNaN))
    throw new Error(`perftest printed ${lines.slice(-3).join(' / ')}`);
  return numbers;
}

function streamed({ size }: Work, [, iterations = 0, , average = 0]: readonly number[], cpu: number): Sample {
  if (iterations === 0 || average === 0) throw new Error('nothing got through');
  return {
    gbps: average,
    messagesPerSecond: (average * 1e9) / 8 / size,
    cpuPerByte: (cpu * 1e9) / (iterations * size),
    cpuPerMessage: (cpu * 1e9) / iterations,
  };
}

/** perftest reports half a round trip, except for READ. */
function pinged({ operation, size }: Work, numbers: readonly number[], cpu: number): Sample {
  const [, count = 0, min = 0, max = 0, median = 0, , , p99 = 0, p999 = 0] = numbers;
  const times = operation === 'READ' ? 1 : 2;
  const rate = 1e6 / (median * times);
  return {
    messagesPerSecond: rate,
    gbps: (rate * size * 8) / 1e9,
    latency: {
      count,
      min: min * times,
      median: median * times,
      p90: Number.NaN,
      p99: p99 * times,
      p999: p999 * times,
      max: max * times,
    },
    cpuPerMessage: (cpu * 1e9) / count,
    cpuPerByte: (cpu * 1e9) / (count * size),
  };
}
