/** Credits, requester side (IBTA 9.7.7.2): no message that needs a receive is sent beyond the advertised credits. */
import { describe, expect, test } from 'vitest';
import { ack, nak, type Packet, request, response } from '../../src/probe/packet/packets.js';
import { type Conversation, PING, pattern, type RcOptions, rc, TARGET_VA } from '../kit/conversation.js';
import type { SendRequest } from '../kit/rig.js';

const NO_LIMIT = 31;
/** ACK timeout 8: 1048.576 us, after which a credit update counts as lost. */
const TIMEOUT = 8;
const WAIT = 1049;
/** Packets in flight after the first is acknowledged. */
const WINDOW = 33;

const told = (psn: number, msn: number, code: number): Packet => ack({ psn, msn, syndrome: code });
const sent = (psn: number): Packet => request.sendOnly({ psn, payload: PING, ackReq: true });
const ping = (wrId: number): SendRequest => ({ wrId, opcode: 'SEND', inline: PING });
const heeding = (options: RcOptions = {}): Promise<Conversation> =>
  rc({ flowControl: true, timeout: TIMEOUT, ...options });
const remote = { va: 0x5000n, rkey: 0x77 };

/** The peer has acknowledged the first message and advertised the credits of this code. */
async function knowing(code: number, options: RcOptions = {}): Promise<Conversation> {
  const c = await heeding(options);
  return c
    .post(0, ping(1))
    .out(sent(1000))
    .in(1, told(1000, 1, code))
    .wc({ wrId: 1 });
}

describe('the first message', () => {
  test('leaves at once, and the second waits for the credits of its ACK', async () => {
    const c = await heeding();
    c.post(0, ping(1), ping(2), ping(3))
      .out(sent(1000))
      .counts({ rc_crwaits: 1 })
      .in(1, told(1000, 1, 2))
      .out(sent(1001), sent(1002))
      .wc({ wrId: 1 })
      .in(2, told(1002, 3, 0))
      .wc({ wrId: 2 }, { wrId: 3 });
  });

  test('is followed by others if the peer has no credits', async () => {
    const c = await knowing(NO_LIMIT);
    c.post(2, ping(2), ping(3), ping(4)).out(sent(1001), sent(1002), sent(1003));
    expect(c.qp.attribute('CREDITS')).toBe(0xffffffff);
    c.in(3, told(1003, 4, NO_LIMIT))
      .wc({ wrId: 2 }, { wrId: 3 }, { wrId: 4 })
      .counts({ rc_crwaits: 0 });
  });

  test('of several packets sends one of them, with AckReq, to see whether there is room', async () => {
    const c = await heeding({ mtu: 256 });
    const message = c.buffer.bytes.slice(0, 700);
    c.post(0, { wrId: 1, opcode: 'SEND', pieces: [c.buffer.piece(0, 700)] })
      .out(request.sendFirst({ psn: 1000, payload: message.slice(0, 256), ackReq: true }))
      .in(1, told(1000, 0, 0))
      .out(
        request.sendMiddle({ psn: 1001, payload: message.slice(256, 512) }),
        request.sendLast({ psn: 1002, payload: message.slice(512), ackReq: true }),
      )
      .in(2, told(1002, 1, 0))
      .wc({ wrId: 1 });
  });

  test('that is a WRITE_WITH_IMM leaves whole: its last packet needs the receive', async () => {
    const c = await heeding({ mtu: 256 });
    const message = c.buffer.bytes.slice(0, 300);
    c.post(
      0,
      { wrId: 1, opcode: 'RDMA_WRITE_WITH_IMM', pieces: [c.buffer.piece(0, 300)], remote, imm: 0x01020304 },
      ping(2),
    )
      .out(
        request.writeFirst({ psn: 1000, ...remote, length: 300, payload: message.slice(0, 256), ackReq: true }),
        request.writeLastImm({ psn: 1001, payload: message.slice(256), imm: 0x04030201, ackReq: true }),
      )
      .in(1, told(1001, 1, 1))
      .out(sent(1002))
      .wc({ wrId: 1 })
      .in(2, told(1002, 2, 0))
      .wc({ wrId: 2 });
  });

  test('is refused: it alone is sent again after the delay, and the rest when there is room', async () => {
    const c = await heeding();
    c.post(0, ping(1), ping(2))
      .out(sent(1000))
      .in(1, nak.rnr({ psn: 1000, timer: 1 }))
      // a credit update does not shorten the delay
      .in(2, told(999, 0, 2))
      .silent()
      .at(11)
      .out(sent(1000), sent(1001))
      .in(12, told(1001, 2, 0))
      .wc({ wrId: 1 }, { wrId: 2 });
  });
});

describe('credits', () => {
  test.each([
    [0, 0],
    [1, 1],
    [2, 2],
    [3, 3],
    [4, 4],
    [5, 6],
    [6, 8],
    [7, 12],
    [8, 16],
    [9, 24],
    [10, 32],
    [11, 48],
  ])('of code %i let as many messages go as IBTA table 45 says, %i', async (code, credits) => {
    const c = await knowing(code, { sendWr: 64 });
    for (let n = 0; n < 60; n++) c.qp.send({ ...ping(2), signaled: false });
    expect(c.at(2).take().length).toBe(Math.min(credits, WINDOW));
    if (credits > WINDOW) {
      // an ACK with fewer credits takes nothing back
      c.in(3, told(1000 + WINDOW, 1 + WINDOW, 0)).wc(...Array.from({ length: WINDOW }, () => ({ wrId: 2 })));
      expect(c.take().length).toBe(credits - WINDOW);
    }
    expect(c.qp.attribute('WAITS_FOR_CREDITS')).toBe(1);
    c.qp.modify({ STATE: 6 });
    c.qp.poll();
  });

  // for codes of more than a few messages the test checks the limit that the card keeps: 12 to 30
  test.each(Array.from({ length: 19 }, (_, i) => [i + 12, (i & 1 ? 3 : 2) << (5 + (i >> 1))]))(
    'code %i stands for %i',
    async (code, credits) => {
      const c = await knowing(code);
      expect(c.qp.attribute('CREDITS')).toBe(credits);
    },
  );

  test('do not hold a message that needs no receive, which moves the limit on by one', async () => {
    const c = await knowing(0);
    const word = c.buffer.piece(0, 8);
    c.post(
      2,
      { wrId: 2, opcode: 'RDMA_WRITE', inline: PING, remote },
      { wrId: 3, opcode: 'RDMA_READ', pieces: [word], remote },
      { wrId: 4, opcode: 'ATOMIC_FETCH_AND_ADD', pieces: [word], remote, compareAdd: 1n },
      ping(5),
    )
      .out(
        request.writeOnly({ psn: 1001, ...remote, payload: PING, ackReq: true }),
        request.read({ psn: 1002, ...remote, length: 8, ackReq: true }),
        request.fetchAdd({ psn: 1003, ...remote, add: 1n, ackReq: true }),
      )
      .in(3, told(1001, 2, 1))
      // MSN 2 and one credit are less than the limit after the READ and the atomic
      .silent()
      .wc({ wrId: 2 })
      .in(4, response.readOnly({ psn: 1002, msn: 3, syndrome: 1, payload: pattern(8) }))
      .silent()
      .wc({ wrId: 3 })
      .in(5, response.atomicAck({ psn: 1003, msn: 4, syndrome: 1, original: 5n }))
      .out(sent(1004))
      .wc({ wrId: 4 })
      .in(6, told(1004, 5, 0))
      .wc({ wrId: 5 });
  });

  test('count a READ in parts as so many messages', async () => {
    const c = await knowing(1, { mtu: 256 });
    c.post(2, { wrId: 2, opcode: 'RDMA_READ', pieces: [c.buffer.piece(0, 40 * 256)], remote }, ping(3)).out(
      request.read({ psn: 1001, ...remote, length: 33 * 256, ackReq: true }),
    );
    expect(c.qp.attribute('CREDITS')).toBe(1);
    const answer = (psn: number, packets: number, msn: number) =>
      response.read({ psn, msn, syndrome: 1, mtu: 256, payload: pattern(256 * packets) });
    c.in(3, ...answer(1001, 33, 2)).out(
      request.read({ psn: 1034, va: remote.va + 33n * 256n, rkey: remote.rkey, length: 7 * 256, ackReq: true }),
      sent(1041),
    );
    // the responder counts the part as a message; its old credits are advertised again, and none is lost
    expect(c.qp.attribute('CREDITS')).toBe(0);
    c.in(4, ...answer(1034, 7, 3))
      .wc({ wrId: 2 })
      .in(5, told(1041, 4, 0))
      .wc({ wrId: 3 });
  });

  test('of a message that waits hold all that is posted behind it', async () => {
    const c = await knowing(0);
    c.post(2, ping(2), { wrId: 3, opcode: 'RDMA_WRITE', inline: PING, remote })
      .silent()
      .in(3, told(1000, 1, 1))
      .out(sent(1001), request.writeOnly({ psn: 1002, ...remote, payload: PING, ackReq: true }))
      .in(4, told(1002, 3, 0))
      .wc({ wrId: 2 }, { wrId: 3 });
  });

  test('of a late ACK give nothing new, and take nothing back', async () => {
    const c = await knowing(3);
    c.post(2, ping(2), ping(3))
      .out(sent(1001), sent(1002))
      .in(3, told(1002, 3, 4), told(1001, 2, 1))
      .wc({ wrId: 2 }, { wrId: 3 });
    expect(c.qp.attribute('CREDITS')).toBe(4);
    c.counts({ drop_ghost_response: 1 });
  });

  test('with an MSN of messages that were never sent are ignored', async () => {
    const c = await knowing(0);
    c.in(2, told(1000, 2, 5))
      .post(3, ping(2))
      .silent();
    expect(c.qp.attribute('CREDITS')).toBe(0);
    c.qp.modify({ STATE: 6 });
    c.wc({ wrId: 2, status: 'WR_FLUSH_ERR' });
  });

  test('may change to no limit, and back', async () => {
    const c = await knowing(0);
    c.post(2, ping(2), ping(3))
      .silent()
      .in(3, told(1000, 1, NO_LIMIT))
      .out(sent(1001), sent(1002))
      .in(4, told(1002, 3, 0))
      .wc({ wrId: 2 }, { wrId: 3 })
      .post(5, ping(4))
      .silent()
      .in(6, told(1002, 3, 1))
      .out(sent(1003))
      .in(7, told(1003, 4, 0))
      .wc({ wrId: 4 });
  });

  test('are ignored when flow control is off', async () => {
    const c = await rc();
    c.post(0, ping(1), ping(2))
      .out(sent(1000), sent(1001))
      .in(1, told(1001, 2, 0))
      .wc({ wrId: 1 }, { wrId: 2 })
      .post(2, ping(3))
      .out(sent(1002))
      .in(3, told(1002, 3, 0), told(1002, 3, 5))
      .wc({ wrId: 3 })
      .counts({ drop_ghost_response: 1, rc_crwaits: 0 });
  });

  test('end with switching them off: the message that waits leaves', async () => {
    const c = await knowing(0);
    c.post(2, ping(2))
      .silent()
      .at(3, () => c.qp.flowControl(false))
      .out(sent(1001))
      .in(4, told(1001, 2, 0))
      .wc({ wrId: 2 });
  });

  test('are for reliable connections only', async () => {
    const c = await rc();
    expect(c.rig.qp({ type: 'UD' }).flowControl(true)).toBe('EINVAL');
    expect(c.rig.qp({ type: 'UC' }).flowControl(false)).toBe('EINVAL');
  });

  test('are forgotten by the next connection', async () => {
    const c = await knowing(0);
    expect(c.qp.modify({ STATE: 0 })).toBe('OK');
    c.qp.connect({ destQpn: c.there.srcQp, sqPsn: 2000, rqPsn: 500, timeout: TIMEOUT });
    c.post(2, ping(2), ping(3))
      .out(sent(2000))
      .in(3, told(2000, 1, 1))
      .out(sent(2001))
      .wc({ wrId: 2 })
      .in(4, told(2001, 2, 0))
      .wc({ wrId: 3 });
  });
});

describe('an update of credits that does not come', () => {
  test('lets one more message go after an ACK timeout', async () => {
    const c = await knowing(0);
    c.post(2, ping(2), ping(3))
      .silent()
      .at(1 + WAIT)
      .silent()
      .at(2 + WAIT)
      .out(sent(1001))
      .in(3 + WAIT, told(1001, 2, 0))
      .silent()
      .wc({ wrId: 2 })
      .at(2 + 2 * WAIT)
      .silent()
      .at(3 + 2 * WAIT)
      .out(sent(1002))
      .in(4 + 2 * WAIT, told(1002, 3, 0))
      .wc({ wrId: 3 })
      .counts({ rc_crwaits: 2, local_ack_timeout_err: 0 });
  });

  test('lets one go at once with timeout 0, which waits for no ACK', async () => {
    const c = await knowing(0, { timeout: 0 });
    c.post(2, ping(2), ping(3))
      .out(sent(1001))
      .in(3, told(1001, 2, 0))
      .out(sent(1002))
      .wc({ wrId: 2 })
      .in(4, told(1002, 3, 0))
      .wc({ wrId: 3 });
  });

  test('lets none go while a response is due, which will bring credits', async () => {
    const c = await knowing(0);
    c.post(2, { wrId: 2, opcode: 'RDMA_WRITE', inline: PING, remote }, ping(3)).out(
      request.writeOnly({ psn: 1001, ...remote, payload: PING, ackReq: true }),
    );
    // the ACK timer runs instead
    c.at(2 + WAIT)
      .out(request.writeOnly({ psn: 1001, ...remote, payload: PING, ackReq: true }))
      .in(3 + WAIT, told(1001, 2, 0))
      .silent()
      .wc({ wrId: 2 })
      .at(2 + 2 * WAIT)
      .silent()
      .at(3 + 2 * WAIT)
      .out(sent(1002))
      .in(4 + 2 * WAIT, told(1002, 3, 0))
      .wc({ wrId: 3 });
  });

  test('counts when it comes late, and no message exceeds it', async () => {
    const c = await knowing(0);
    c.post(2, ping(2), ping(3), ping(4))
      .in(900, told(1000, 1, 1))
      .out(sent(1001))
      .in(901, told(1001, 2, 1))
      .out(sent(1002))
      .wc({ wrId: 2 })
      .in(902, told(1002, 3, 0))
      .wc({ wrId: 3 })
      .at(901 + WAIT)
      .silent()
      .in(903 + WAIT, told(1002, 3, 1))
      .out(sent(1003))
      .in(904 + WAIT, told(1003, 4, 0))
      .wc({ wrId: 4 });
  });

  test('after a message too many was lost: the ACK timer repeats that alone', async () => {
    const c = await knowing(0);
    c.post(2, ping(2), ping(3))
      .at(2 + WAIT)
      .out(sent(1001))
      .at(3 + 2 * WAIT)
      .out(sent(1001))
      .in(4 + 2 * WAIT, told(1001, 2, 1))
      .out(sent(1002))
      .wc({ wrId: 2 })
      .in(5 + 2 * WAIT, told(1002, 3, 0))
      .wc({ wrId: 3 });
  });
});

describe('credits beside other reasons to wait', () => {
  test('SQD starts nothing, credits or not', async () => {
    const c = await knowing(0);
    c.post(2, ping(2))
      .at(3, () => c.qp.modify({ STATE: 4 }))
      .in(4, told(1000, 1, 3))
      .silent()
      .at(5 + WAIT)
      .silent()
      .at(6 + WAIT, () => c.qp.modify({ STATE: 3 }))
      .out(sent(1001))
      .in(7 + WAIT, told(1001, 2, 3))
      .wc({ wrId: 2 });
  });

  test('a message with a local error fails at once, without waiting for credits', async () => {
    const c = await knowing(0);
    c.post(2, { wrId: 2, opcode: 'SEND', pieces: [{ ptr: 4096, length: 4, lkey: 7 }] })
      .wc({ wrId: 2, status: 'LOC_PROT_ERR' })
      .state('ERR');
  });

  test('responses to the peer leave meanwhile', async () => {
    const c = await knowing(0, { receives: 2 });
    c.post(2, ping(2))
      .in(3, request.writeOnly({ psn: 100, va: TARGET_VA, rkey: c.target.rkey, payload: PING, ackReq: true }))
      .out(told(100, 1, 2))
      .in(4, told(1000, 1, 1))
      .out(sent(1001))
      .in(5, told(1001, 2, 0))
      .wc({ wrId: 2 });
  });
});
