/** The short form of the security bench: honest clients are served under attack, and no bound of time is judged. */
import { afterAll, beforeAll, expect } from 'vitest';
import type { AttackName } from '../../bench/attack/attacker.js';
import { ROWS, type Row } from '../../bench/attack/rows.js';
import { type Phase, runRow, type Setting } from '../../bench/attack/run.js';
import { Site } from '../../bench/attack/site.js';
import { describeIf, netPrivilege, testIf } from '../kit/privileges.js';

const privilege = netPrivilege();
/** A busy machine may keep the processor from the client or the flow for longer than that. */
const PHASE: Phase = { ms: 300, patience: 30_000 };

/** Rows at rates that also a busy machine sends. */
const SHORT: readonly (Setting & { attack: AttackName; rate: number })[] = [
  { attack: 'REQ, no listener', rate: 5000, link: 'packet', mode: 'inline', family: 4 },
  { attack: 'REQ, off-link sources', rate: 5000, link: 'udp', mode: 'worker', family: 6 },
  { attack: 'connect and disconnect', rate: 100, link: 'packet', mode: 'inline', family: 6 },
  { attack: 'broker, wrong messages', rate: 500, link: 'udp', mode: 'inline', family: 4 },
  { attack: 'broker, joins', rate: 50, link: 'packet', mode: 'inline', family: 6 },
];

describeIf(privilege, 'honest clients are served', () => {
  let site: Site;
  beforeAll(async () => {
    site = await Site.open();
  });
  afterAll(() => site[Symbol.asyncDispose]());

  for (const { attack, rate, ...setting } of SHORT)
    testIf(
      privilege,
      `during ${attack} (${Object.values(setting).join(', ')})`,
      async () => {
        const row = { ...(ROWS.find((row) => row.attack === attack) as Row), rate };
        const { figures, detail } = await runRow(site, setting, row, PHASE);
        expect(detail.failures).toEqual([]);
        expect(detail.connects).toBeGreaterThan(0);
        expect(detail.isFlowOpen).toBe(true);
        expect(detail.counters.rdma_recvs).toBeGreaterThan(0);
        expect(detail.connectionsAfter).toBe(0);
        expect(figures.flow).toBeGreaterThan(0);
      },
      120_000,
    );
});
