/** Credits, responder side (IBTA 9.7.7.2): each ACK advertises the number of messages for which there are receives. */
import { describe, expect, test } from 'vitest';
import { ack, nak, type Packet, request, response } from '../../src/probe/packet/packets.js';
import { type Conversation, PING, pattern, type RcOptions, rc, send, TARGET_VA } from '../kit/conversation.js';
import { RigSrq } from '../kit/datagrams.js';
import { Rig } from '../kit/rig.js';

const NO_LIMIT = 31;
const told = (psn: number, msn: number, code: number): Packet => ack({ psn, msn, syndrome: code });
const offering = (options: RcOptions = {}): Promise<Conversation> => rc({ flowControl: true, ...options });
const read = (c: Conversation, psn: number, length: number): Packet =>
  request.read({ psn, va: TARGET_VA, rkey: c.target.rkey, length });
const write = (c: Conversation, psn: number): Packet =>
  request.writeOnly({ psn, va: TARGET_VA, rkey: c.target.rkey, payload: PING, ackReq: true });

describe('the credits of an ACK', () => {
  test('are off at first: no limit, whatever is posted', async () => {
    const c = await rc({ receives: 3 });
    c.in(0, send({ psn: 100 }))
      .out(told(100, 1, NO_LIMIT))
      .wc({ wrId: 1 });
  });

  // IBTA table 45: | receives | code |, every code once, and counts between two codes
  test.each([
    [0, 0],
    [1, 1],
    [2, 2],
    [3, 3],
    [4, 4],
    [5, 4],
    [6, 5],
    [7, 5],
    [8, 6],
    [11, 6],
    [12, 7],
    [15, 7],
    [16, 8],
    [24, 9],
    [32, 10],
    [48, 11],
    [63, 11],
    [64, 12],
    [96, 13],
    [128, 14],
    [192, 15],
    [256, 16],
    [384, 17],
    [512, 18],
    [768, 19],
    [1024, 20],
    [1535, 20],
    [1536, 21],
    [2048, 22],
    [3072, 23],
    [4096, 24],
    [6144, 25],
    [8192, 26],
    [12288, 27],
    [16384, 28],
    [24576, 29],
    [32767, 29],
    [32768, 30],
  ])('for %i receives are the largest code that is not more, %i', async (receives, code) => {
    const c = await offering({ recvWr: 32768, sge: 1 });
    for (let n = 0; n < receives; n++) c.recv(n, 0, 64);
    c.in(0, write(c, 100)).out(told(100, 1, code));
  });

  test('are the receives that are left, in every ACK', async () => {
    const c = await offering({ receives: 3 });
    c.in(0, send({ psn: 100 }))
      .out(told(100, 1, 2))
      .wc({ wrId: 1 })
      .in(1, send({ psn: 101 }))
      .out(told(101, 2, 1))
      .wc({ wrId: 2 })
      .in(2, send({ psn: 102 }))
      .out(told(102, 3, 0))
      .wc({ wrId: 3 });
  });

  test('are the present ones in a repeated ACK', async () => {
    const c = await offering({ receives: 2 });
    c.in(0, send({ psn: 100 }))
      .out(told(100, 1, 1))
      .wc({ wrId: 1 })
      .recv(3, 0, 64)
      .recv(4, 0, 64)
      .in(1, send({ psn: 100 }))
      .out(told(100, 1, 3));
  });

  test('are in the first and last packets of responses to READs and atomics', async () => {
    const c = await offering({ receives: 5 });
    const data = c.target.bytes.slice(0, 2500);
    const original = new DataView(c.target.bytes.buffer, c.target.bytes.byteOffset).getBigUint64(0, true);
    c.in(0, read(c, 100, 2500))
      .out(
        response.readFirst({ psn: 100, msn: 1, syndrome: 4, payload: data.slice(0, 1024) }),
        response.readMiddle({ psn: 101, payload: data.slice(1024, 2048) }),
        response.readLast({ psn: 102, msn: 1, syndrome: 4, payload: data.slice(2048) }),
      )
      .in(1, read(c, 103, 8))
      .out(response.readOnly({ psn: 103, msn: 2, syndrome: 4, payload: data.slice(0, 8) }))
      .in(2, request.fetchAdd({ psn: 104, va: TARGET_VA, rkey: c.target.rkey, add: 1n }))
      .out(response.atomicAck({ psn: 104, msn: 3, syndrome: 4, original }));
  });

  test('count the receive of the message that is arriving: it is for the message after MSN', async () => {
    const c = await offering({ receives: 2 });
    c.in(0, request.sendFirst({ psn: 100, payload: pattern(1024), ackReq: true }))
      .out(told(100, 0, 2))
      .in(1, request.sendLast({ psn: 101, payload: PING, ackReq: true }))
      .out(told(101, 1, 1))
      .wc({ wrId: 1 });
  });

  test('of a shared receive queue are no limit', async () => {
    const rig = await Rig.create();
    const srq = new RigSrq(rig);
    const c = await offering({ rig, srq: srq.handle });
    for (const wrId of [1, 2]) srq.recv(wrId, [c.buffer.piece(0, 64)]);
    c.in(0, send({ psn: 100 }))
      .out(told(100, 1, NO_LIMIT))
      .wc({ wrId: 1 })
      .in(1, send({ psn: 101 }))
      .out(told(101, 2, NO_LIMIT))
      .wc({ wrId: 2 });
    srq.recv(3, [c.buffer.piece(0, 64)]);
    c.at(2).silent();
  });

  test('are not in a NAK, which has no room for them', async () => {
    const c = await offering();
    c.in(0, send({ psn: 100 }))
      .out(nak.rnr({ psn: 100, timer: 12 }))
      .in(1, send({ psn: 105 }))
      .silent();
  });

  test('are no limit from the next ACK on when switched off', async () => {
    const c = await offering({ receives: 2 });
    c.in(0, send({ psn: 100 }))
      .out(told(100, 1, 1))
      .wc({ wrId: 1 })
      .at(1, () => c.qp.flowControl(false))
      .in(2, send({ psn: 101 }))
      .out(told(101, 2, NO_LIMIT))
      .wc({ wrId: 2 })
      .recv(3, 0, 64)
      .at(3)
      .silent();
  });
});

describe('an update of credits', () => {
  /** The peer knows that no receive is left. */
  async function dry(options: RcOptions = {}): Promise<Conversation> {
    const c = await offering({ receives: 1, ...options });
    return c
      .in(0, send({ psn: 100 }))
      .out(told(100, 1, 0))
      .wc({ wrId: 1 });
  }

  test('follows a receive that is posted after 0 credits: the newest ACK is sent again', async () => {
    const c = await dry();
    c.recv(2, 0, 64)
      .at(1)
      .out(told(100, 1, 1))
      .at(2)
      .silent();
  });

  test('covers several receives that are posted together', async () => {
    const c = await dry();
    for (let wrId = 2; wrId < 10; wrId++) c.recv(wrId, 0, 64);
    c.at(1)
      .out(told(100, 1, 6))
      .recv(10, 0, 64)
      .at(2)
      .silent();
  });

  test('is not sent while the peer has a credit that it has not used', async () => {
    const c = await offering({ receives: 2 });
    c.in(0, send({ psn: 100 }))
      .out(told(100, 1, 1))
      .wc({ wrId: 1 })
      .recv(3, 0, 64)
      .at(1)
      .silent()
      // it uses its last credit and requests no ACK
      .in(2, send({ psn: 101, ackReq: false }))
      .out(told(101, 2, 1))
      .wc({ wrId: 2 });
  });

  test('needs the doorbell of posted receives only while the peer may be waiting', async () => {
    const c = await offering({ receives: 2 });
    const rings = (wrId: number) => {
      c.recv(wrId, 0, 64);
      return c.rig.x.isDoorbellRung();
    };
    expect(rings(3)).toBe(false);
    c.in(0, send({ psn: 100 }), send({ psn: 101 }), send({ psn: 102 }))
      .out(told(102, 3, 0))
      .wc({ wrId: 1 }, { wrId: 2 }, { wrId: 3 });
    expect(rings(4)).toBe(true);
    c.at(1).out(told(102, 3, 1));
    expect(rings(5)).toBe(false);
    // flow control is off: no credit update
    c.in(2, send({ psn: 103 }), send({ psn: 104 }))
      .out(told(104, 5, 0))
      .wc({ wrId: 4 }, { wrId: 5 })
      .at(3, () => c.qp.flowControl(false));
    expect(rings(6)).toBe(false);
  });

  test('is not sent before the first ACK', async () => {
    const c = await offering();
    c.recv(1, 0, 64).at(1).silent();
    c.in(2, send({ psn: 100, ackReq: false })).wc({ wrId: 1 });
    c.recv(2, 0, 64).at(3).silent();
  });

  test('is not due for a message that needs no receive', async () => {
    const c = await offering({ receives: 2 });
    c.in(0, send({ psn: 100 }))
      .out(told(100, 1, 1))
      .wc({ wrId: 1 })
      .in(1, request.writeOnly({ psn: 101, va: TARGET_VA, rkey: c.target.rkey, payload: PING }))
      .silent()
      .recv(3, 0, 64)
      .at(2)
      .silent();
  });

  test('is due for the last packet of a WRITE_WITH_IMM', async () => {
    const c = await offering({ receives: 2 });
    const at = { va: TARGET_VA, rkey: c.target.rkey };
    c.in(0, send({ psn: 100 }))
      .out(told(100, 1, 1))
      .wc({ wrId: 1 })
      .in(1, request.writeFirst({ psn: 101, ...at, length: 1028, payload: pattern(1024) }))
      .recv(3, 0, 64)
      .at(2)
      .silent()
      .in(3, request.writeLastImm({ psn: 102, payload: PING, imm: 1 }))
      .out(told(102, 2, 1))
      .wc({ wrId: 2 });
  });

  test('follows the responses that are due', async () => {
    const c = await offering({ receives: 1 });
    const data = c.target.bytes.slice(0, 8);
    c.in(0, send({ psn: 100, ackReq: true }))
      .out(told(100, 1, 0))
      .wc({ wrId: 1 });
    c.recv(2, 0, 64)
      .in(1, read(c, 101, 8))
      .out(response.readOnly({ psn: 101, msn: 2, syndrome: 1, payload: data }))
      .at(2)
      .silent();
  });

  test('follows an RNR NAK, which has no credits', async () => {
    const c = await dry();
    c.in(1, send({ psn: 101 }))
      .out(nak.rnr({ psn: 101, msn: 1, timer: 12 }))
      .recv(2, 0, 64)
      .at(2)
      .out(told(100, 1, 1))
      .in(700, send({ psn: 101 }))
      .out(told(101, 2, 0))
      .wc({ wrId: 2 });
  });

  test('is not sent by a queue pair in ERR', async () => {
    const c = await dry();
    c.at(1, () => c.qp.modify({ STATE: 6 }))
      .recv(2, 0, 64)
      .at(2)
      .silent()
      .wc({ wrId: 2, status: 'WR_FLUSH_ERR' });
  });

  test('is not sent by a queue pair that is connected again', async () => {
    const c = await dry();
    c.at(1, () => c.qp.modify({ STATE: 0 }));
    c.qp.connect({ destQpn: c.there.srcQp, sqPsn: 1000, rqPsn: 500 });
    c.recv(2, 0, 64)
      .recv(3, 0, 64)
      .at(2)
      .silent()
      .in(3, send({ psn: 500 }))
      .out(told(500, 1, 1))
      .wc({ wrId: 2 });
  });
});
