/**
 * Two cards that use all operations at once over a network with all impairments.
 *   WASM_ROCE_SEED=n   another seed (printed with every run); WASM_ROCE_PATH=p replays fast-check's counterexample
 *   WASM_ROCE_SCALE=x  x times as many runs; WASM_ROCE_SHRINK=1 makes a counterexample smaller, which takes a while
 */
import fc from 'fast-check';
import { afterAll, expect, describe as group, test } from 'vitest';
import type { Impairments } from '../kit/net.js';
import { CRIMES, violation } from './invalid-requests.js';
import { type Outcome, type Scenario, simulate } from './simulation.js';

const SEED = Number(process.env.WASM_ROCE_SEED ?? 20_260_101);
const PATH = process.env.WASM_ROCE_PATH;
const SCALE = Number(process.env.WASM_ROCE_SCALE ?? 1);
const TIMEOUT = 120_000 * Math.max(1, SCALE);

let packets = 0;
let completed = 0;
let runs = 0;
let coalesced = 0;
const windows = { lent: 0, passed: 0, closed: 0 };
const endings = new Map<string, number>();

async function run(scenario: Scenario): Promise<Outcome> {
  // a simulation only computes: vitest, which waits a minute for its worker, has its turn here
  await new Promise((resolve) => setImmediate(resolve));
  const outcome = await simulate(scenario);
  packets += outcome.packets;
  completed += outcome.completed;
  runs += outcome.runs;
  coalesced += outcome.coalesced;
  windows.lent += outcome.windows.lent;
  windows.passed += outcome.windows.passed;
  windows.closed += outcome.windows.closed;
  for (const end of outcome.ended) endings.set(end ?? 'SUCCESS', (endings.get(end ?? 'SUCCESS') ?? 0) + 1);
  return outcome;
}

function settings(numRuns: number): fc.Parameters<unknown> {
  return {
    seed: SEED,
    ...(PATH ? { path: PATH } : {}),
    numRuns: Math.ceil(numRuns * SCALE),
    endOnFailure: process.env.WASM_ROCE_SHRINK === undefined,
  };
}

/** Zero in half of the cases, so that single impairments are tried as well as all at once. */
const often0 = <T extends number>(some: fc.Arbitrary<T>): fc.Arbitrary<number> => fc.oneof(fc.constant(0), some);
const chance = (most: number) => often0(fc.integer({ min: 1, max: most * 1000 }).map((permille) => permille / 1000));

/**
 * A bottleneck always has a bound: the delay in it must stay well below the shortest ACK timeout (2 ms), or no
 * retransmission could ever be in time. READ responses can fill any queue: the requester's window does not hold them
 * back.
 */
const bottleneck = fc.oneof(
  fc.constant({ frameTime: 0, queue: 0 }),
  fc.record({ frameTime: fc.integer({ min: 0, max: 1000 }), queue: fc.integer({ min: 16, max: 500 }) }),
);

const trouble = (drop: number): fc.Arbitrary<Impairments> =>
  fc
    .record({
      drop: chance(drop),
      duplicate: chance(0.1),
      reorder: chance(0.1),
      corrupt: chance(0.05),
      delay: often0(fc.integer({ min: 1, max: 100_000 })),
      jitter: often0(fc.integer({ min: 1, max: 20_000 })),
      narrow: bottleneck,
    })
    .map(({ narrow, ...rest }) => ({ ...rest, ...narrow }));

const connection = {
  seed: fc.integer({ min: 1, max: 0x7fffffff }),
  pairs: fc.integer({ min: 1, max: 3 }),
  ops: fc.integer({ min: 1, max: 160 }),
  mtu: fc.constantFrom(256, 512, 1024, 2048, 4096),
  ipv6: fc.boolean(),
  rdAtomic: fc.oneof(fc.integer({ min: 1, max: 16 }), fc.constant(128)),
  timeout: fc.integer({ min: 9, max: 14 }),
  minRnrTimer: fc.integer({ min: 1, max: 14 }),
  late: chance(0.2),
  offload: often0(fc.integer({ min: 2, max: 64 })),
  flowControl: fc.tuple(fc.boolean(), fc.boolean()),
};
const always = { cutAt: fc.constant(0), mayEndWith: fc.constant<readonly string[]>([]) };

group('two cards in virtual time with random requests', () => {
  test(
    'all requests succeed in order, all bytes are right, and no object is left over',
    async () => {
      const scenario: fc.Arbitrary<Scenario> = fc.record({
        ...connection,
        ...always,
        retryCnt: fc.constant(7),
        rnrRetry: fc.constant(7),
        // the network delivers what was lost three times in a row, so no retry may be the last one
        there: trouble(0.2).map((impairments) => ({ ...impairments, mostLosses: 3 })),
        back: trouble(0.2).map((impairments) => ({ ...impairments, mostLosses: 3 })),
      });
      await fc.assert(
        fc.asyncProperty(scenario, async (drawn) => {
          const outcome = await run(drawn);
          expect(outcome.ended.every((end) => end === undefined)).toBe(true);
        }),
        settings(45),
      );
    },
    TIMEOUT,
  );

  test(
    'a peer that dies, or too few retries: failed requests say why, the rest is flushed, and what succeeded has arrived',
    async () => {
      const scenario: fc.Arbitrary<Scenario> = fc.record({
        ...connection,
        ops: fc.integer({ min: 1, max: 80 }),
        retryCnt: fc.integer({ min: 0, max: 4 }),
        rnrRetry: fc.integer({ min: 0, max: 7 }),
        there: trouble(0.5),
        back: trouble(0.5),
        cutAt: often0(fc.integer({ min: 1, max: 3_000_000 })),
        mayEndWith: fc.constant(['RETRY_EXC_ERR', 'RNR_RETRY_EXC_ERR']),
      });
      await fc.assert(
        fc.asyncProperty(scenario, async (drawn) => void (await run(drawn))),
        settings(60),
      );
    },
    TIMEOUT,
  );

  test.each(Object.keys(CRIMES))(
    'an illegal request, %s: it gets the status of the table, and no other memory changes',
    async (crime) => {
      const lawful = fc.record({
        delay: often0(fc.integer({ min: 1, max: 50_000 })),
        frameTime: often0(fc.constant(1000)),
      });
      const either = fc.oneof(
        // in order and without loss, the outcome is certain
        fc.record({ there: lawful, back: lawful, mayEndWith: fc.constant<readonly string[]>([]) }),
        // the NAK may be lost, and is not sent again
        fc.record({ there: trouble(0.1), back: trouble(0.1), mayEndWith: fc.constant(['RETRY_EXC_ERR']) }),
      );
      const scenario: fc.Arbitrary<Scenario> = fc
        .record({
          ...connection,
          pairs: fc.integer({ min: 1, max: 2 }),
          ops: fc.integer({ min: 1, max: 20 }),
          retryCnt: fc.constant(7),
          rnrRetry: fc.constant(7),
          cutAt: fc.constant(0),
          oneWay: fc.constant(true),
          violation: fc.constant(violation(crime)),
        })
        .chain((drawn) => either.map((net) => ({ ...drawn, ...net }) as Scenario));
      await fc.assert(
        fc.asyncProperty(scenario, async (drawn) => void (await run(drawn))),
        settings(10),
      );
    },
    TIMEOUT,
  );

  test(
    'further random runs, until a million packets have been sent',
    async () => {
      const bad: Impairments = {
        drop: 0.05,
        duplicate: 0.02,
        reorder: 0.02,
        corrupt: 0.01,
        jitter: 2000,
        mostLosses: 3,
      };
      const timers = { timeout: 10, minRnrTimer: 5, retryCnt: 7, rnrRetry: 7, late: 0.02, cutAt: 0 };
      const sizes = { pairs: 3, ops: 300, mtu: 1024, ipv6: false, rdAtomic: 16 };
      const whole = { ...timers, ...sizes, there: bad, back: bad, mayEndWith: [] };
      for (let seed = SEED; packets < 1_000_000 * SCALE; seed++)
        await run({ ...whole, seed, offload: seed % 2 ? 64 : 0 });
      expect(packets).toBeGreaterThanOrEqual(1_000_000 * SCALE);
      expect(Math.min(runs, coalesced)).toBeGreaterThan(1000 * SCALE);
      expect(Math.min(windows.lent, windows.passed, windows.closed)).toBeGreaterThan(100 * SCALE);
    },
    TIMEOUT,
  );

  afterAll(() => {
    const ends = [...endings].map(([end, count]) => `${end} ${count}`).join(', ');
    console.log(
      `seed ${SEED}: ${packets} packets and ${completed} work requests simulated; ${windows.passed} requests through ` +
        `${windows.lent} windows, of which peers closed ${windows.closed}; ${coalesced} arrived in super-packets, ` +
        `${runs} runs were judged; streams ended with ${ends}`,
    );
  });
});
