/**
 * Partitions (IBTA 10.9.3): two queue pairs communicate when they are in the same partition and not both limited
 * members.
 */
import { describe, expect, test } from 'vitest';
import { ack, datagram, encodeFrame, request } from '../../src/probe/packet/packets.js';
import { type Conversation, datagrams, PING, rc, send } from '../kit/conversation.js';
import { Rig } from '../kit/rig.js';

const FULL = 0x8123;
const LIMITED = 0x0123;

async function rigWith(...pkeys: number[]): Promise<Rig> {
  const rig = await Rig.create();
  rig.card.u32.set(pkeys, rig.x.scratch() >>> 2);
  expect(rig.errno(rig.x.setPkeys(pkeys.length))).toBe('OK');
  return rig;
}

/** A conversation with our P_Key and the peer's. */
async function between(ours: number, theirs: number): Promise<Conversation> {
  const c = await rc({ rig: await rigWith(ours), receives: 2, flow: { pkey: theirs } });
  Object.assign(c.back, { pkey: ours });
  return c;
}

describe.each([
  ['full and full', FULL, FULL],
  ['full and limited', FULL, LIMITED],
  ['limited and full', LIMITED, FULL],
])('%s', (_, ours, theirs) => {
  test('communicate, each with its own P_Key', async () => {
    const c = await between(ours, theirs);
    c.in(0, send({ psn: 100 }))
      .out(ack({ psn: 100, msn: 1 }))
      .wc({ wrId: 1 })
      .post(1, { opcode: 'SEND', wrId: 9 })
      .out(request.sendOnly({ psn: 1000, ackReq: true }))
      .in(2, ack({ psn: 1000, msn: 1 }))
      .wc({ wrId: 9 });
  });
});

test.each([
  ['two limited members', LIMITED, LIMITED],
  ['another partition', FULL, 0x8124],
  ['the default partition', FULL, 0xffff],
])('%s do not communicate', async (_, ours, theirs) => {
  const c = await between(ours, theirs);
  c.in(0, send({ psn: 100 }))
    .silent()
    .counts({ drop_pkey: 1 });
});

test('the index chooses the P_Key, also in SQD; a shorter table leaves queue pairs as they are', async () => {
  const c = await rc({ rig: await rigWith(0xffff, LIMITED), receives: 2 });
  expect(c.qp.modify({ STATE: 4 })).toBe('OK');
  expect(c.qp.modify({ PKEY_INDEX: 2 })).toBe('EINVAL');
  expect(c.qp.refused().range).toEqual(['PKEY_INDEX']);
  expect(c.qp.modify({ PKEY_INDEX: 1 })).toBe('OK');
  expect(c.qp.attribute('PKEY_INDEX')).toBe(1);
  c.frames(0, encodeFrame({ ...c.there, pkey: 0xffff }, send({ psn: 100 })))
    .silent()
    .counts({ drop_pkey: 1 });
  Object.assign(c.back, { pkey: LIMITED });
  c.frames(1, encodeFrame({ ...c.there, pkey: FULL }, send({ psn: 100 })))
    .out(ack({ psn: 100, msn: 1 }))
    .wc({ wrId: 1 });
  c.rig.card.u32[c.rig.x.scratch() >>> 2] = 0xffff;
  c.rig.x.setPkeys(1);
  c.frames(2, encodeFrame({ ...c.there, pkey: FULL }, send({ psn: 101 })))
    .out(ack({ psn: 101, msn: 2 }))
    .wc({ wrId: 2 });
});

test('an invalid P_Key is refused, and the table stays', async () => {
  const { x, card } = await rigWith(FULL, LIMITED);
  const at = x.scratch() >>> 2;
  for (const wrong of [0, 0x8000, 0x10000]) {
    card.u32.set([FULL, wrong], at);
    expect(x.setPkeys(2)).toBe(x.Errno.EINVAL);
  }
  expect([x.setPkeys(0), x.setPkeys(129)]).toEqual([x.Errno.EINVAL, x.Errno.EINVAL]);
  expect([x.pkey(0), x.pkey(1), x.pkey(2)]).toEqual([FULL, LIMITED, 0]);
});

test('queue pair 1 takes the P_Key of any partition of the port, and of no other', async () => {
  const [qkey, rig] = [0x80010000, await rigWith(0xffff, FULL)];
  const c = await datagrams({ rig, type: 'GSI', qkey, receives: 2, flow: { srcQp: 1 } });
  const mad = (pkey: number, psn: number) =>
    encodeFrame({ ...c.there, pkey }, datagram.sendOnly({ psn, qkey, srcQp: 1, payload: PING }));
  c.frames(0, mad(0xffff, 0), mad(LIMITED, 1), mad(0x8124, 2))
    .wc({ wrId: 1 }, { wrId: 2 })
    .cardCounts({ drop_pkey: 1 });
});
