/** perftest: its words for a work, and its figures. */
import type { Program } from '../rig/program.js';
import type { Sample, Work } from '../work.js';

/** GID 0 is the link-local address, if there is one. */
export const GID_INDEX = '1';
export const PORT = 18515;
const PINGS = 400;
/** perftest accepts whole seconds only. */
const SECONDS = 2;

/** Whether perftest does a work: it cannot sleep in a run that is limited by time. */
export const runs = ({ kind, waiting }: Work): boolean =>
  kind === 'pingpong' || (kind === 'bulk' && waiting === 'spin');

/**
 * Returns program and options of both ends, without the device.
 * @param gid index of the GID @param pings number of round trips
 */
export function wordsOf(work: Work, gid = GID_INDEX, pings = PINGS): string[] {
  const isPing = work.kind === 'pingpong';
  return [
    `ib_${work.operation.toLowerCase()}_${isPing ? 'lat' : 'bw'}`,
    ...['-x', gid, '-s', String(work.size), '-F'],
    ...(isPing ? ['-n', String(pings)] : ['-D', String(SECONDS), '--report_gbits']),
    ...(work.waiting === 'sleep' ? ['-e'] : []),
  ];
}

/** Both ends of a run. */
interface Run {
  /** The machine, whose CPU time counts. */
  readonly rig: { cpuSeconds(): Promise<number> };
  readonly server: Program;
  /** Waits until the server listens. */
  readonly listening: () => Promise<void>;
  readonly client: () => Program;
}

/** Runs a client when its server listens, and ends the server. @throws Error when it prints no figures */
export async function measured(work: Work, { rig, server, listening, client }: Run): Promise<Sample> {
  try {
    await listening();
    const before = await rig.cpuSeconds();
    const program = client();
    const lines: string[] = [];
    for await (const line of program.lines()) lines.push(line);
    await program.exited;
    const cpu = (await rig.cpuSeconds()) - before;
    return work.kind === 'pingpong' ? pinged(work, figures(lines), cpu) : streamed(work, figures(lines), cpu);
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
