/** Rounds of bulk from a peer like an adapter. */
import type { FromAdapter, SinkOfAdapter } from '../contenders/adapter.js';
import { measureRounds, type Row } from '../rig/rounds.js';
import { WARM_BYTES, type Work } from '../work.js';
import { type Context, roundsOf } from './subject.js';

/** MTU of the interfaces, for the path MTUs 1024 and 4096. */
export const MTUS = [1500, 9000] as const;
const SIZE = 65536;

/** Measures WRITEs of 64 KiB. The kernel handles received frames on the receiver's CPU, as after an interrupt. */
export async function measureFromAdapter(
  context: Context,
  contenders: readonly (FromAdapter | SinkOfAdapter)[],
  qps: number,
): Promise<Row[]> {
  const { warmMs, ms } = context.settings;
  const same = { kind: 'bulk', operation: 'WRITE', size: SIZE, qps, warmMs, ms, warmBytes: WARM_BYTES } as const;
  const works: Work[] = MTUS.flatMap((mtu) =>
    (['spin', 'sleep'] as const).map((waiting) => ({ ...same, mtu, waiting })),
  );
  const rig = await context.host();
  rig.steer(true);
  try {
    return await measureRounds(rig, contenders, works, roundsOf(context));
  } finally {
    rig.steer(false);
  }
}
