/** Invalidation of keys: SEND_WITH_INVALIDATE by the peer, LOCAL_INV by ourselves. */
import { describe, expect, test } from 'vitest';
import { ack, nak, request, response } from '../../src/probe/packet/packets.js';
import { type Conversation, PING, pattern, rc, TARGET_VA } from '../kit/conversation.js';
import type { Region } from '../kit/rig.js';

const CLOSABLE = 15 | (1 << 24);
const region = (c: Conversation): Region => c.rig.regionAt(c.target.ptr, 4096, CLOSABLE, TARGET_VA);

test('SEND_WITH_INVALIDATE places the data, invalidates the key, and names it in the completion', async () => {
  const c = await rc({ receives: 2 });
  const mr = region(c);
  c.in(0, request.sendOnlyInvalidate({ psn: 100, payload: PING, invalidate: mr.rkey, ackReq: true }))
    .out(ack({ psn: 100, msn: 1 }))
    .wc({ wrId: 1, opcode: 'RECV', byteLen: 4, flags: 8, invalidatedRkey: mr.rkey })
    .holds(c.buffer, 0, PING)
    .in(1, request.writeOnly({ psn: 101, va: TARGET_VA, rkey: mr.rkey, payload: PING }))
    .out(nak.remoteAccess({ psn: 101, msn: 1 }))
    .events('QP_ACCESS_ERR')
    .wc({ wrId: 2, status: 'WR_FLUSH_ERR' });
});

test('a SEND of several packets invalidates with the last one', async () => {
  const c = await rc({ receives: 1 });
  const mr = region(c);
  c.in(0, ...request.send({ psn: 100, payload: pattern(1500), mtu: 1024, invalidate: mr.rkey }))
    .out(ack({ psn: 101, msn: 1 }))
    .wc({ wrId: 1, byteLen: 1500, flags: 8, invalidatedRkey: mr.rkey });
});

describe('a key that cannot be invalidated is a local error: no NAK, and the message does not count', () => {
  const BAD: Record<string, (c: Conversation) => number> = {
    'an unknown key': () => 0x1234,
    'another tag': (c) => region(c).rkey ^ 1,
    'the local key': (c) => region(c).lkey,
    'a region that forbids it': (c) => c.target.rkey,
    'a region of another protection domain': (c) =>
      c.rig.regionAt(c.target.ptr, 64, CLOSABLE, 0n, c.rig.x.pdAlloc()).rkey,
  };
  test.each(Object.entries(BAD))('%s', async (_, key) => {
    const c = await rc({ receives: 2 });
    c.in(0, request.sendOnlyInvalidate({ psn: 100, payload: PING, invalidate: key(c) }))
      .silent()
      .state('ERR')
      .wc({ wrId: 1, status: 'REM_INV_REQ_ERR' }, { wrId: 2, status: 'WR_FLUSH_ERR' });
  });

  test('an ACK that was requested is sent: the data has arrived (as rxe does); the MSN does not count the message', async () => {
    const c = await rc({ receives: 1 });
    c.in(0, request.sendOnlyInvalidate({ psn: 100, payload: PING, invalidate: 0x1234, ackReq: true }))
      .out(ack({ psn: 100, msn: 0 }))
      .state('ERR')
      .wc({ wrId: 1, status: 'REM_INV_REQ_ERR' });
  });

  test('a key that is invalid already', async () => {
    const c = await rc({ receives: 2 });
    const mr = region(c);
    c.post(0, { opcode: 'LOCAL_INV', imm: mr.rkey })
      .wc({ opcode: 'LOCAL_INV' })
      .in(1, request.sendOnlyInvalidate({ psn: 100, payload: PING, invalidate: mr.rkey }))
      .silent()
      .state('ERR')
      .wc({ wrId: 1, status: 'REM_INV_REQ_ERR' }, { wrId: 2, status: 'WR_FLUSH_ERR' });
  });
});

test('LOCAL_INV takes no PSN, invalidates both keys, and completes', async () => {
  const c = await rc();
  const mr = region(c);
  c.post(0, { wrId: 1, opcode: 'LOCAL_INV', imm: mr.rkey }, { wrId: 2, opcode: 'SEND', inline: PING })
    .out(request.sendOnly({ psn: 1000, payload: PING, ackReq: true }))
    .wc({ wrId: 1, opcode: 'LOCAL_INV' })
    .in(1, ack({ psn: 1000, msn: 1 }))
    .wc({ wrId: 2 })
    .post(2, { wrId: 3, opcode: 'SEND', pieces: [mr.piece(0, 4)] })
    .silent()
    .wc({ wrId: 3, status: 'LOC_PROT_ERR' })
    .state('ERR');
});

test('LOCAL_INV waits until everything before it is done, and everything behind waits for it', async () => {
  const c = await rc();
  const mr = region(c);
  const remote = { va: 0x1000n, rkey: 0x77 };
  c.post(
    0,
    { wrId: 1, opcode: 'RDMA_WRITE', pieces: [mr.piece(0, 4)], remote },
    { wrId: 2, opcode: 'LOCAL_INV', imm: mr.rkey },
    { wrId: 3, opcode: 'SEND', inline: PING },
  )
    .out(request.writeOnly({ psn: 1000, ...remote, payload: mr.bytes.slice(0, 4), ackReq: true }))
    .wc()
    .in(1, ack({ psn: 1000, msn: 1 }))
    .out(request.sendOnly({ psn: 1001, payload: PING, ackReq: true }))
    .wc({ wrId: 1 }, { wrId: 2, opcode: 'LOCAL_INV' })
    .in(2, ack({ psn: 1001, msn: 2 }))
    .wc({ wrId: 3 });
});

test('LOCAL_INV behind a READ into the region waits for the last of its data', async () => {
  const c = await rc();
  const mr = region(c);
  const remote = { va: 0x1000n, rkey: 0x77 };
  const data = pattern(1500);
  c.post(
    0,
    { wrId: 1, opcode: 'RDMA_READ', pieces: [mr.piece(0, 1500)], remote },
    { wrId: 2, opcode: 'LOCAL_INV', imm: mr.rkey },
  )
    .out(request.read({ psn: 1000, ...remote, length: 1500, ackReq: true }))
    .in(1, response.readFirst({ psn: 1000, msn: 1, payload: data.slice(0, 1024) }))
    .wc();
  expect(c.rig.x.mrIsValid(mr.mr)).toBe(true);
  c.in(2, response.readLast({ psn: 1001, msn: 1, payload: data.slice(1024) }))
    .wc({ wrId: 1 }, { wrId: 2, opcode: 'LOCAL_INV' })
    .holds(mr, 0, data);
  expect(c.rig.x.mrIsValid(mr.mr)).toBe(false);
});

test('LOCAL_INV of a key that cannot be invalidated fails in its turn', async () => {
  const c = await rc();
  c.post(0, { wrId: 1, opcode: 'LOCAL_INV', imm: c.target.rkey }, { wrId: 2, opcode: 'SEND', inline: PING })
    .silent()
    .wc({ wrId: 1, status: 'MW_BIND_ERR' }, { wrId: 2, status: 'WR_FLUSH_ERR' })
    .state('ERR');
});

test('LOCAL_INV needs no memory', async () => {
  const c = await rc();
  expect(c.qp.send({ opcode: 'LOCAL_INV', imm: 1, pieces: [c.buffer.piece(0, 4)] })).toBe('EINVAL');
  expect(c.qp.send({ opcode: 'LOCAL_INV', imm: 1, inline: PING })).toBe('EINVAL');
});
