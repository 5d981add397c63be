/** Runs a row: honest traffic alone, then under the flood, then until the service is back. */
import type { WorkerProcess } from '../rig/worker.js';
import type { HonestFigures } from './honest.js';
import { FIGURES, type FigureName, type Row } from './rows.js';
import { type Family, hostsOf, NOWHERE, type Site } from './site.js';
import type { FlowInfo, TargetFigures } from './target.js';

/** The target's configuration. */
export interface Setting {
  readonly link: string;
  readonly mode: string;
  readonly family: Family;
}

/** The result of a row. */
export interface Outcome extends Setting {
  readonly row: Row;
  readonly figures: Readonly<Record<FigureName, number>>;
  /** Further measurements, without a bound. */
  readonly detail: {
    readonly sentPerSecond: number;
    readonly lagP99: number;
    /** Most delay of a timer, with the time in which others had the processor. */
    readonly lateMax: number;
    readonly lagMaxBefore: number;
    readonly flowBefore: number;
    readonly flowDuring: number;
    /** Resident memory of the target in MiB: before the attack, and after it when all connections were closed. */
    readonly memoryBefore: number;
    readonly memoryAfter: number;
    /** Accepted connections that were open at the end of the attack, and that could not be closed. */
    readonly connectionsDuring: number;
    readonly connectionsAfter: number;
    readonly connects: number;
    readonly failures: readonly string[];
    readonly isFlowOpen: boolean;
    /** Share of the time in which an end of the flow could have run, but others had its processor. */
    readonly preempted: number;
    readonly counters: Readonly<Record<string, number>>;
  };
  readonly verdicts: readonly { readonly figure: FigureName; readonly bound: string; readonly holds: boolean }[];
}

const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
const MIB = 2 ** 20;
/** The flow rests while one of its two ends waits for a processor. How far their waits overlap is unknown. */
const waited = (target: TargetFigures, honest: HonestFigures) => Math.max(target.preempted, honest.preempted);

/** Duration of the two phases, in ms. */
export interface Phase {
  readonly ms: number;
  /** Time that the attack may last longer, until a client was served and the flow has moved. Default: 0. */
  readonly patience?: number;
}

export async function runRow(site: Site, setting: Setting, row: Row, phase: Phase): Promise<Outcome> {
  const attacker = site.start('attacker', false, row.isLocal ? 'target' : 'attacker');
  const ends = [site.start('target', setting.mode === 'worker'), site.start('honest'), attacker] as const;
  try {
    return await measure(ends, setting, row, phase);
  } finally {
    for (const end of ends) end.kill();
  }
}

async function measure(
  [target, honest, attacker]: readonly [WorkerProcess, WorkerProcess, WorkerProcess],
  setting: Setting,
  row: Row,
  { ms, patience = 0 }: Phase,
): Promise<Outcome> {
  const hosts = hostsOf(setting.family);
  await Promise.all([
    target.call('open', { ...setting, interface: hosts.target.interface }),
    honest.call('open', hosts.honest.interface),
  ]);
  await target.call('listen');
  await honest.call('warmUp', hosts.target.address);
  const { qpn } = await target.call<FlowInfo>('flow', hosts.honest.address);
  await attacker.call('prepare', row.attack, { ...hosts, family: setting.family, flowQpn: qpn });
  await honest.call('probe', hosts.target.address);
  // The attacker works before, too, so that it takes no more of the processor during the flood.
  await attacker.call('rehearse', NOWHERE, row.rate);
  await sleep(ms / 2);
  await Promise.all([target.call('take'), honest.call('take')]);
  await sleep(ms);
  const [before, alone] = await Promise.all([target.call<TargetFigures>('take'), honest.call<HonestFigures>('take')]);
  await attacker.call('stop');
  const keptBefore = await target.call<number>('kept');
  await Promise.all([target.call('take'), honest.call('take')]);
  await attacker.call('start', hosts.attacker.interface, row.rate);
  await sleep(ms);
  const served = () => Promise.all([honest.call<number>('connected'), target.call<number>('flowed')]);
  for (const end = performance.now() + patience; performance.now() < end; await sleep(ms))
    if ((await served()).every((count) => count > 0)) break;
  // The target may not answer while it is busy.
  const taken = target.callWithin<TargetFigures>(180_000, 'take');
  const sentPerSecond = await attacker.call<number>('stop');
  const connects = await honest.call<HonestFigures>('take');
  await honest.call('stop');
  const [back, during] = await Promise.all([
    honest.callWithin<number>(70_000, 'untilServed', hosts.target.address, 60_000),
    taken,
  ]);
  const isFlowOpen = await target.call<boolean>('isFlowOpen');
  const flowBefore = before.flowBytes / before.seconds / MIB;
  const flowDuring = during.flowBytes / during.seconds / MIB;
  const settled = await target.call<TargetFigures>('take');
  const close = await target.call<number>('closeAccepted');
  const after = await target.call<TargetFigures>('take');
  const keptAfter = await target.call<number>('kept');
  const figures = {
    lagMax: during.lagMax,
    connectMax: Math.max(connects.waiting, ...connects.connects, ...connects.failures.map(() => Infinity)),
    memory: (Math.max(during.rssMax, settled.rssMax) - before.rssMax) / MIB,
    // Other programs, and the attacker itself, leave its two ends less of the processor than they had before.
    flow: flowDuring / (1 - waited(during, connects)) / (flowBefore / (1 - waited(before, alone))),
    back,
    close,
    kept: (keptAfter - keptBefore) / MIB,
  };
  return {
    ...setting,
    row,
    figures,
    detail: {
      ...{
        sentPerSecond,
        lagP99: during.lagP99,
        lateMax: during.lateMax,
        lagMaxBefore: before.lagMax,
        flowBefore,
        flowDuring,
      },
      ...{ memoryBefore: before.rss / MIB, memoryAfter: after.rss / MIB },
      ...{ connectionsDuring: during.connections, connectionsAfter: after.connections },
      ...{
        connects: connects.connects.length,
        failures: connects.failures,
        isFlowOpen,
        preempted: waited(during, connects),
        counters: during.counters,
      },
    },
    verdicts: row.bounds.map(({ figure, atMost = Infinity, atLeast = -Infinity }) => ({
      figure,
      bound: `${FIGURES[figure]}: ${atMost < Infinity ? `≤ ${atMost}` : `≥ ${atLeast}`}`,
      holds: figures[figure] <= atMost && figures[figure] >= atLeast,
    })),
  };
}
