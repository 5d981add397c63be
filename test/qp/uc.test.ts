/**
 * Unreliable connections: a message arrives whole or not at all, and is never acknowledged. Numbers as in send.test.ts:
 * our PSNs start at 1000, the peer's at 100.
 */
import { describe, expect, test } from 'vitest';
import { type Packet, request, uc } from '../../src/probe/packet/packets.js';
import { type Conversation, PING, pattern, RECEIVE_BYTES, TARGET_VA, unreliable } from '../kit/conversation.js';

const send = (psn: number, payload = PING) => uc(request.sendOnly({ psn, payload }));
const message = pattern(2500);
/** Three packets from `psn` on. */
const long = (psn: number): [Packet, Packet, Packet] =>
  request.send({ psn, payload: message, mtu: 1024, ackReq: false }).map(uc) as [Packet, Packet, Packet];
const remote = (c: Conversation) => ({ va: TARGET_VA, rkey: c.target.rkey });

describe('a UC responder', () => {
  test('completes a SEND and sends no ACK, even if requested', async () => {
    const c = await unreliable({ receives: 2 });
    c.in(0, uc(request.sendOnly({ psn: 100, payload: PING, ackReq: true })))
      .silent()
      .wc({ wrId: 1, opcode: 'RECV', byteLen: 4, flags: 0 })
      .holds(c.buffer, 0, PING)
      .in(1, uc(request.sendOnlyImm({ psn: 101, payload: PING, imm: 0x11223344 })))
      .silent()
      .wc({ wrId: 2, byteLen: 4, flags: 2, imm: 0x44332211 });
  });

  test('joins the packets of a message', async () => {
    const c = await unreliable({ receives: 2 });
    c.in(0, ...long(100))
      .wc({ wrId: 1, byteLen: 2500 })
      .holds(c.buffer, 0, message);
    const [first, middle, last] = request.send({ psn: 103, payload: message, mtu: 1024, imm: 1 }).map(uc);
    c.in(1, first as Packet)
      .wc()
      .in(2, middle as Packet, last as Packet)
      .wc({ wrId: 2, byteLen: 2500, flags: 2, imm: 0x01000000 });
  });

  test('does not drop a message behind a gap', async () => {
    const c = await unreliable({ receives: 2 });
    c.in(0, send(105))
      .silent()
      .wc({ wrId: 1 })
      .in(1, send(106))
      .wc({ wrId: 2 })
      .counts({ drop_unreliable_sequence: 0, rcvd_pkts: 2 });
  });

  test('takes a message that begins with an older PSN, and counts on from there', async () => {
    const c = await unreliable({ receives: 3 });
    c.in(0, send(100))
      .wc({ wrId: 1 })
      .in(1, send(50))
      .wc({ wrId: 2 })
      .in(2, ...long(51))
      .wc({ wrId: 3, byteLen: 2500 });
  });

  test('drops the rest of a message with a gap, and the next message gets its receive', async () => {
    const c = await unreliable({ receives: 1 });
    const [first, , last] = long(100);
    c.in(0, first, last)
      .silent()
      .wc()
      .counts({ drop_unreliable_sequence: 1 })
      .in(
        1,
        uc(request.sendMiddle({ psn: 103, payload: pattern(1024) })),
        uc(request.sendLast({ psn: 104, payload: PING })),
      )
      .wc()
      .counts({ drop_unreliable_sequence: 3 })
      .in(2, send(105))
      .wc({ wrId: 1, byteLen: 4 })
      .holds(c.buffer, 0, PING)
      .state('RTS');
  });

  test('drops a message without its end when the next one begins', async () => {
    const c = await unreliable({ receives: 1 });
    const [first, middle] = long(100);
    c.in(0, first, middle, send(103)).wc({ wrId: 1, byteLen: 4 }).counts({ drop_unreliable_sequence: 0 });
  });

  test('drops an unfinished message when a FIRST follows', async () => {
    const c = await unreliable({ receives: 1 });
    c.in(0, long(100)[0], ...long(101))
      .wc({ wrId: 1, byteLen: 2500 })
      .holds(c.buffer, 0, message);
  });

  test('drops a message with a packet that comes twice', async () => {
    const c = await unreliable({ receives: 1 });
    const [first, middle, last] = long(100);
    c.in(0, first, middle, middle, last)
      .wc()
      .counts({ drop_unreliable_sequence: 2 })
      .in(1, ...long(103))
      .wc({ wrId: 1 });
  });

  test('drops the middle of a message without a beginning', async () => {
    const c = await unreliable({ receives: 1 });
    c.in(
      0,
      uc(request.sendMiddle({ psn: 100, payload: pattern(1024) })),
      uc(request.sendLast({ psn: 101, payload: PING })),
    )
      .wc()
      .counts({ drop_unreliable_sequence: 2 });
  });

  test('does not take the end of a WRITE for the end of a SEND', async () => {
    const c = await unreliable({ receives: 1 });
    c.in(
      0,
      long(100)[0],
      uc(request.writeLast({ psn: 101, payload: PING })),
      uc(request.sendLast({ psn: 102, payload: PING })),
    )
      .wc()
      .counts({ drop_unreliable_sequence: 2 });
  });

  test('takes a message across the wrap of the PSNs', async () => {
    const c = await unreliable({ receives: 1, rqPsn: 0xffffff });
    const [first, middle, last] = long(0xffffff);
    c.in(0, first, middle, last).wc({ wrId: 1, byteLen: 2500 });
  });

  test('places the data of an RDMA WRITE, which takes a receive with immediate data', async () => {
    const c = await unreliable({ receives: 1 });
    c.in(0, ...request.write({ psn: 100, payload: message, mtu: 1024, ...remote(c) }).map(uc))
      .silent()
      .wc()
      .holds(c.target, 0, message)
      .in(1, uc(request.writeOnlyImm({ psn: 103, payload: PING, imm: 1, ...remote(c) })))
      .wc({ wrId: 1, opcode: 'RECV_RDMA_WITH_IMM', byteLen: 4, imm: 0x01000000 })
      .holds(c.target, 0, PING);
  });

  test('keeps what a WRITE that broke off has placed, without a completion', async () => {
    const c = await unreliable({ receives: 1 });
    const [first, middle, last] = request
      .write({ psn: 100, payload: message, mtu: 1024, imm: 1, ...remote(c) })
      .map(uc);
    const before = c.target.bytes.slice(1024, 2500);
    c.in(0, first as Packet, last as Packet, middle as Packet)
      .wc()
      .holds(c.target, 0, message.slice(0, 1024))
      .holds(c.target, 1024, before);
  });

  test('gives the receive of a broken SEND to the WRITE behind it', async () => {
    const c = await unreliable({ receives: 2 });
    c.in(0, long(100)[0], uc(request.writeOnlyImm({ psn: 101, payload: PING, imm: 1, ...remote(c) })))
      .wc({ wrId: 1, opcode: 'RECV_RDMA_WITH_IMM', byteLen: 4 })
      .in(1, send(102))
      .wc({ wrId: 2, opcode: 'RECV', byteLen: 4 });
  });

  test('gives the receive of a message that was too long to the next', async () => {
    const c = await unreliable();
    c.recv(1, 0, 1000)
      .in(0, ...long(100))
      .silent()
      .wc()
      .counts({ drop_unreliable_refused: 1, drop_unreliable_sequence: 2 })
      .in(1, send(103))
      .wc({ wrId: 1, byteLen: 4 })
      .state('RTS');
  });

  test('loses a message without a receive as a whole, even if a receive comes in time for its end', async () => {
    const c = await unreliable();
    const [first, middle, last] = long(100);
    c.in(0, first, middle)
      .recv(1, 0, RECEIVE_BYTES)
      .in(1, last)
      .wc()
      .counts({ drop_unreliable_refused: 1, drop_unreliable_sequence: 2 })
      .in(2, ...long(103))
      .wc({ wrId: 1 });
  });

  test('loses immediate data without a receive, and keeps the data before it', async () => {
    const c = await unreliable();
    c.in(0, uc(request.writeOnlyImm({ psn: 100, payload: PING, imm: 1, ...remote(c) })))
      .wc()
      .state('RTS');
    c.in(1, uc(request.writeOnly({ psn: 101, payload: PING, ...remote(c) }))).holds(c.target, 0, PING);
  });

  test.each<[string, (c: Conversation) => Packet]>([
    ['a wrong key', (c) => request.writeOnly({ psn: 100, payload: PING, va: TARGET_VA, rkey: c.target.rkey ^ 1 })],
    [
      'an address outside',
      (c) => request.writeOnly({ psn: 100, payload: PING, va: TARGET_VA - 1n, rkey: c.target.rkey }),
    ],
    ['a RETH of another length', (c) => request.writeOnly({ psn: 100, payload: PING, length: 5, ...remote(c) })],
    ['more payload than the MTU', (c) => request.writeOnly({ psn: 100, payload: pattern(1028), ...remote(c) })],
    ['a FIRST below the MTU', (c) => request.writeFirst({ psn: 100, payload: PING, length: 2000, ...remote(c) })],
  ])('%s: drops it without a NAK, and stays in its state', async (_what, make) => {
    const c = await unreliable({ receives: 1 });
    const before = c.target.bytes.slice();
    c.in(0, uc(make(c)))
      .silent()
      .wc()
      .counts({ drop_unreliable_refused: 1 })
      .holds(c.target, 0, before)
      .in(1, send(101))
      .wc({ wrId: 1 })
      .state('RTS');
  });

  test('drops a WRITE without the right', async () => {
    const c = await unreliable({ receives: 1, access: 1 });
    c.in(0, uc(request.writeOnly({ psn: 100, payload: PING, ...remote(c) })))
      .silent()
      .counts({ drop_unreliable_refused: 1 })
      .events();
  });

  test.each<[string, Packet]>([
    ['READ', request.read({ psn: 100, va: TARGET_VA, rkey: 0, length: 4 })],
    ['FETCH ADD', request.fetchAdd({ psn: 100, va: TARGET_VA, rkey: 0, add: 1n })],
    ['SEND with invalidate', request.sendOnlyInvalidate({ psn: 100, invalidate: 1 })],
    [
      'an ACK',
      {
        ...request.sendOnly({ psn: 100 }),
        bth: { opcode: 0x11, psn: 100, ackReq: false, solicited: false },
        aeth: { syndrome: 0x1f, msn: 1 },
      },
    ],
  ])('%s does not exist for UC', async (_what, packet) => {
    const c = await unreliable({ receives: 1 });
    c.in(0, uc(packet)).silent().wc().cardCounts({ drop_opcode: 1 }).state('RTS');
  });

  test('drops packets of a reliable connection', async () => {
    const c = await unreliable({ receives: 1 });
    c.in(0, request.sendOnly({ psn: 100, ackReq: true }))
      .silent()
      .wc()
      .counts({ drop_qp_type: 1 });
  });

  test('fails for a receive over memory that is closed, which is a local error', async () => {
    const c = await unreliable({ receives: 2 });
    c.rig.x.mrDereg(c.buffer.mr);
    c.in(0, send(100))
      .silent()
      .wc({ wrId: 1, status: 'LOC_PROT_ERR' }, { wrId: 2, status: 'WR_FLUSH_ERR' })
      .state('ERR');
  });

  test('reports the first packet in RTR', async () => {
    const c = await unreliable({ receives: 2, until: 'RTR' });
    c.in(0, send(100), send(101)).wc({ wrId: 1 }, { wrId: 2 }).events('COMM_EST');
  });
});

describe('a UC requester', () => {
  test('completes a message when its last packet has left, and requests no ACK', async () => {
    const c = await unreliable();
    c.post(0, { wrId: 7, opcode: 'SEND', pieces: [c.buffer.piece(0, 5)] })
      .out(send(1000, c.buffer.bytes.slice(0, 5)))
      .wc({ wrId: 7, opcode: 'SEND', byteLen: 5 });
  });

  test('splits messages as RC does, with its own opcodes', async () => {
    const c = await unreliable();
    const payload = c.buffer.bytes.slice(0, 2500);
    const pieces = [c.buffer.piece(0, 2500)];
    const at = { va: 0x5000n, rkey: 0x1234 };
    const cut = { payload, mtu: 1024, ackReq: false };
    c.post(
      0,
      { opcode: 'SEND', pieces, solicited: true },
      { opcode: 'SEND_WITH_IMM', pieces, imm: 0x01000000 },
      { opcode: 'RDMA_WRITE', pieces, remote: at },
      { opcode: 'RDMA_WRITE_WITH_IMM', pieces, remote: at, imm: 0x02000000 },
    )
      .out(
        ...[
          ...request.send({ psn: 1000, ...cut, solicited: true }),
          ...request.send({ psn: 1003, ...cut, imm: 1 }),
          ...request.write({ psn: 1006, ...cut, ...at }),
          ...request.write({ psn: 1009, ...cut, ...at, imm: 2 }),
        ].map(uc),
      )
      .wc({ opcode: 'SEND' }, { opcode: 'SEND' }, { opcode: 'RDMA_WRITE' }, { opcode: 'RDMA_WRITE' });
  });

  test('sends all packets of a message at once', async () => {
    const c = await unreliable({ mtu: 256 });
    c.post(0, { opcode: 'SEND', pieces: [c.buffer.piece(0, 60000)] });
    expect(c.take()).toHaveLength(235);
    c.wc({ byteLen: 60000 }).at(10_000_000).silent();
  });

  test.each(['RDMA_READ', 'ATOMIC_FETCH_AND_ADD', 'ATOMIC_CMP_AND_SWP', 'SEND_WITH_INV'])(
    'refuses %s',
    async (opcode) => {
      const c = await unreliable();
      expect(c.qp.send({ opcode, pieces: [c.buffer.piece(0, 8)], remote: { va: 0, rkey: 0 } })).toBe('EOPNOTSUPP');
    },
  );

  test('with a local error is in SQE, where sends are flushed and receives go on, and can leave it', async () => {
    const c = await unreliable({ receives: 1 });
    const bad = { ptr: c.buffer.ptr, length: 4, lkey: c.buffer.lkey ^ 1 };
    const good = [c.buffer.piece(0, 4)];
    c.post(
      0,
      { wrId: 1, opcode: 'SEND', pieces: good },
      { wrId: 2, opcode: 'SEND', pieces: [bad] },
      { wrId: 3, opcode: 'SEND' },
    )
      .out(send(1000, c.buffer.bytes.slice(0, 4)))
      .wc({ wrId: 1 }, { wrId: 2, status: 'LOC_PROT_ERR' }, { wrId: 3, status: 'WR_FLUSH_ERR' })
      .state('SQE')
      .post(1, { wrId: 4, opcode: 'SEND', pieces: good })
      .wc({ wrId: 4, status: 'WR_FLUSH_ERR' })
      .in(2, send(100))
      .wc({ wrId: 1, opcode: 'RECV' });
    expect(c.qp.modify({ STATE: 3, CUR_STATE: 5 })).toBe('OK');
    c.post(3, { wrId: 5, opcode: 'SEND', pieces: good })
      .out(send(1001, c.buffer.bytes.slice(0, 4)))
      .wc({ wrId: 5 });
  });

  test('leaves no hole in the PSNs for a message that fails', async () => {
    const c = await unreliable({ mtu: 256, sendWr: 4 });
    const other = c.rig.region(4096);
    c.post(0, { wrId: 1, opcode: 'SEND', pieces: [c.buffer.piece(0, 256), other.piece(0, 4096)] });
    c.take();
    c.wc({ wrId: 1 });
    // the card may send one packet, then the region is deregistered
    expect(c.qp.send({ wrId: 2, opcode: 'SEND', pieces: [c.buffer.piece(0, 256), other.piece(0, 4096)] })).toBe('OK');
    expect(c.rig.out(1000, 1)).toHaveLength(1);
    c.rig.x.mrDereg(other.mr);
    c.at(2).silent().wc({ wrId: 2, status: 'LOC_PROT_ERR' }).state('SQE');
    expect(c.qp.modify({ STATE: 3 })).toBe('OK');
    c.post(3, { wrId: 3, opcode: 'SEND', pieces: [c.buffer.piece(0, 4)] })
      .out(send(1018, c.buffer.bytes.slice(0, 4)))
      .wc({ wrId: 3 });
  });

  test('finishes the message under way in SQD, and the program is told', async () => {
    const c = await unreliable({ mtu: 256 });
    const pieces = [c.buffer.piece(0, 1000)];
    for (const wrId of [1, 2]) expect(c.qp.send({ wrId, opcode: 'SEND', pieces })).toBe('OK');
    expect(c.rig.out(0, 2)).toHaveLength(2);
    expect(c.qp.modify({ STATE: 4, EN_SQD_ASYNC_NOTIFY: 1 })).toBe('OK');
    c.events();
    expect(c.rig.out(1000)).toHaveLength(2);
    c.events('SQ_DRAINED').wc({ wrId: 1 }).state('SQD').at(2).silent();
    expect(c.qp.modify({ STATE: 3 })).toBe('OK');
    c.at(3);
    expect(c.take()).toHaveLength(4);
    c.wc({ wrId: 2 });
  });

  test('reports SQD at once when it is idle, and ERR flushes what waits', async () => {
    const c = await unreliable();
    expect(c.qp.modify({ STATE: 4, EN_SQD_ASYNC_NOTIFY: 1 })).toBe('OK');
    c.events('SQ_DRAINED').post(0, { wrId: 1, opcode: 'SEND' }).silent().wc();
    expect(c.qp.modify({ STATE: 6 })).toBe('OK');
    c.wc({ wrId: 1, status: 'WR_FLUSH_ERR' });
  });
});
