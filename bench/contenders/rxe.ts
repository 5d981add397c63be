/** Linux soft-RoCE (rxe), measured by perftest in the virtual machine, the only place where it is available. */
import { type GuestRig, RXE } from '../rig/guest.js';
import type { Rig } from '../rig/program.js';
import type { Sample, Work } from '../work.js';
import type { Contender } from './contender.js';

/** GID 0 is the link-local address, GID 1 the IPv4 address. */
const GID_INDEX = '1';
const PINGS = 400;
/** perftest accepts whole seconds only. */
const SECONDS = 2;
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
    const duration = isPing ? ['-n', String(PINGS)] : ['-D', String(SECONDS), '--report_gbits'];
    const options = [
      '-x',
      GID_INDEX,
      '-s',
      String(work.size),
      '-F',
      ...duration,
      ...(work.waiting === 'sleep' ? ['-e'] : []),
    ];
    const server = this.rig.spawnRxe('b', [program, '-d', RXE.b.device, ...options]);
    try {
      await this.rig.guest.listening(PORT);
      const before = await this.rig.cpuSeconds();
      const client = this.rig.spawnRxe('a', [program, '-d', RXE.a.device, ...options, RXE.b.address]);
      const lines: string[] = [];
      for await (const line of client.lines()) lines.push(line);
      await client.exited;
      const cpu = (await this.rig.cpuSeconds()) - before;
      return isPing ? pinged(work, figures(lines), cpu) : streamed(work, figures(lines), cpu);
    } finally {
      server.kill();
      await server.exited.catch(() => {});
    }
  }

  async end(): Promise<void> {}
  stop(): void {}
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
