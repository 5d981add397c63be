// The program of the playground in Node: two cards on its network, in virtual time.
import { expect, test } from 'vitest';
import { MARKS } from '../../src/probe/ladder/packet.js';
import type { Conditions } from '../../web/playground/network.js';
import { OPERATIONS, type Order, type Outcome, Session } from '../../web/playground/session.js';

const order: Order = { from: 0, operation: 'WRITE', text: 'bytes that move ', bytes: 16_384, isKeyWrong: false };
const OPTIONS = { pathMtu: 1024, windowLimit: 768 };
/** Seconds of virtual time that every test may take. */
const PATIENCE = 60e9;

async function open(conditions: Partial<Conditions> = {}, options: Partial<typeof OPTIONS> = {}) {
  const outcomes: Outcome[] = [];
  const session = await Session.open((outcome) => outcomes.push(outcome));
  Object.assign(session.network.conditions, conditions);
  await session.connect({ ...OPTIONS, ...options });
  const finish = () => {
    session.advance(PATIENCE);
    return outcomes;
  };
  return { session, finish };
}

test('all operations at once, both ways, complete in the order of the posts of each end', async () => {
  const { session, finish } = await open();
  for (const operation of OPERATIONS)
    for (const from of [0, 1] as const) session.post({ ...order, operation, from, text: `${operation} from ${from} ` });
  const outcomes = finish();
  expect(outcomes.filter(({ status, isRight }) => status !== 'SUCCESS' || !isRight)).toEqual([]);
  for (const from of [0, 1])
    expect(outcomes.filter((each) => each.order.from === from).map((each) => each.order.operation)).toEqual([
      ...OPERATIONS,
    ]);
  expect(session.inProgress).toBe(0);
});

test('time stands still when nothing has to be done', async () => {
  const { session, finish } = await open();
  session.post(order);
  finish();
  const { now } = session.clock;
  expect(now).toBeLessThan(1e9);
  session.advance(2 * PATIENCE);
  expect(session.clock.now).toBe(now);
});

test('a step ends when a packet leaves or arrives', async () => {
  const { session } = await open();
  session.post({ ...order, bytes: 2048 });
  const seen = Array.from({ length: 6 }, () => {
    session.step();
    return [session.packets.length, session.network.flights.length, session.inProgress];
  });
  // two packets leave and arrive, and an ACK
  expect(seen).toEqual([
    [1, 1, 1],
    [2, 2, 1],
    [2, 1, 1],
    [3, 1, 1],
    [3, 0, 0],
    [3, 0, 0],
  ]);
});

test.each([
  ['loss', { loss: 0.2 }, MARKS.lost],
  ['reordering', { reorder: 0.3 }, MARKS.retransmission],
])(
  '%s: packets are sent again, every byte arrives, and the same steps give the same packets',
  async (_, conditions, mark) => {
    const run = async () => {
      const { session, finish } = await open(conditions);
      for (const operation of OPERATIONS) session.post({ ...order, operation, bytes: 65_536 });
      const outcomes = finish();
      expect(outcomes).toHaveLength(OPERATIONS.length);
      expect(outcomes.every(({ isRight }) => isRight)).toBe(true);
      return session.packets.map(({ time, label, marks }) => ({ time, label, marks }));
    };
    const packets = await run();
    expect(packets.some(({ marks }) => marks & mark)).toBe(true);
    expect(packets.some(({ marks }) => marks & MARKS.retransmission)).toBe(true);
    expect(await run()).toEqual(packets);
  },
);

test('delay, path MTU and window decide how long a WRITE takes', async () => {
  const took = async (conditions: Partial<Conditions>, options: Partial<typeof OPTIONS>) => {
    const { session, finish } = await open(conditions, options);
    session.post({ ...order, bytes: 4096 });
    const [outcome] = finish();
    return {
      ms: Math.floor((outcome?.took ?? 0) / 1e6),
      requests: session.packets.filter(({ kind }) => kind === 'WRITE').length,
    };
  };
  expect(await took({ delay: 1e6 }, {})).toEqual({ ms: 2, requests: 4 });
  expect(await took({ delay: 20e6 }, {})).toEqual({ ms: 40, requests: 4 });
  expect(await took({ delay: 1e6 }, { pathMtu: 256 })).toEqual({ ms: 2, requests: 16 });
  // a round trip for each packet
  expect(await took({ delay: 1e6 }, { windowLimit: 1 })).toEqual({ ms: 8, requests: 4 });
});

test('a message without a receive waits for one', async () => {
  const { session, finish } = await open();
  const [, b] = session.hosts;
  await session.reset();
  b.postsReceives = false;
  await session.connect(OPTIONS);
  session.post({ ...order, operation: 'SEND' });
  session.advance(session.clock.now + 20e6);
  expect(session.inProgress).toBe(1);
  expect(session.packets.filter(({ kind }) => kind === 'RNR').length).toBeGreaterThan(3);
  b.postsReceives = true;
  expect(finish()).toMatchObject([{ status: 'SUCCESS', isRight: true }]);
});

test('a wrong key ends the connection; another one begins after a reset', async () => {
  const { session, finish } = await open();
  session.post({ ...order, isKeyWrong: true });
  session.post(order);
  expect(finish().map(({ status }) => status)).toEqual(['REM_ACCESS_ERR', 'WR_FLUSH_ERR']);
  await session.connect(OPTIONS);
  session.post(order);
  expect(finish().at(-1)).toMatchObject({ status: 'SUCCESS', isRight: true });
});

test('an end has at most sixteen operations at a time, and a reset forgets them', async () => {
  const { session, finish } = await open();
  for (let i = 0; i < 16; i++) session.post(order);
  expect(() => session.post(order)).toThrow('16 operations are in progress, at most 16 can be');
  await session.reset();
  expect([session.inProgress, session.network.flights]).toEqual([0, []]);
  expect(() => session.post(order)).toThrow(/^EINVAL/);
  expect(finish()).toEqual([]);
});
