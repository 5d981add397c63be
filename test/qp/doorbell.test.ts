/** Doorbells: posted work requests reach the card through a ring, which the card empties at the start of a turn. */
import { describe, expect, test } from 'vitest';
import { decode } from '../../src/probe/packet/packets.js';
import { PING } from '../kit/conversation.js';
import { Rig, type RigQp } from '../kit/rig.js';

const ping = (wrId: number) => ({ wrId, opcode: 'SEND', inline: PING });
const connected = (rig: Rig, destQpn = 0x100, type: 'RC' | 'UC' = 'RC') =>
  rig.qp({ type }).connect({ destQpn, sqPsn: 0, rqPsn: 0 });
const ids = (qp: RigQp) => qp.poll().map(({ wrId }) => wrId);
const goals = (frames: readonly Uint8Array[]) => frames.map((bytes) => decode(bytes).bth.destQp - 0x100);

test('posting rings the doorbell once for any number of requests, until the card has taken a turn', async () => {
  const rig = await Rig.create();
  const qp = connected(rig);
  rig.out(0);
  expect(rig.x.isDoorbellRung()).toBe(false);
  for (let i = 0; i < 3; i++) expect(qp.send(ping(i))).toBe('OK');
  expect(rig.x.isDoorbellRung()).toBe(true);
  expect(rig.out(1)).toHaveLength(3);
  expect(rig.x.isDoorbellRung()).toBe(false);
  qp.send(ping(3));
  expect(rig.out(2)).toHaveLength(1);
});

test('a request that is not committed does not ring, and is not in the queue', async () => {
  const rig = await Rig.create();
  const qp = connected(rig);
  rig.out(0);
  expect(rig.x.sqBegin(qp.handle, 1, rig.x.WrOpcode.SEND, 2)).toBe(true);
  expect(rig.x.isDoorbellRung()).toBe(false);
  expect(rig.out(1)).toEqual([]);
  expect(rig.x.sqCommit(qp.handle)).toBe(0);
  expect(rig.out(2)).toHaveLength(1);
});

test('a refused request does not ring', async () => {
  const rig = await Rig.create();
  const qp = connected(rig);
  rig.out(0);
  expect(qp.send({ wrId: 1, opcode: 'BIND_MW', inline: PING })).toBe('EINVAL');
  expect(rig.x.isDoorbellRung()).toBe(false);
});

test('all queue pairs that the card holds may ring before its turn, again and again', async () => {
  const count = 8;
  const rig = await Rig.create(1, { maxQp: count });
  const pairs = Array.from({ length: count }, (_, i) => connected(rig, 0x100 + i, 'UC'));
  rig.out(0);
  for (let round = 0; round < 20; round++) {
    for (let post = 0; post < 2; post++) for (const qp of pairs) qp.send(ping(post));
    // each queue pair has its turn in the order in which it rang
    expect(goals(rig.out(round))).toEqual(pairs.flatMap((_, i) => [i, i]));
  }
});

describe('a doorbell whose queue pair has changed before the turn', () => {
  test('after RESET: the requests are gone without completions, and the next connection is not disturbed', async () => {
    const rig = await Rig.create();
    const qp = connected(rig);
    qp.send(ping(1));
    qp.modify({ STATE: 0 });
    expect(rig.out(1)).toEqual([]);
    expect(ids(qp)).toEqual([]);
    qp.connect({ destQpn: 0x100, sqPsn: 0, rqPsn: 0 });
    qp.send(ping(2));
    expect(rig.out(2)).toHaveLength(1);
  });

  test('after ERR: each request is flushed once, whether it was posted before or after', async () => {
    const rig = await Rig.create();
    const qp = connected(rig);
    for (const wrId of [1, 2]) qp.send(ping(wrId));
    qp.modify({ STATE: 6 });
    qp.send(ping(3));
    qp.recv(4);
    rig.out(1);
    const completions = qp.poll();
    expect(completions.map(({ wrId }) => wrId)).toEqual([1, 2, 3, 4]);
    expect(new Set(completions.map(({ status }) => status))).toEqual(new Set(['WR_FLUSH_ERR']));
  });

  test('in SQE: sends are flushed, and receives stay', async () => {
    const rig = await Rig.create();
    const qp = connected(rig, 0x100, 'UC');
    const gone = rig.region(64);
    rig.x.mrDereg(gone.mr);
    qp.recv(1);
    qp.send({ wrId: 2, opcode: 'SEND', pieces: [gone.piece(0, 8)] });
    rig.out(1);
    expect(qp.state).toBe('SQE');
    qp.send(ping(3));
    rig.out(2);
    expect(qp.poll().map(({ wrId, status }) => `${wrId} ${status}`)).toEqual(['2 LOC_PROT_ERR', '3 WR_FLUSH_ERR']);
  });

  test('after its end: it is not served, and others that rang are', async () => {
    const rig = await Rig.create();
    const [first, second, third] = [connected(rig, 0x100), connected(rig, 0x101), connected(rig, 0x102)];
    const before = rig.x.memAvailable();
    const fourth = connected(rig, 0x103);
    rig.out(0);
    for (const qp of [first, fourth, second, third]) qp.send(ping(1));
    rig.x.qpDestroy(fourth.handle);
    rig.x.cqDestroy(fourth.cq);
    expect(rig.x.memAvailable()).toBe(before);
    expect(goals(rig.out(1))).toEqual([0, 1, 2]);
  });
});

test('posted receives ring only where the card has something to do: in ERR', async () => {
  const rig = await Rig.create();
  const qp = connected(rig);
  rig.out(0);
  qp.recv(1);
  expect(rig.x.isDoorbellRung()).toBe(false);
  qp.modify({ STATE: 6 });
  expect(ids(qp)).toEqual([1]);
  qp.recv(2);
  expect(rig.x.isDoorbellRung()).toBe(true);
  expect(ids(qp)).toEqual([]);
  rig.out(1);
  expect(ids(qp)).toEqual([2]);
});

test('a completed request has left its place in the queue before its completion is seen', async () => {
  const rig = await Rig.create();
  const qp = rig.qp({ type: 'UC', sendWr: 1 }).connect({ destQpn: 0x100, sqPsn: 0, rqPsn: 0 });
  for (let i = 0; i < 5; i++) {
    expect(qp.send(ping(i))).toBe('OK');
    expect(qp.send(ping(i))).toBe('ENOMEM');
    rig.out(i);
    expect(ids(qp)).toEqual([i]);
  }
});

test('an address handle is in use until the last datagram to it is done', async () => {
  const rig = await Rig.create();
  const qp = rig.qp({ type: 'UD' }).connect({ destQpn: 0, sqPsn: 0, rqPsn: 0 });
  qp.vector({ destQpn: 0, sqPsn: 0, rqPsn: 0 });
  rig.x.setPort(0, 1024);
  const ah = rig.x.ahCreate(rig.pd);
  for (const wrId of [1, 2]) qp.send({ ...ping(wrId), to: { ah, qpn: 7, qkey: 1 } });
  expect(rig.x.ahDestroy(ah)).toBe(16);
  rig.out(1);
  expect(rig.x.ahDestroy(ah)).toBe(0);
});
