/**
 * Many queue pairs share a card: the order of turns, the room in the ring, the next deadline, and queue pairs that are
 * destroyed.
 */
import { expect, test } from 'vitest';
import { ack, decode, encodeFrame, flowOf } from '../../src/probe/packet/packets.js';
import { PING } from '../kit/conversation.js';
import { Random } from '../kit/random.js';
import { Rig, type RigQp } from '../kit/rig.js';

const MS = 1e6;

function connected(rig: Rig, count: number, options = {}): RigQp[] {
  return Array.from({ length: count }, (_, i) =>
    rig.qp().connect({ destQpn: 0x100 + i, sqPsn: 0, rqPsn: 0, timeout: 14, ...options }),
  );
}
const ping = { opcode: 'SEND', inline: PING };
/** The destination queue pair of each frame. */
const goals = (frames: readonly Uint8Array[]) => frames.map((bytes) => decode(bytes).bth.destQp - 0x100);
const psns = (frames: readonly Uint8Array[]) => frames.map((bytes) => decode(bytes).bth.psn);

test('queue pairs take turns of at most 16 packets', async () => {
  const rig = await Rig.create();
  const pairs = connected(rig, 2);
  for (const qp of pairs) for (let i = 0; i < 20; i++) qp.send(ping);
  const runs = goals(rig.out(0)).join('').match(/0+|1+/g);
  expect(runs?.map((run) => run.length)).toEqual([16, 16, 4, 4]);
});

test('what does not fit into the ring leaves with the next turn, in order', async () => {
  const rig = await Rig.create(1, { txSlots: 4 });
  const [qp] = connected(rig, 1);
  for (let i = 0; i < 10; i++) qp?.send(ping);
  expect([rig.x.tx(0, 100), rig.x.tx(0, 100)]).toEqual([4, 0]);
  expect(psns(rig.out(0))).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
});

test('a turn sends no more frames than it is allowed', async () => {
  const rig = await Rig.create();
  const [qp] = connected(rig, 1);
  for (let i = 0; i < 5; i++) qp?.send(ping);
  expect(psns(rig.out(0, 2))).toEqual([0, 1]);
  expect(rig.out(0, 0)).toEqual([]);
  expect(psns(rig.out(0))).toEqual([2, 3, 4]);
});

test('a turn receives no more frames than it is allowed', async () => {
  const rig = await Rig.create();
  const [qp] = connected(rig, 1);
  const there = flowOf({ destQp: qp?.qpn ?? 0, srcQp: 0x100 });
  for (let i = 0; i < 3; i++) {
    qp?.send(ping);
    rig.put(encodeFrame(there, ack({ psn: i, msn: i + 1 })));
  }
  expect(rig.out(0)).toHaveLength(3);
  expect([rig.x.rx(0, 2), rig.x.rx(0, 2), rig.x.rx(0, 2)]).toEqual([2, 1, 0]);
  expect(qp?.poll()).toHaveLength(3);
});

test('the next deadline is never late, and 0 without one', async () => {
  const rig = await Rig.create();
  expect(rig.x.nextDeadline()).toBe(0);
  const [slow, fast] = [14, 8].map((timeout) => connected(rig, 1, { timeout })[0]);
  if (!slow || !fast) throw new Error('two');
  slow.send(ping);
  rig.out(1 * MS);
  expect(rig.x.nextDeadline()).toBe(1 * MS + 4096 * 2 ** 14);
  fast.send(ping);
  rig.out(2 * MS);
  expect(rig.x.nextDeadline()).toBe(2 * MS + 4096 * 2 ** 8);
  for (const qp of [fast, slow])
    rig.in(2 * MS, encodeFrame(flowOf({ destQp: qp.qpn, srcQp: 0x100 }), ack({ psn: 0, msn: 1 })));
  rig.x.expire(100 * MS);
  expect(rig.x.nextDeadline()).toBe(0);
  expect([slow.poll().length, fast.poll().length]).toEqual([1, 1]);
});

test('queue pairs that are destroyed in any order leave neither turn nor deadline behind', async () => {
  const random = new Random(5);
  for (let round = 0; round < 20; round++) {
    const rig = await Rig.create(round + 1, { memoryBytes: 8 * 2 ** 20 });
    const before = rig.x.memAvailable();
    const pairs = connected(rig, 12, { retryCnt: 0 }).map((qp, i) => ({ qp, i, timeout: 0 }));
    for (const each of pairs) {
      if (random.chance(0.8)) each.qp.send(ping);
    }
    rig.out(0);
    for (const each of pairs) if (random.chance(0.5)) each.qp.send(ping);
    const gone = pairs.filter(() => random.chance(0.5));
    while (gone.length > 0) {
      const [each] = gone.splice(random.below(gone.length), 1);
      if (!each) continue;
      rig.x.qpDestroy(each.qp.handle);
      rig.x.cqDestroy(each.qp.cq);
      pairs.splice(pairs.indexOf(each), 1);
    }
    const said = new Set(goals(rig.out(1)));
    for (const i of said) expect(pairs.some((each) => each.i === i)).toBe(true);
    rig.out(200 * MS);
    for (const { qp } of pairs) {
      const ends = qp.poll().map(({ status }) => status);
      expect(ends).toEqual(ends.map((_, n) => (n === 0 ? 'RETRY_EXC_ERR' : 'WR_FLUSH_ERR')));
      rig.x.qpDestroy(qp.handle);
      rig.x.cqDestroy(qp.cq);
    }
    expect(rig.x.nextDeadline()).toBe(0);
    expect(rig.out(400 * MS)).toEqual([]);
    expect(rig.x.memAvailable()).toBe(before);
  }
});

test('deadlines of many queue pairs expire in their order, each at its time, whatever is destroyed meanwhile', async () => {
  for (let seed = 1; seed <= 10; seed++) {
    const rig = await Rig.create(seed);
    const random = new Random(seed);
    const all = Array.from({ length: 48 }, (_, i) => {
      const timeout = random.between(10, 21);
      const [qp] = connected(rig, 1, { timeout, retryCnt: 0 }) as [RigQp];
      qp.send(ping);
      rig.out(i * 1000);
      return { qp, end: i * 1000 + 4096 * 2 ** timeout };
    });
    const due = all.filter(() => random.chance(0.6)).sort((a, b) => a.end - b.end);
    for (const { qp } of all.filter((each) => !due.includes(each))) rig.x.qpDestroy(qp.handle);
    for (const { qp, end } of due) {
      expect(rig.x.nextDeadline()).toBe(end);
      rig.x.expire(end - 1);
      expect(qp.poll()).toEqual([]);
      rig.x.expire(end);
      expect(qp.poll().map(({ status }) => status)).toEqual(['RETRY_EXC_ERR']);
    }
    expect(rig.x.nextDeadline()).toBe(0);
  }
});

test('an object that cannot be created gives the reason', async () => {
  const rig = await Rig.create(1, { maxQp: 2 });
  const { x } = rig;
  const cq = x.cqCreate(4);
  const create = (type: number, sendWr = 1, recvWr = 1, sge = 1, inline = 0) => {
    const qp = x.qpCreate(rig.pd, type, cq, cq, sendWr, recvWr, sge, sge, inline, false, 0);
    return qp === 0 ? rig.errno(x.lastErrno()) : 'OK';
  };
  const { RC } = x.QpType;
  expect(create(9)).toBe('EOPNOTSUPP');
  expect([create(RC, 0), create(RC, 32769), create(RC, 1, 32769)]).toEqual(['EINVAL', 'EINVAL', 'EINVAL']);
  expect([create(RC, 1, 1, 33), create(RC, 1, 1, 1, 1025)]).toEqual(['EINVAL', 'EINVAL']);
  expect([create(RC), create(RC, 1, 0), create(RC)]).toEqual(['OK', 'OK', 'ENOMEM']);
});
