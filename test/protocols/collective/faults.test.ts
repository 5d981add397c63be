// Ranks that die, leave, make other calls or do not join: every other rank learns which one it was.
import { describe, expect, test } from 'vitest';
import { type Communicator, openCommunicator, RankError } from '../../../src/collective.js';
import { createCmId, type Device, type Qp } from '../../../src/index.js';
import type { MemoryLink } from '../../../src/link/memory/link.js';
import {
  decodeCredit,
  encodeCredit,
  encodeHello,
  type Hello,
  immediate,
  Kind,
} from '../../../src/protocols/collective/wire.js';
import { eventually } from '../../kit/eventually.js';
import { Random } from '../../kit/random.js';
import { join, openDevices, optionsOf, ROOT_HOST } from './ranks.js';

const PORT = 29_500;

async function openRanks(size: number, timeout?: number): Promise<{ devices: Device[]; ranks: Communicator[] }> {
  const devices = await openDevices(size);
  const ranks = await Promise.all(
    devices.map((device, rank) => join({ ...optionsOf(rank, size, device), ...(timeout && { timeout }) })),
  );
  return { devices, ranks };
}

/** From now on nothing reaches the device: it is like a host without power for the others. */
function cut({ link }: Device): void {
  const memory = link as MemoryLink;
  memory.close();
}

const failure = (call: Promise<unknown>): Promise<RankError> =>
  call.then(
    () => expect.unreachable('the call must fail'),
    (error) => error,
  );

/** Lengths of arrays whose slices need no credits, and of others. */
const [SHORT, LONG] = [100_000, 2_000_000];

describe.each([
  [2, SHORT],
  [2, LONG],
  [3, LONG],
  [4, SHORT],
  [7, LONG],
])('of %i ranks that combine %i elements', (size, length) => {
  /** The errors of a call at all ranks but one. */
  async function failures(ranks: readonly Communicator[], without: number): Promise<RankError[]> {
    const others = ranks.filter(({ rank }) => rank !== without);
    return Promise.all(others.map((rank) => failure(rank.allReduce(new Float32Array(length)))));
  }

  test('one that dies ends the calls of the others with its number, within seconds', async () => {
    const { devices, ranks } = await openRanks(size);
    const dead = size - 1;
    const start = performance.now();
    const waiting = failures(ranks, dead);
    cut(devices[dead] as Device);
    for (const error of await waiting) {
      expect(error).toBeInstanceOf(RankError);
      expect(error).toMatchObject({ rank: dead, code: 'ETIMEDOUT' });
      expect(error.message).toMatch(new RegExp(`^ETIMEDOUT: rank ${dead} (does not answer|has not answered)`));
    }
    expect(performance.now() - start).toBeLessThan(7000);
    // every later call says the same
    expect(await failure((ranks[0] as Communicator).barrier())).toMatchObject({ rank: dead });
  });

  test('one that dies between two calls is reported by the next call', async () => {
    const { devices, ranks } = await openRanks(size, 1000);
    cut(devices[1] as Device);
    await new Promise((resolve) => setTimeout(resolve, 10_000));
    for (const error of await failures(ranks, 1)) expect(error).toMatchObject({ rank: 1, code: 'ETIMEDOUT' });
  });

  test('one that leaves ends the calls of the others with its number', async () => {
    const { ranks } = await openRanks(size);
    const left = size >> 1;
    const waiting = failures(ranks, left);
    await ranks[left]?.close();
    for (const error of await waiting)
      expect(error).toMatchObject({ rank: left, message: `ECONNRESET: rank ${left} has left` });
  });

  test('each may leave as soon as its last call is done', async () => {
    const { ranks } = await openRanks(size);
    await Promise.all(
      ranks.map(async (rank) => {
        for (let call = 0; call < 3; call++) await rank.allReduce(new Float32Array(50_000));
        await rank.close();
      }),
    );
  });

  test.each<[string, (rank: Communicator) => Promise<unknown>]>([
    ['another call', (rank) => rank.barrier()],
    ['a shorter array', (rank) => rank.allReduce(new Float32Array(10))],
    ['a longer array', (rank) => rank.allReduce(new Float32Array(3_000_000))],
    ['another type', (rank) => rank.allReduce(new Int32Array(length))],
    ['another operation', (rank) => rank.allReduce(new Float32Array(length), { op: 'max' })],
    ['another algorithm', (rank) => rank.allReduce(new Float32Array(length), { algorithm: 'tree' })],
    ['a broadcast', (rank) => rank.broadcast(new Float32Array(length))],
    ['one call more', (rank) => rank.barrier().then(() => rank.barrier())],
  ])('one that makes %s ends the calls of all', async (_, call) => {
    const { ranks } = await openRanks(size);
    const odd = failure(call(ranks[1] as Communicator));
    for (const error of [...(await failures(ranks, 1)), await odd]) {
      expect(error).toMatchObject({ name: 'RankError', code: 'EPROTO' });
      expect(error.message).toMatch(/makes another call than another rank, which calls (allReduce|barrier|broadcast)/);
    }
  });
});

test('a rank that leaves warns of each rank that does not acknowledge its leave', async () => {
  const { devices, ranks } = await openRanks(2);
  const warnings: { code?: string; message: string }[] = [];
  const onWarning = (warning: Error) => warnings.push(warning);
  process.on('warning', onWarning);
  cut(devices[1] as Device);
  await ranks[0]?.close();
  await new Promise((resolve) => setImmediate(resolve));
  process.off('warning', onWarning);
  const message = 'rank 0 has left, and rank 1 has not acknowledged that';
  expect(warnings).toEqual([expect.objectContaining({ code: 'WASM_ROCE_LEAVE', message })]);
});

test('a rank that does not join is named by the others', async () => {
  const [first, second] = (await openDevices(3)) as [Device, Device];
  const joinTimeout = 3000;
  const [a, b] = await Promise.all([
    failure(join({ ...optionsOf(0, 3, first), joinTimeout })),
    failure(join({ ...optionsOf(1, 3, second), joinTimeout: 60_000 })),
  ]);
  for (const error of [a, b])
    expect(error).toMatchObject({ rank: 2, message: 'ETIMEDOUT: rank 2 has not joined within 3000 ms' });
  for (const device of [first, second]) await eventually(() => device.close());
});

test('ranks without a rank 0 report that', async () => {
  const [, device] = (await openDevices(2)) as [Device, Device];
  const error = await failure(join({ ...optionsOf(1, 2, device), joinTimeout: 3000 }));
  expect(error).toMatchObject({ rank: 0, message: 'ETIMEDOUT: rank 0 has not joined within 3000 ms' });
});

test('a signal ends the wait for the others, and leaves nothing', async () => {
  const [device] = (await openDevices(1)) as [Device];
  const stop = new AbortController();
  const joining = openCommunicator({ ...optionsOf(0, 2, device), signal: stop.signal });
  setTimeout(() => stop.abort(new Error('enough')), 100);
  await expect(joining).rejects.toThrow('enough');
  await eventually(() => device.close());
});

test.each<[string, object, RegExp]>([
  ['another size', { size: 4 }, /rank 0 refuses: size is 4 at one rank, 3 at another/],
  ['another group', { group: 'other' }, /rank 0 refuses: the groups have different names/],
  ['the number of another', { rank: 1 }, /rank 0 refuses: rank 1 has joined already/],
])('a rank with %s is refused, and the others go on', async (_, change, message) => {
  const devices = (await openDevices(4)) as [Device, Device, Device, Device];
  const first = [0, 1].map((rank) => join(optionsOf(rank, 3, devices[rank] as Device)));
  await new Promise((resolve) => setTimeout(resolve, 1000));
  await expect(join({ ...optionsOf(2, 3, devices[3]), ...change })).rejects.toThrow(message);
  const ranks = await Promise.all([...first, join(optionsOf(2, 3, devices[2]))]);
  await Promise.all(ranks.map((rank) => rank.barrier()));
});

/** A rank 1 of two that a test plays. */
async function rawRank(device: Device, change: Partial<Hello> = {}): Promise<Qp> {
  const [pd, cq, id] = [await device.allocPd(), await device.createCq(), createCmId(device)];
  await id.resolveAddr(ROOT_HOST, PORT);
  await id.resolveRoute();
  const qp = await id.createQp(pd, { sendCq: cq, maxInlineData: 64 });
  qp.postRecv(Array.from({ length: 64 }, () => ({})));
  const right = { rank: 1, size: 2, port: 1, group: '', fifoAddr: 0n, fifoRkey: 0 };
  await id.connect({ privateData: encodeHello({ ...right, ...change }) });
  return qp;
}

const send = (qp: Qp, immData: number, bytes: Uint8Array = new Uint8Array(0)) =>
  qp.postSend({ opcode: 'SEND_WITH_IMM', immData, sgList: bytes });

test.each<[string, (qp: Qp) => void, RegExp]>([
  ['data without a credit', (qp) => send(qp, immediate(Kind.DATA, 0, 0)), /data without a credit/],
  ['a lane that does not exist', (qp) => send(qp, immediate(Kind.EAGER, 9, 0)), /data for lane 9, of 4/],
  ['a kind that does not exist', (qp) => send(qp, immediate(7 as Kind, 0, 0)), /a message of kind 7/],
  [
    'more credits than there are slots',
    (qp) => {
      for (let i = 0; i < 3; i++) send(qp, immediate(Kind.CREDIT, 1, 5 << 16));
    },
    /more than 2 credits for lane 1/,
  ],
  ['no JSON', (qp) => send(qp, immediate(Kind.CONTROL, 0, 0), Buffer.from('{')), /an invalid control message/],
  [
    'an unknown message',
    (qp) => send(qp, immediate(Kind.CONTROL, 0, 0), Buffer.from('{"type":1}')),
    /an invalid control/,
  ],
])('a rank that sends %s ends the communicator', async (_, say, message) => {
  const [own, other] = (await openDevices(2)) as [Device, Device];
  const joining = join(optionsOf(0, 2, own));
  const qp = await rawRank(other);
  const rank = await joining;
  const waiting = failure(rank.barrier());
  say(qp);
  const error = await waiting;
  expect(error).toMatchObject({ rank: 1, code: 'EPROTO' });
  expect(error.message).toMatch(message);
});

test('a rank that writes with a wrong key ends the communicator with the fatal event as the cause', async () => {
  const [own, other] = (await openDevices(2)) as [Device, Device];
  const joining = join(optionsOf(0, 2, own));
  const qp = await rawRank(other);
  const rank = await joining;
  const waiting = failure(rank.barrier());
  qp.postSend({ opcode: 'RDMA_WRITE', sgList: new Uint8Array(4), remoteAddr: 0, rkey: 1 });
  const error = await waiting;
  expect(error).toMatchObject({ rank: 1, code: 'ECONNRESET' });
  expect(String(error.cause)).toMatch(/the peer sent a request that qp \w+ does not allow \(QP_ACCESS_ERR\)/);
});

test('a credit for memory that ends beyond the last address is refused', () => {
  const credit = (bytes: number) => decodeCredit(encodeCredit({ addr: 2n ** 64n - 16n, rkey: 1, bytes }), 0);
  expect(credit(16)).toEqual({ addr: 2n ** 64n - 16n, rkey: 1, bytes: 16 });
  expect(credit(17)).toBeUndefined();
});

test.each([0, 1, 5])('of two requests of one rank, %i turns apart, the newer one counts', async (turns) => {
  const [own, other] = (await openDevices(2)) as [Device, Device];
  const joining = join(optionsOf(0, 2, own));
  const earlier = rawRank(other).then(
    () => 'connected',
    ({ code }) => code,
  );
  for (let turn = 0; turn < turns; turn++) await new Promise((resolve) => setImmediate(resolve));
  const newer = rawRank(other).catch(() => undefined);
  const rank = await joining;
  const qp = await newer;
  if (qp === undefined) {
    // the earlier one was established before the newer one came
    expect(await earlier).toBe('connected');
    return;
  }
  const waiting = failure(rank.barrier());
  send(qp, immediate(7 as Kind, 0, 0));
  expect(await waiting).toMatchObject({ rank: 1, code: 'EPROTO' });
  await rank.close();
  await eventually(() => own.close());
});

test('a connection of another protocol is refused', async () => {
  const [own, other] = (await openDevices(2)) as [Device, Device];
  const joining = join({ ...optionsOf(0, 2, own) });
  await expect(rawRank(other, { group: 'stranger' })).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  await expect(rawRank(other, { rank: 0 })).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  await expect(rawRank(other, { fifoAddr: 2n ** 64n - 1n })).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  await expect(rawRank(other, { rank: 9 })).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  const [rank] = await Promise.all([
    joining,
    join(optionsOf(1, 2, other)).then((one) => one.barrier()),
    joining.then((one) => one.barrier()),
  ]);
  await rank.close();
});

test.each([1, 2, 3, 4, 5, 6, 7, 8])('random messages end the communicator or are ignored (seed %i)', async (seed) => {
  const random = new Random(seed);
  const [own, other] = (await openDevices(2)) as [Device, Device];
  const joining = join(optionsOf(0, 2, own));
  const qp = await rawRank(other);
  const rank = await joining;
  const call = failure(rank.allReduce(new Float32Array(LONG)));
  for (let i = 0; i < 20; i++) send(qp, random.u32(), random.bytes(random.below(64)));
  expect(await call).toMatchObject({ name: 'RankError', rank: 1 });
  await rank.close();
  await eventually(() => own.close());
});
