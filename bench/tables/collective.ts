/** All-reduces of several processes of one machine, beside the same ring over TCP and gRPC. */
import { bytes, digits, ratio, type Sheet } from '../report/sheet.js';
import { startOneOf } from '../rig/local.js';
import { median } from '../rig/stats.js';
import type { WorkerProcess } from '../rig/worker.js';
import type { OurRankOptions, RankResult } from '../workers/collective.js';
import type { Context, Subject } from './subject.js';

export interface CollectiveRow {
  readonly contender: string;
  readonly ranks: number;
  readonly bytes: number;
  /** Time of a call in each round (ms), and CPU time of all ranks for it. */
  readonly ms: readonly number[];
  readonly cpuMs: readonly number[];
}

export interface CollectiveData {
  readonly rows: readonly CollectiveRow[];
}

const RANKS = [2, 4] as const;
const SIZES = [64, 65_536, 2 ** 20, 2 ** 24] as const;
/** V8 has compiled what a call needs after this time. */
const WARM_MS = 3000;
const FIRST_PORT = 7600;

interface Contender {
  readonly name: string;
  readonly worker: string;
  readonly options?: Pick<OurRankOptions, 'mode' | 'isRegistered'>;
}

const RINGS: readonly Contender[] = [
  { name: 'ring over Node net', worker: 'tcpring' },
  { name: 'ring over gRPC (grpc-js)', worker: 'grpcring' },
];

function contenders({ ours }: Context): Contender[] {
  const modes = [...new Set(ours().map(({ options }) => options.mode))];
  const own = modes.flatMap((mode) =>
    [false, true].map((isRegistered) => ({
      name: `communicator: udp, ${mode}${isRegistered ? ', registered arrays' : ''}`,
      worker: 'communicator',
      options: { mode, isRegistered } as Pick<OurRankOptions, 'mode' | 'isRegistered'>,
    })),
  );
  return [...own, ...RINGS];
}

/** The processes of one contender. */
class Ranks {
  static #nextPort = FIRST_PORT;
  readonly #workers: readonly WorkerProcess[];

  private constructor(workers: readonly WorkerProcess[]) {
    this.#workers = workers;
  }

  static async open({ worker, options }: Contender, size: number): Promise<Ranks> {
    const port = Ranks.#nextPort;
    Ranks.#nextPort += size;
    const ranks = new Ranks(Array.from({ length: size }, (_, rank) => startOneOf(rank, worker)));
    const given = { size, port, ...options };
    try {
      if (options === undefined) await ranks.#all('listen', given);
      await ranks.#all('open', given);
      return ranks;
    } catch (error) {
      ranks.kill();
      throw error;
    }
  }

  /** @returns time of a call, and CPU time of all ranks for it (ms) */
  async measure(size: number, warmMs: number, ms: number): Promise<{ ms: number; cpuMs: number }> {
    let each = await this.#run(size, 2);
    // calls become faster meanwhile
    for (const end = performance.now() + warmMs; performance.now() < end; )
      each = await this.#run(size, Math.ceil(warmMs / 10 / each.ms));
    return this.#run(size, Math.ceil(ms / each.ms));
  }

  kill(): void {
    for (const worker of this.#workers) worker.kill();
  }

  async #run(size: number, calls: number): Promise<{ ms: number; cpuMs: number }> {
    const results = await Promise.all(this.#workers.map((worker) => worker.call<RankResult>('run', size, calls)));
    const cpu = results.reduce((sum, result) => sum + result.cpu, 0);
    return { ms: (results[0] as RankResult).ms / calls, cpuMs: (cpu * 1000) / calls };
  }

  async #all(name: string, options: object): Promise<void> {
    await Promise.all(this.#workers.map((worker, rank) => worker.call(name, { rank, ...options })));
  }
}

export const collective: Subject<CollectiveData> = {
  name: 'collective',
  title: 'All-reduce: sums of Float32Array over processes of one machine, over loopback',

  async measure(context) {
    const { rounds, ms } = context.settings;
    const rows: (CollectiveRow & { ms: number[]; cpuMs: number[] })[] = [];
    for (const size of RANKS) {
      const all = contenders(context);
      for (const { name } of all)
        for (const length of SIZES) rows.push({ contender: name, ranks: size, bytes: length, ms: [], cpuMs: [] });
      for (let round = 0; round < Math.min(rounds, 3); round++)
        for (const contender of all) {
          context.progress(`round ${round + 1}: ${size} ranks, ${contender.name}`);
          const ranks = await Ranks.open(contender, size);
          try {
            for (const row of rows) {
              if (row.contender !== contender.name || row.ranks !== size) continue;
              const measured = await ranks.measure(row.bytes, WARM_MS, ms);
              row.ms.push(measured.ms);
              row.cpuMs.push(measured.cpuMs);
            }
          } finally {
            ranks.kill();
          }
        }
    }
    return { rows };
  },

  sheets({ rows }) {
    return RANKS.map((ranks): Sheet => {
      const own = rows.filter((row) => row.ranks === ranks);
      const names = [...new Set(own.map(({ contender }) => contender))];
      return {
        title: `${ranks} ranks: µs of a short call, and GB/s of bus bandwidth, beside the ring over Node net`,
        head: ['', `${bytes(SIZES[0])}, µs`, ...SIZES.slice(1).flatMap((size) => [bytes(size), '× net']), 'CPU ms/MiB'],
        rows: names.map((name) => line(name, own)),
        notes: [
          'Bus bandwidth: bytes of the array × 2 (ranks - 1) / ranks / time, which is what each link must carry. CPU: of all ranks, for 16 MiB.',
        ],
      };
    });
  },

  targets: RANKS.map((ranks) => ({
    target: `all-reduce of 16 MiB over ${ranks} ranks, registered arrays, relative to the ring over Node net`,
    least: 1.5,
    judge: ({ rows }) => {
      const own = rows.filter((row) => row.ranks === ranks && row.bytes === SIZES[3]);
      const ours = own.filter(({ contender }) => contender.includes('registered'));
      const best = Math.max(...ours.map((row) => bandwidth(row)));
      const beside = own.find(({ contender }) => contender === RINGS[0]?.name);
      return beside && { value: best / bandwidth(beside) };
    },
  })),
};

/** GB/s that each link must carry. */
function bandwidth({ bytes: size, ranks, ms }: CollectiveRow): number {
  return (size * 2 * (ranks - 1)) / ranks / median([...ms]) / 1e6;
}

function line(name: string, rows: readonly CollectiveRow[]): string[] {
  const of = (contender: string | undefined, size: number) =>
    rows.find((row) => row.contender === contender && row.bytes === size) as CollectiveRow;
  const short = of(name, SIZES[0]);
  const long = of(name, SIZES[3]);
  const cells = SIZES.slice(1).flatMap((size) => {
    const [own, net] = [bandwidth(of(name, size)), bandwidth(of(RINGS[0]?.name, size))];
    return [digits(own), ratio(own, net)];
  });
  const cpu = median([...long.cpuMs]) / (long.bytes / 2 ** 20);
  return [name, digits(median([...short.ms]) * 1000), ...cells, digits(cpu)];
}
