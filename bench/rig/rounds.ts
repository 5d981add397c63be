/** Several rounds over all contenders, so that a slow phase of the machine affects all of them. */
import type { Contender } from '../contenders/contender.js';
import type { Sample, Work } from '../work.js';
import type { NoiseMeter } from './noise.js';
import type { Rig } from './program.js';

/** The results of one contender for one work. */
export interface Row {
  readonly contender: string;
  readonly kind: Contender['kind'];
  readonly link?: string;
  readonly work: Work;
  readonly samples: Sample[];
  /** The reason why there are no samples. */
  skipped?: string;
}

export interface RoundsOptions {
  readonly rounds: number;
  /** Called with a description of the current step. */
  readonly onProgress: (what: string) => void;
  readonly noise: NoiseMeter;
}

/** Returns the rows of all contenders, for the works that each takes, in the order of the contenders. */
export async function measureRounds(
  rig: Rig,
  contenders: readonly Contender[],
  works: readonly Work[],
  { rounds, onProgress, noise }: RoundsOptions,
): Promise<Row[]> {
  const rows = new Map(
    contenders.map((contender) => [
      contender,
      works.filter((work) => contender.takes(work)).map((work) => rowOf(contender, work)),
    ]),
  );
  const mtus = [...new Set(works.map(({ mtu }) => mtu))];
  try {
    for (let round = 0; round < rounds; round++) {
      for (const mtu of mtus) {
        await rig.setMtu(mtu);
        for (const contender of turned(contenders, round)) {
          const due = (rows.get(contender) ?? []).filter(
            ({ work, skipped }) => work.mtu === mtu && skipped === undefined,
          );
          if (due.length === 0) continue;
          onProgress(`round ${round + 1} of ${rounds}, MTU ${mtu}: ${contender.name}`);
          const before = due.map(({ samples }) => samples.length);
          await noise.watch(
            () => measureOne(rig, contender, due),
            () => {
              for (const [i, { samples }] of due.entries()) samples.length = before[i] as number;
            },
          );
        }
      }
    }
  } finally {
    for (const contender of contenders) contender.stop();
  }
  return [...rows.values()].flat();
}

function rowOf({ name, kind, link }: Contender, work: Work): Row {
  return { contender: name, kind, ...(link !== undefined && { link }), work, samples: [] };
}

/** Rotates the list, so that each round begins with another contender. */
function turned<T>(all: readonly T[], by: number): T[] {
  const at = by % Math.max(1, all.length);
  return [...all.slice(at), ...all.slice(0, at)];
}

/** A row that fails is not measured again; its samples of earlier rounds remain. */
async function measureOne(rig: Rig, contender: Contender, rows: readonly Row[]): Promise<void> {
  let hasBegun = false;
  for (const row of rows) {
    try {
      if (!hasBegun) await contender.begin(rig);
      hasBegun = true;
    } catch (error) {
      row.skipped = messageOf(error);
      continue;
    }
    try {
      row.samples.push(await contender.measure(row.work));
    } catch (error) {
      row.skipped = `failed: ${messageOf(error)}`;
      contender.stop();
      hasBegun = false;
    }
  }
  if (hasBegun) await contender.end();
}

function messageOf(error: unknown): string {
  return (error as Error).message.split('\n')[0] as string;
}
