/** Local errors and the end of a queue pair: which work requests fail, which are flushed, in which order. */
import { describe, expect, test } from 'vitest';
import { ack, nak, type Packet, request } from '../../src/probe/packet/packets.js';
import { type Conversation, PING, rc, send, TARGET_VA } from '../kit/conversation.js';
import type { Piece } from '../kit/rig.js';

const sent = (psn: number): Packet => request.sendOnly({ psn, payload: PING, ackReq: true });
const ping = (wrId: number) => ({ wrId, opcode: 'SEND', inline: PING });

describe('a SEND from memory without the local right fails, and is not sent', () => {
  const BAD: Record<string, (c: Conversation) => Piece> = {
    'an unknown local key': (c) => ({ ptr: c.buffer.ptr, length: 8, lkey: 0x1234 }),
    'the remote key': (c) => ({ ptr: c.buffer.ptr, length: 8, lkey: c.buffer.rkey }),
    'a range that ends outside of the region': (c) => c.buffer.piece(c.buffer.length - 7, 8),
    'a range that starts outside of the region': (c) => c.buffer.piece(-1, 8),
    'a range that wraps': (c) => ({ ptr: c.buffer.ptr, length: 0x70000000, lkey: c.buffer.lkey }),
    'a region of another protection domain': (c) =>
      c.rig.regionAt(c.buffer.ptr, 64, 15, 0n, c.rig.x.pdAlloc()).piece(0, 8),
    'a region that is gone': (c) => {
      const region = c.rig.regionAt(c.buffer.ptr, 64);
      c.rig.x.mrDereg(region.mr);
      return region.piece(0, 8);
    },
  };
  test.each(Object.entries(BAD))('%s', async (_, piece) => {
    const c = await rc();
    c.post(0, { wrId: 1, opcode: 'SEND', pieces: [c.buffer.piece(0, 4), piece(c)] }, ping(2))
      .silent()
      .wc({ wrId: 1, status: 'LOC_PROT_ERR', opcode: 'SEND' }, { wrId: 2, status: 'WR_FLUSH_ERR' })
      .state('ERR');
  });
});

test('a local key for all protection domains is valid in another one, and the remote key is not', async () => {
  const c = await rc();
  const region = c.rig.regionAt(c.buffer.ptr, 64, 15, 0n, c.rig.x.pdAlloc());
  c.rig.x.mrForAllPds(region.mr);
  c.post(0, { wrId: 1, opcode: 'SEND', pieces: [region.piece(0, 4)] })
    .out(request.sendOnly({ psn: 1000, payload: c.buffer.bytes.slice(0, 4), bth: { ackReq: true } }))
    .in(1, ack({ psn: 1000, msn: 1 }))
    .wc({ wrId: 1 })
    .in(2, request.writeOnly({ psn: 100, va: 0n, rkey: region.rkey, payload: new Uint8Array(4) }))
    .out(nak.remoteAccess({ psn: 100 }))
    .events('QP_ACCESS_ERR')
    .state('ERR');
});

test('only that request fails: what was posted before it completes first', async () => {
  const c = await rc();
  c.post(0, ping(1), { wrId: 2, opcode: 'SEND', pieces: [{ ptr: 0, length: 4, lkey: 0 }] }, ping(3))
    .out(sent(1000))
    .wc()
    .in(5, ack({ psn: 1000, msn: 1 }))
    .silent()
    .wc({ wrId: 1 }, { wrId: 2, status: 'LOC_PROT_ERR' }, { wrId: 3, status: 'WR_FLUSH_ERR' })
    .state('ERR');
});

test('an SGE without bytes needs no key', async () => {
  const c = await rc();
  const empty = { ptr: 0, length: 0, lkey: 0 };
  const four = c.buffer.bytes.slice(0, 4);
  c.post(0, { wrId: 1, opcode: 'SEND', pieces: [empty, c.buffer.piece(0, 4), empty] })
    .out(request.sendOnly({ psn: 1000, payload: four, ackReq: true }))
    .in(1, ack({ psn: 1000, msn: 1 }))
    .wc({ wrId: 1, byteLen: 4 });
});

test('a request whose memory is closed before a repetition fails', async () => {
  const c = await rc();
  const mr = c.rig.region(64);
  c.post(0, { wrId: 1, opcode: 'SEND', pieces: [mr.piece(0, 4)] })
    .out(request.sendOnly({ psn: 1000, payload: new Uint8Array(4), ackReq: true }))
    .at(1, () => c.rig.x.mrDereg(mr.mr))
    .in(2, nak.sequence({ psn: 1000 }))
    .silent()
    .wc({ wrId: 1, status: 'LOC_PROT_ERR' })
    .state('ERR');
});

test('memory may be closed once its bytes are on the wire, if they arrive', async () => {
  const c = await rc();
  const mr = c.rig.region(64);
  c.post(0, { wrId: 1, opcode: 'SEND', pieces: [mr.piece(0, 4)] })
    .out(request.sendOnly({ psn: 1000, payload: new Uint8Array(4), ackReq: true }))
    .at(1, () => c.rig.x.mrDereg(mr.mr))
    .in(2, ack({ psn: 1000, msn: 1 }))
    .wc({ wrId: 1 });
});

test('a failure completes unsignaled requests before it too, and so does the flush', async () => {
  const c = await rc({ signalAll: false });
  const quiet = (wrId: number) => ({ ...ping(wrId), signaled: false });
  c.post(0, quiet(1), quiet(2), quiet(3))
    .out(sent(1000), sent(1001), sent(1002))
    .in(1, nak.invalidRequest({ psn: 1001, msn: 1 }))
    .wc({ wrId: 2, status: 'REM_INV_REQ_ERR' }, { wrId: 3, status: 'WR_FLUSH_ERR' })
    .state('ERR');
});

test('the move to ERR flushes both queues, each in its order', async () => {
  const c = await rc({ receives: 3 });
  c.post(0, ping(11), ping(12), { wrId: 13, opcode: 'RDMA_WRITE', inline: PING, remote: { va: 1n, rkey: 2 } });
  c.take();
  c.at(1, () => c.qp.modify({ STATE: 6 }))
    .silent()
    .wc(
      { wrId: 11, status: 'WR_FLUSH_ERR', opcode: 'SEND' },
      { wrId: 12, status: 'WR_FLUSH_ERR', opcode: 'SEND' },
      { wrId: 13, status: 'WR_FLUSH_ERR', opcode: 'RDMA_WRITE' },
      { wrId: 1, status: 'WR_FLUSH_ERR', opcode: 'RECV' },
      { wrId: 2, status: 'WR_FLUSH_ERR', opcode: 'RECV' },
      { wrId: 3, status: 'WR_FLUSH_ERR', opcode: 'RECV' },
    );
});

test('a request that is posted in ERR is flushed with the next turn', async () => {
  const c = await rc();
  c.at(1, () => c.qp.modify({ STATE: 6 }))
    .post(2, ping(1))
    .silent()
    .wc({ wrId: 1, status: 'WR_FLUSH_ERR', opcode: 'SEND' })
    .recv(2, 0, 64)
    .at(3)
    .wc({ wrId: 2, status: 'WR_FLUSH_ERR', opcode: 'RECV' });
});

test('a queue pair in ERR sends nothing, receives nothing, and has no timer', async () => {
  const c = await rc({ timeout: 1, retryCnt: 0, receives: 1 });
  c.post(0, ping(1))
    .out(sent(1000))
    .at(1, () => c.qp.modify({ STATE: 6 }))
    .wc({ status: 'WR_FLUSH_ERR' }, { status: 'WR_FLUSH_ERR' })
    .in(2, ack({ psn: 1000, msn: 1 }), send({ psn: 100 }), send({ psn: 105 }))
    .silent()
    .at(1000)
    .silent()
    .counts({ drop_qp_state: 3, local_ack_timeout_err: 0 });
  expect(c.rig.x.nextDeadline()).toBe(0);
});

test('a message that was half received at the move to ERR is flushed', async () => {
  const c = await rc({ receives: 1 });
  c.in(0, request.sendFirst({ psn: 100, payload: c.target.bytes.slice(0, 1024) }))
    .at(1, () => c.qp.modify({ STATE: 6 }))
    .wc({ wrId: 1, status: 'WR_FLUSH_ERR' });
});

test('RESET drops work requests without completions, and a new connection starts afresh', async () => {
  const c = await rc({ receives: 2, timeout: 1 });
  c.in(0, send({ psn: 100 }))
    .out(ack({ psn: 100, msn: 1 }))
    .wc({ wrId: 1 });
  c.post(1, ping(1))
    .out(sent(1000))
    .at(2, () => c.qp.modify({ STATE: 0 }))
    .wc()
    .at(100)
    .silent();
  c.qp.connect({ destQpn: c.there.srcQp, sqPsn: 5, rqPsn: 6 });
  c.recv(7, 0, 64)
    .in(101, send({ psn: 6 }))
    .out(ack({ psn: 6, msn: 1 }))
    .wc({ wrId: 7 })
    .post(102, ping(8))
    .out(sent(5))
    .in(103, ack({ psn: 5, msn: 1 }))
    .wc({ wrId: 8 });
});

test('RESET during a message drops its received part, and saved responses', async () => {
  const c = await rc({ receives: 1 });
  const at = { va: TARGET_VA, rkey: c.target.rkey };
  c.in(0, request.read({ psn: 100, ...at, length: 0 }), request.sendFirst({ psn: 101, payload: new Uint8Array(1024) }));
  c.take();
  c.at(1, () => c.qp.modify({ STATE: 0 }));
  c.qp.connect({ destQpn: c.there.srcQp, sqPsn: 5, rqPsn: 101 });
  c.recv(2, 0, 64)
    .in(2, request.read({ psn: 100, ...at, length: 0 }))
    .silent()
    .in(3, send({ psn: 101 }))
    .out(ack({ psn: 101, msn: 1 }))
    .wc({ wrId: 2, byteLen: 4 })
    .counts({ drop_duplicate_unknown: 1 });
});

test('queues have the requested size, and report that they are full', async () => {
  const c = await rc({ sendWr: 4, recvWr: 4 });
  for (let i = 0; i < 4; i++) expect(c.qp.recv(i)).toBe('OK');
  expect(c.qp.recv(9)).toBe('ENOMEM');
  for (let i = 0; i < 4; i++) expect(c.qp.send(ping(i))).toBe('OK');
  expect(c.qp.send(ping(9))).toBe('ENOMEM');
  c.at(1).out(sent(1000), sent(1001), sent(1002), sent(1003));
  c.in(2, ack({ psn: 1003, msn: 4 })).wc({}, {}, {}, {});
});

test('invalid work requests are refused when they are posted', async () => {
  const c = await rc({ sge: 2, inline: 8 });
  const piece = c.buffer.piece(0, 8);
  expect(c.qp.send({ opcode: 'SEND', pieces: [piece, piece, piece] })).toBe('EINVAL');
  expect(c.qp.recv(1, [piece, piece, piece])).toBe('EINVAL');
  expect(c.qp.send({ opcode: 'SEND', inline: new Uint8Array(9) })).toBe('EINVAL');
  expect(c.qp.send({ opcode: 'RDMA_READ', inline: new Uint8Array(8) })).toBe('EINVAL');
  expect(c.qp.send({ opcode: 'SEND', pieces: [piece], inline: new Uint8Array(8) })).toBe('EINVAL');
  const half = { ptr: c.buffer.ptr, length: 0x40000001, lkey: c.buffer.lkey };
  expect(c.qp.send({ opcode: 'SEND', pieces: [half, half] })).toBe('EMSGSIZE');
  expect(c.qp.recv(1, [half, half])).toBe('EMSGSIZE');
  c.at(1).silent();
});
