/**
 * Adaptive retransmission: when an ACK is overdue against the measured round-trip time, the oldest packet is sent again
 * before the ACK timer expires.
 */
import { describe, expect, test } from 'vitest';
import { ack, nak, request, response } from '../../src/probe/packet/packets.js';
import { type Conversation, pattern, rc } from '../kit/conversation.js';
import {
  ACK_TIMER,
  LOSSY_PERIOD,
  MIN_RTO,
  measured,
  measuredAfterLoss,
  ping,
  REMOTE,
  RETRANSMITTED,
  ROUND_TRIP,
  roundTrip,
  START,
  sent,
  WAIT,
} from './measured-rtt.js';

describe('the time that an answer is awaited', () => {
  test('is a round trip and four times its deviation, which is half of it at first', async () => {
    const c = await measuredAfterLoss();
    c.post(START, ping(1))
      .out(sent(1001))
      .at(START + WAIT - 0.001)
      .silent()
      .at(START + WAIT)
      .out(sent(1001))
      .in(START + WAIT + 1, ack({ psn: 1001, msn: 2 }))
      .wc({ wrId: 1 })
      .counts({ roce_adp_retrans: 1, retransmits: 1 + RETRANSMITTED, local_ack_timeout_err: 0 });
  });

  test('follows each round trip by an eighth, and its deviation by a quarter', async () => {
    const c = await measuredAfterLoss();
    c.post(START, ping(1))
      .out(sent(1001))
      .in(START + 200, ack({ psn: 1001, msn: 2 }))
      .wc({ wrId: 1 });
    expect(roundTrip(c)).toBe(1000 - (1000 - 200) / 8);
    const wait = 900 + 4 * (500 + (800 - 500) / 4);
    c.post(2 * START, ping(2))
      .out(sent(1002))
      .at(2 * START + wait - 0.001)
      .silent()
      .at(2 * START + wait)
      .out(sent(1002))
      .in(2 * START + wait, ack({ psn: 1002, msn: 3 }))
      .wc({ wrId: 2 });
  });

  test('is not less than a millisecond', async () => {
    const c = await measuredAfterLoss({}, 2);
    c.post(START, ping(1))
      .out(sent(1001))
      .at(START + 999.999)
      .silent()
      .at(START + 1000)
      .out(sent(1001))
      .in(START + 1100, ack({ psn: 1001, msn: 2 }))
      .wc({ wrId: 1 });
  });

  test('is not limited before the first round trip', async () => {
    const c = await rc();
    c.post(0, ping(1))
      .out(sent(1000))
      .at(ACK_TIMER - 0.001)
      .silent()
      .at(ACK_TIMER)
      .out(sent(1000))
      .in(ACK_TIMER + 1, ack({ psn: 1000, msn: 1 }))
      .wc({ wrId: 1 })
      .counts({ roce_adp_retrans: 0, local_ack_timeout_err: 1 });
    expect(roundTrip(c)).toBe(1);
  });

  test('includes a packet that the ACK timer repeats only while nothing else is known', async () => {
    const c = await measuredAfterLoss({ timeout: 5 }, 10);
    c.post(START, ping(1))
      .out(sent(1001))
      .at(START + 131.072)
      .out(sent(1001))
      .in(START + 231.072, ack({ psn: 1001, msn: 2 }))
      .wc({ wrId: 1 });
    expect(roundTrip(c)).toBe(10);
  });

  test('begins with the newest progress', async () => {
    const c = await measuredAfterLoss();
    c.post(START, ping(1), ping(2))
      .out(sent(1001), sent(1002))
      .in(START + 1000, ack({ psn: 1001, msn: 2 }))
      .wc({ wrId: 1 })
      // the second round trip is as long as the first: a quarter of the deviation is gone
      .at(START + 1000 + 2499)
      .silent()
      .at(START + 1000 + 2500)
      .out(sent(1002))
      .in(START + 5000, ack({ psn: 1002, msn: 3 }))
      .wc({ wrId: 2 });
  });

  test('begins for a packet without AckReq by repeating it with AckReq', async () => {
    const c = await measuredAfterLoss();
    const bytes = pattern(1024 * 3, 1);
    const piece = (i: number) => bytes.subarray(i * 1024, (i + 1) * 1024);
    const write = { wrId: 1, opcode: 'RDMA_WRITE', pieces: [c.buffer.piece(0, bytes.length)], remote: REMOTE };
    c.post(START, write).out(
      request.writeFirst({ psn: 1001, ...REMOTE, length: bytes.length, payload: piece(0) }),
      request.writeMiddle({ psn: 1002, payload: piece(1) }),
      request.writeLast({ psn: 1003, payload: piece(2), ackReq: true }),
    );
    c.at(START + WAIT)
      .out(request.writeFirst({ psn: 1001, ...REMOTE, length: bytes.length, payload: piece(0), ackReq: true }))
      .in(START + WAIT + 1, ack({ psn: 1003, msn: 2 }))
      .wc({ wrId: 1 });
  });

  test('is prolonged once by a thread that was late itself: the answer may have arrived', async () => {
    const c = await measuredAfterLoss();
    const late = START + WAIT + 201;
    c.post(START, ping(1), ping(2))
      .out(sent(1001), sent(1002))
      .at(late)
      .silent()
      .at(late + 999.999)
      .silent()
      // and none after that
      .at(late + 1000 + 300)
      .out(sent(1001))
      .in(late + 1500, ack({ psn: 1002, msn: 3 }))
      .wc({ wrId: 1 }, { wrId: 2 })
      .counts({ roce_adp_retrans: 1 });
  });

  test('doubles with each repetition; a packet that was sent twice measures nothing (Karn)', async () => {
    const c = await measuredAfterLoss();
    c.post(START, ping(1)).out(sent(1001));
    let us = START;
    for (const times of [1, 2, 4]) {
      us += WAIT * times;
      c.at(us - 0.001)
        .silent()
        .at(us)
        .out(sent(1001));
    }
    c.in(us + 10, ack({ psn: 1001, msn: 2 })).wc({ wrId: 1 });
    expect(roundTrip(c)).toBe(ROUND_TRIP);
    // the same until a packet that was sent only once is acknowledged
    us = 100_000;
    c.post(us, ping(2))
      .out(sent(1002))
      .at(us + WAIT * 8 - 0.001)
      .silent()
      .in(us + WAIT * 8 - 0.001, ack({ psn: 1002, msn: 3 }))
      .wc({ wrId: 2 });
    expect(roundTrip(c)).toBeGreaterThan(ROUND_TRIP);
  });

  test('is as at first again when a repeated packet is answered after a usual round trip', async () => {
    const c = await measuredAfterLoss();
    c.post(START, ping(1)).out(sent(1001));
    for (const times of [1, 3]) c.at(START + WAIT * times).out(sent(1001));
    c.in(START + WAIT * 3 + ROUND_TRIP, ack({ psn: 1001, msn: 2 })).wc({ wrId: 1 });
    const us = 100_000;
    c.post(us, ping(2))
      .out(sent(1002))
      .at(us + WAIT - 0.001)
      .silent()
      .at(us + WAIT)
      .out(sent(1002))
      .in(us + WAIT + 1, ack({ psn: 1002, msn: 3 }))
      .wc({ wrId: 2 });
  });

  test('is measured by a packet behind a repeated one, not by one that is repeated with it', async () => {
    const c = await measuredAfterLoss();
    c.post(START, ping(1), ping(2))
      .out(sent(1001), sent(1002))
      .in(START + 100, nak.sequence({ psn: 1001, msn: 1 }))
      .out(sent(1001), sent(1002))
      .post(START + 200, ping(3))
      .out(sent(1003))
      .in(START + 300, ack({ psn: 1002, msn: 3 }))
      .wc({ wrId: 1 }, { wrId: 2 });
    expect(roundTrip(c)).toBe(ROUND_TRIP);
    c.in(START + 1200, ack({ psn: 1003, msn: 4 })).wc({ wrId: 3 });
    expect(roundTrip(c)).toBe(ROUND_TRIP);
  });
});

/**
 * Retransmits the only packet in flight and acknowledges it `answered` microseconds later; another packet is then
 * acknowledged normally.
 */
const repeated = (c: Conversation, answered: number) =>
  c
    .post(START, ping(1))
    .out(sent(1001))
    .at(START + MIN_RTO - 0.001)
    .silent()
    .at(START + MIN_RTO)
    .out(sent(1001))
    .in(START + MIN_RTO + answered, ack({ psn: 1001, msn: 2 }))
    .wc({ wrId: 1 })
    .post(50_000, ping(3))
    .out(sent(1002))
    .in(50_000 + ROUND_TRIP, ack({ psn: 1002, msn: 3 }))
    .wc({ wrId: 3 });
/** The second round trip is as long as the first, so a quarter of the deviation is gone. */
const LESS = ROUND_TRIP + 4 * 375;

/** The next packet, which is not acknowledged, is retransmitted after `wait` microseconds. */
const awaits = (c: Conversation, us: number, wait: number, psn = 1003) =>
  c
    .post(us, ping(2))
    .out(sent(psn))
    .at(us + wait - 0.001)
    .silent()
    .at(us + wait)
    .out(sent(psn))
    .in(us + wait + 1, ack({ psn, msn: 3 }))
    .wc({ wrId: 2 });

describe('an answer is awaited for at least 16 ms where nothing was lost', () => {
  test.each([0, ROUND_TRIP / 2 - 1, WAIT + 1, 10_000])(
    'after a peer that answers the repeated packet after %i us: nothing was lost',
    async (us) => {
      const c = await measured();
      awaits(repeated(c, us), 100_000, MIN_RTO).counts({ roce_adp_retrans: 2 });
    },
  );

  test.each([ROUND_TRIP / 2, ROUND_TRIP, WAIT])(
    'not after one that answers it after %i us: the first packet was lost',
    async (us) => {
      const c = await measured();
      awaits(repeated(c, us), 100_000, LESS);
    },
  );

  test('not for a quarter of a second after a NAK, which shows a loss', async () => {
    const lost = async () =>
      (await measured())
        .post(START, ping(1))
        .out(sent(1001))
        .in(START + 1, nak.sequence({ psn: 1001, msn: 1 }))
        .out(sent(1001))
        .in(START + 2, ack({ psn: 1001, msn: 2 }))
        .wc({ wrId: 1 });
    awaits(await lost(), START + LOSSY_PERIOD, WAIT, 1002);
    awaits(await lost(), START + LOSSY_PERIOD + 1, MIN_RTO, 1002);
  });

  test('nor after a missing response', async () => {
    const c = await measured();
    const read = (i: number) => ({
      wrId: i,
      opcode: 'RDMA_READ',
      pieces: [c.buffer.piece(1024 * i, 8)],
      remote: REMOTE,
    });
    const asked = (psn: number) => request.read({ psn, ...REMOTE, length: 8, ackReq: true });
    const answer = (psn: number) => response.readOnly({ psn, msn: psn - 999, payload: pattern(8, psn) });
    c.post(START, read(1), read(2))
      .out(asked(1001), asked(1002))
      .in(START + 1, answer(1002))
      .out(asked(1001), asked(1002))
      .in(START + 2, answer(1001))
      .wc({ wrId: 1 })
      .in(START + 3, answer(1002))
      .wc({ wrId: 2 })
      .counts({ implied_nak_seq_err: 1 });
    awaits(c, 2 * START, WAIT);
  });
});

describe('the ACK timer', () => {
  test('runs from the last progress on, and alone counts as a try', async () => {
    const c = await measuredAfterLoss({ retryCnt: 1 });
    c.post(START, ping(1), ping(2)).out(sent(1001), sent(1002));
    for (const times of [1, 3, 7, 15]) c.at(START + WAIT * times).out(sent(1001));
    expect(c.qp.attribute('RETRY_LEFT')).toBe(1);
    c.at(START + ACK_TIMER - 0.001)
      .silent()
      .at(START + ACK_TIMER)
      .out(sent(1001), sent(1002))
      .counts({ roce_adp_retrans: 4, local_ack_timeout_err: 1 })
      // doubled further, until the ACK timer expires first
      .at(START + ACK_TIMER + WAIT * 16)
      .out(sent(1001))
      .at(START + 2 * ACK_TIMER - 0.001)
      .silent()
      .at(START + 2 * ACK_TIMER)
      .silent()
      .wc({ wrId: 1, status: 'RETRY_EXC_ERR' }, { wrId: 2, status: 'WR_FLUSH_ERR' })
      .state('ERR')
      .counts({ roce_adp_retrans: 5, local_ack_timeout_err: 2, retry_exceeded_err: 1 })
      .at(10 * ACK_TIMER)
      .silent();
  });

  test('repeats alone when it is the earlier one', async () => {
    // 131 us, less than the minimum timeout
    const c = await measuredAfterLoss({ timeout: 5 }, 10);
    c.post(START, ping(1))
      .out(sent(1001))
      .at(START + 131.072)
      .out(sent(1001))
      .in(START + 140, ack({ psn: 1001, msn: 2 }))
      .wc({ wrId: 1 })
      .counts({ roce_adp_retrans: 0, local_ack_timeout_err: 1 });
  });

  test('that is off stays off, and adaptive retransmission with it', async () => {
    const c = await measuredAfterLoss({ timeout: 0 });
    c.post(START, ping(1))
      .out(sent(1001))
      .at(1e9)
      .silent()
      .in(1e9, ack({ psn: 1001, msn: 2 }))
      .wc({ wrId: 1 });
  });
});

describe('nothing is repeated early', () => {
  test('while the requester waits for a peer that was not ready', async () => {
    const c = await measuredAfterLoss();
    // RNR timer code 20 is 10.24 ms
    c.post(START, ping(1))
      .out(sent(1001))
      .in(START + 100, nak.rnr({ psn: 1001, timer: 20, msn: 1 }))
      .at(START + 100 + 10_239)
      .silent()
      .at(START + 100 + 10_240)
      .out(sent(1001))
      .at(START + 100 + 10_240 + WAIT)
      .out(sent(1001))
      .in(START + 20_000, ack({ psn: 1001, msn: 2 }))
      .wc({ wrId: 1 })
      .counts({ roce_adp_retrans: 1, rcvd_rnr_err: 1 });
  });

  test('once the queue pair has failed', async () => {
    const c = await measuredAfterLoss();
    c.post(START, ping(1))
      .out(sent(1001))
      .at(START + 1, () => c.qp.modify({ STATE: 6 }))
      .wc({ wrId: 1, status: 'WR_FLUSH_ERR' })
      .at(10 * ACK_TIMER)
      .silent();
  });

  test('where adaptive retransmission is switched off, also while an answer is awaited', async () => {
    for (const off of ['before', 'meanwhile']) {
      const c = await measuredAfterLoss({ adaptive: off !== 'before' });
      c.post(START, ping(1)).out(sent(1001));
      if (off === 'meanwhile') expect(c.qp.adaptive(false)).toBe('OK');
      c.at(START + ACK_TIMER - 0.001)
        .silent()
        .at(START + ACK_TIMER)
        .out(sent(1001))
        .in(START + ACK_TIMER + 1, ack({ psn: 1001, msn: 2 }))
        .wc({ wrId: 1 })
        .counts({ roce_adp_retrans: 0, local_ack_timeout_err: 1 });
    }
  });

  test('on the next connection, even if the last one ended during a repetition', async () => {
    const c = await measuredAfterLoss();
    c.post(START, ping(1))
      .out(sent(1001))
      .at(START + WAIT)
      .out(sent(1001))
      .at(START + WAIT, () => c.qp.modify({ STATE: 0 }));
    c.qp.connect({ destQpn: c.there.srcQp, sqPsn: 1000, rqPsn: 100 });
    expect(roundTrip(c)).toBe(0);
    c.post(2 * START, ping(1), ping(2))
      .out(sent(1000), sent(1001))
      .at(2 * START + ACK_TIMER - 0.001)
      .silent()
      .in(2 * START + ACK_TIMER - 0.001, ack({ psn: 1001, msn: 2 }))
      .wc({ wrId: 1 }, { wrId: 2 });
  });
});

test('a queue pair in SQD goes on repeating', async () => {
  const c = await measuredAfterLoss();
  c.post(START, ping(1))
    .out(sent(1001))
    .at(START + 1, () => c.qp.modify({ STATE: 4, EN_SQD_ASYNC_NOTIFY: 1 }))
    .at(START + WAIT)
    .out(sent(1001))
    .in(START + WAIT + 1, ack({ psn: 1001, msn: 2 }))
    .wc({ wrId: 1 })
    .events('SQ_DRAINED');
});

test.each(['UC', 'UD'] as const)('%s has no adaptive retransmission', async (type) => {
  const { rig } = await rc();
  const qp = rig.qp({ type });
  expect([qp.adaptive(true), qp.adaptive(false)]).toEqual(['EINVAL', 'EINVAL']);
});
