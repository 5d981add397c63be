/** Credits between two cards whose receives are posted late, over networks that lose, duplicate and reorder. */
import { expect, describe as group, test } from 'vitest';
import type { Impairments } from '../kit/net.js';
import { type Outcome, type Scenario, simulate } from './simulation.js';

const SEED = Number(process.env.WASM_ROCE_SEED ?? 20_260_301);
const MOST_LOSSES = 3;

/** Receives are posted up to 6 ms late, each after the one before; a credit update counts as lost after 8 ms. */
const SLOW: Omit<Scenario, 'there' | 'back'> = {
  seed: SEED,
  pairs: 2,
  ops: 60,
  mtu: 1024,
  ipv6: false,
  rdAtomic: 8,
  timeout: 11,
  retryCnt: 7,
  rnrRetry: 7,
  minRnrTimer: 5,
  late: 1,
  lateBy: 6_000_000,
  flowControl: [true, true],
  cutAt: 0,
  mayEndWith: [],
};

function run(net: Impairments, changes: Partial<Scenario> = {}): Promise<Outcome> {
  const impairments = { delay: 3000, ...net };
  return simulate({ ...SLOW, there: impairments, back: impairments, ...changes });
}

const NETWORKS: Readonly<Record<string, Impairments>> = {
  'without fault': {},
  'that loses': { drop: 0.1, mostLosses: MOST_LOSSES },
  'that doubles': { duplicate: 0.2 },
  'that reorders': { reorder: 0.2, jitter: 20_000 },
  'that does all at once, and damages': {
    drop: 0.05,
    duplicate: 0.05,
    reorder: 0.05,
    corrupt: 0.02,
    jitter: 10_000,
    mostLosses: MOST_LOSSES,
  },
};

group('receives that are posted late', () => {
  test.each(Object.entries(NETWORKS))(
    'over a network %s: messages wait, and none is refused',
    async (_, net) => {
      let waits = 0;
      for (let seed = SEED; seed < SEED + 4; seed++) {
        const outcome = await run(net, { seed });
        expect(
          outcome.ended.every((end) => end === undefined),
          `seed ${seed}`,
        ).toBe(true);
        expect(outcome.refused, `seed ${seed}`).toBe(0);
        waits += outcome.waits;
      }
      // more than at the start of each stream, where the sender waits for the first ACK
      expect(waits, `seed ${SEED}`).toBeGreaterThan(4 * 4);
    },
    60_000,
  );

  test('without credits, messages are refused and sent again', async () => {
    const outcome = await run({}, { flowControl: [false, false] });
    expect(outcome.refused).toBeGreaterThan(10);
    expect(outcome.waits).toBe(0);
  });

  test.each([
    ['first', [true, false]],
    ['second', [false, true]],
  ] as const)(
    'credits at the %s end alone: no message waits',
    async (_, flowControl) => {
      for (const net of Object.values(NETWORKS)) {
        const outcome = await run(net, { flowControl });
        expect(outcome.ended.every((end) => end === undefined)).toBe(true);
        // until the first ACK advertises unlimited credits
        expect(outcome.waits).toBeLessThanOrEqual(2);
      }
    },
    60_000,
  );

  test('an update of credits that is late: a message sent without credit is refused, and the connection goes on', async () => {
    // receives are 2 ms late, a credit update counts as lost after 0.26 ms, and half of them are lost
    const back = { delay: 3000, drop: 0.5, mostLosses: MOST_LOSSES };
    const outcome = await run({}, { back, oneWay: true, timeout: 6, lateBy: 2_000_000, ops: 60 });
    expect(outcome.ended.every((end) => end === undefined)).toBe(true);
    expect(outcome.refused).toBeGreaterThan(0);
  }, 60_000);
});
