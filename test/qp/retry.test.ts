/** The local ACK timer, and the retry counter (IBTA 9.7.6.1.3, 9.9.2.1). */
import { describe, expect, test } from 'vitest';
import { ack, nak, type Packet, request, response } from '../../src/probe/packet/packets.js';
import { type Conversation, PING, rc } from '../kit/conversation.js';
import { measured, START } from './measured-rtt.js';

const sent = (psn: number): Packet => request.sendOnly({ psn, payload: PING, ackReq: true });
const ping = (wrId: number) => ({ wrId, opcode: 'SEND', inline: PING });

describe('the ACK timer runs 4.096 us times 2^timeout', () => {
  test.each([1, 2, 8, 14, 18, 31])('timeout %i', async (timeout) => {
    const c = await rc({ timeout });
    const us = 4.096 * 2 ** timeout;
    c.post(0, ping(1))
      .out(sent(1000))
      .at(us - 0.001)
      .silent()
      .at(us)
      .out(sent(1000))
      .in(us + 1, ack({ psn: 1000, msn: 1 }))
      .wc({ wrId: 1 })
      .counts({ local_ack_timeout_err: 1, retransmits: 1 });
  });

  test('timeout 0 means no timer', async () => {
    const c = await rc({ timeout: 0 });
    c.post(0, ping(1))
      .out(sent(1000))
      .at(1e12)
      .silent()
      .in(1e12, ack({ psn: 1000, msn: 1 }))
      .wc({ wrId: 1 });
  });
});

/** 2^1 * 4.096 us */
const TIMEOUT = 8.192;

test('every ACK that is progress starts the timer again; the last one stops it', async () => {
  const c = await rc({ timeout: 1 });
  c.post(0, ping(1), ping(2))
    .out(sent(1000), sent(1001))
    .in(8, ack({ psn: 1000, msn: 1 }))
    .wc({ wrId: 1 })
    .at(16)
    .silent()
    .in(16.1, ack({ psn: 1001, msn: 2 }))
    .wc({ wrId: 2 })
    .at(1000)
    .silent();
});

test('a ghost ACK does not start it again', async () => {
  const c = await rc({ timeout: 1 });
  c.post(0, ping(1))
    .out(sent(1000))
    .in(8, ack({ psn: 999, msn: 0 }))
    .silent()
    .at(TIMEOUT)
    .out(sent(1000))
    .in(9, ack({ psn: 1000, msn: 1 }))
    .wc({ wrId: 1 });
});

test('a request posted later does not start it again', async () => {
  const c = await rc({ timeout: 1 });
  c.post(0, ping(1))
    .out(sent(1000))
    .post(8, ping(2))
    .out(sent(1001))
    .at(TIMEOUT)
    .out(sent(1000), sent(1001))
    .in(9, ack({ psn: 1001, msn: 2 }))
    .wc({ wrId: 1 }, { wrId: 2 });
});

test('the timer repeats everything without an ACK, from the oldest on', async () => {
  const c = await rc({ timeout: 1 });
  const remote = { va: 0x1000n, rkey: 0x77 };
  const read = { wrId: 2, opcode: 'RDMA_READ', pieces: [c.buffer.piece(0, 8)], remote };
  const asked = request.read({ psn: 1001, ...remote, length: 8, ackReq: true });
  c.post(0, ping(1), read, ping(3))
    .out(sent(1000), asked, sent(1002))
    .at(TIMEOUT)
    .out(sent(1000), asked, sent(1002))
    .in(9, response.readOnly({ psn: 1001, msn: 2, payload: new Uint8Array(8) }))
    .wc({ wrId: 1 }, { wrId: 2 })
    .at(9 + TIMEOUT)
    .out(sent(1002))
    .in(20, ack({ psn: 1002, msn: 3 }))
    .wc({ wrId: 3 });
});

/** Lets the timer expire `count` times, each time with a retransmission. Returns the time of the next expiry. */
function passes(c: Conversation, count: number): number {
  c.post(0, ping(1), { ...ping(2), signaled: false }).out(sent(1000), sent(1001));
  for (let i = 1; i <= count; i++) c.at(TIMEOUT * i).out(sent(1000), sent(1001));
  return TIMEOUT * (count + 1);
}

describe('retry_cnt is the number of repetitions', () => {
  test.each([0, 1, 3, 7])('%i, then the oldest request fails and all others are flushed', async (retryCnt) => {
    const c = await rc({ timeout: 1, retryCnt, signalAll: false, receives: 1 });
    const us = passes(c, retryCnt);
    c.at(us)
      .silent()
      .wc(
        { wrId: 1, status: 'RETRY_EXC_ERR', opcode: 'SEND', psn: 1000 },
        { wrId: 2, status: 'WR_FLUSH_ERR', opcode: 'SEND' },
        { wrId: 1, status: 'WR_FLUSH_ERR', opcode: 'RECV' },
      )
      .state('ERR')
      .counts({ retry_exceeded_err: 1, local_ack_timeout_err: retryCnt + 1 })
      .at(us + 1000)
      .silent();
  });

  test('all retries are there again after progress', async () => {
    const c = await rc({ timeout: 1, retryCnt: 1 });
    c.post(0, ping(1), ping(2))
      .out(sent(1000), sent(1001))
      .at(TIMEOUT)
      .out(sent(1000), sent(1001))
      .in(9, ack({ psn: 1000, msn: 1 }))
      .wc({ wrId: 1 })
      .at(9 + TIMEOUT)
      .out(sent(1001))
      .at(9 + 2 * TIMEOUT)
      .silent()
      .wc({ wrId: 2, status: 'RETRY_EXC_ERR' })
      .state('ERR');
  });

  test('sequence NAKs without progress use retries, too', async () => {
    const c = await rc({ timeout: 1, retryCnt: 2 });
    c.post(0, ping(1))
      .out(sent(1000))
      .in(1, nak.sequence({ psn: 1000 }))
      .out(sent(1000))
      .at(1 + TIMEOUT)
      .out(sent(1000))
      .in(10, nak.sequence({ psn: 1000 }))
      .silent()
      .wc({ wrId: 1, status: 'RETRY_EXC_ERR', syndrome: 0x60 })
      .state('ERR');
  });

  test('copies of a sequence NAK use one retry, until there is progress or the timer expires', async () => {
    const c = await rc({ timeout: 1, retryCnt: 2 });
    const left = () => c.qp.attribute('RETRY_LEFT');
    c.post(0, ping(1), ping(2)).out(sent(1000), sent(1001));
    c.in(1, nak.sequence({ psn: 1000 })).out(sent(1000), sent(1001));
    for (let us = 2; us < 9; us++) c.in(us, nak.sequence({ psn: 1000 })).silent();
    expect(left()).toBe(1);
    c.at(1 + TIMEOUT).out(sent(1000), sent(1001));
    expect(left()).toBe(0);
    c.in(10, nak.sequence({ psn: 1001, msn: 1 }), nak.sequence({ psn: 1001, msn: 1 })).out(sent(1001));
    expect(left()).toBe(1);
    c.in(11, ack({ psn: 1001, msn: 2 }))
      .wc({ wrId: 1 }, { wrId: 2 })
      .counts({ rcvd_seq_err: 10 });
  });

  test('a sequence NAK after a response to the retransmission counts again, and uses no retry', async () => {
    // the round trip is 10 us, and nearly none takes more than 30 us
    const c = await measured({ retryCnt: 2 }, 10);
    const left = () => c.qp.attribute('RETRY_LEFT');
    c.post(START, ping(1), ping(2)).out(sent(1001), sent(1002));
    c.in(START + 10, nak.sequence({ psn: 1001, msn: 1 })).out(sent(1001), sent(1002));
    c.in(START + 40, nak.sequence({ psn: 1001, msn: 1 })).silent();
    c.in(START + 41, nak.sequence({ psn: 1001, msn: 1 })).out(sent(1001), sent(1002));
    c.in(START + 42, nak.sequence({ psn: 1001, msn: 1 })).silent();
    c.in(START + 80, nak.sequence({ psn: 1001, msn: 1 })).out(sent(1001), sent(1002));
    expect(left()).toBe(1);
    c.in(START + 90, ack({ psn: 1002, msn: 3 })).wc({ wrId: 1 }, { wrId: 2 });
  });

  test('a NAK that acknowledges something is progress', async () => {
    const c = await rc({ timeout: 0, retryCnt: 1 });
    c.post(0, ping(1), ping(2), ping(3))
      .out(sent(1000), sent(1001), sent(1002))
      .in(1, nak.sequence({ psn: 1001, msn: 1 }))
      .out(sent(1001), sent(1002))
      .in(2, nak.sequence({ psn: 1002, msn: 2 }))
      .out(sent(1002))
      .in(3, ack({ psn: 1002, msn: 3 }))
      .wc({ wrId: 1 }, { wrId: 2 }, { wrId: 3 });
  });

  test('an implied NAK uses one retry', async () => {
    const c = await rc({ timeout: 1, retryCnt: 1 });
    const remote = { va: 0x1000n, rkey: 0x77 };
    const asked = request.read({ psn: 1000, ...remote, length: 8, ackReq: true });
    c.post(0, { wrId: 1, opcode: 'RDMA_READ', pieces: [c.buffer.piece(0, 8)], remote }, ping(2))
      .out(asked, sent(1001))
      .in(1, ack({ psn: 1001, msn: 2 }))
      .out(asked, sent(1001))
      .at(1 + TIMEOUT)
      .silent()
      .wc({ wrId: 1, status: 'RETRY_EXC_ERR', opcode: 'RDMA_READ' }, { wrId: 2, status: 'WR_FLUSH_ERR' })
      .state('ERR');
  });
});

test('a response that arrives just before the timer expires counts', async () => {
  const c = await rc({ timeout: 1, retryCnt: 0 });
  c.post(0, ping(1))
    .out(sent(1000))
    .in(TIMEOUT, ack({ psn: 1000, msn: 1 }))
    .wc({ wrId: 1 })
    .state('RTS');
});

test('the timers of many queue pairs expire each at their own time', async () => {
  const c = await rc({ timeout: 3 });
  const others = [2, 1, 4].map((timeout) => {
    const qp = c.rig.qp().connect({ destQpn: 0x30 + timeout, sqPsn: timeout, rqPsn: 0, timeout, retryCnt: 0 });
    qp.send({ wrId: timeout, opcode: 'SEND', inline: PING });
    return { timeout, qp };
  });
  c.post(0, ping(3));
  c.take();
  const failedAt = new Map<number, number>();
  for (let us = 1; us <= 70; us++) {
    c.at(us);
    if (c.take().length > 0) failedAt.set(3, us);
    for (const { timeout, qp } of others)
      for (const wc of qp.poll()) if (wc.status === 'RETRY_EXC_ERR') failedAt.set(timeout, us);
  }
  c.in(71, ack({ psn: 1000, msn: 1 })).wc({ wrId: 3 });
  expect([...failedAt].sort()).toEqual([
    [1, 9],
    [2, 17],
    [3, 66],
    [4, 66],
  ]);
});
