/** Receiver not ready, from both sides (IBTA 9.7.5.2.8, table 46). */
import { describe, expect, test } from 'vitest';
import { ack, nak, type Packet, request, response } from '../../src/probe/packet/packets.js';
import { type Conversation, PING, pattern, rc, send, TARGET_VA } from '../kit/conversation.js';

const sent = (psn: number): Packet => request.sendOnly({ psn, payload: PING, ackReq: true });
const ping = (wrId: number) => ({ wrId, opcode: 'SEND', inline: PING });

describe('the responder', () => {
  test('sends an RNR NAK with its timer where a SEND finds no receive, and expects the same PSN again', async () => {
    const c = await rc({ minRnrTimer: 14 });
    c.in(0, send({ psn: 100 }))
      .out(nak.rnr({ psn: 100, timer: 14 }))
      .recv(1, 0, 64)
      .in(9, send({ psn: 100 }))
      .out(ack({ psn: 100, msn: 1 }))
      .wc({ wrId: 1 })
      .counts({ send_rnr_err: 1, out_of_seq_request: 0 });
  });

  test('asks for a quarter of the time that the message has waited, up to 41 ms', async () => {
    const c = await rc({ minRnrTimer: 1 });
    const rnr = (us: number, timer: number) => c.in(us, send({ psn: 100 })).out(nak.rnr({ psn: 100, timer }));
    // as many as one with a limited number of retries gets, however late these are
    for (const us of [10, 20, 30, 50, 90, 170, 330]) rnr(us, 1);
    rnr(10 + 4 * 119, 6);
    rnr(10 + 4 * 120, 7);
    rnr(10 + 4 * 640, 12);
    rnr(10 + 4 * 959, 12);
    rnr(10 + 4 * 40_960, 24);
    rnr(10_000_000, 24).events('QP_NO_RECEIVE');
    // it is taken: the next message begins anew
    c.recv(1, 0, 64)
      .in(10_000_001, send({ psn: 100 }))
      .out(ack({ psn: 100, msn: 1 }))
      .wc({ wrId: 1 })
      .in(10_000_002, send({ psn: 101 }))
      .out(nak.rnr({ psn: 101, msn: 1, timer: 1 }));
  });

  test('raises an event when a message has waited for a receive for a second: once for each message', async () => {
    const c = await rc({ minRnrTimer: 1 });
    const refused = (us: number, psn: number, ...events: string[]) => {
      c.in(us, send({ psn }))
        .events(...events)
        .take();
    };
    refused(0, 100);
    refused(999_999, 100);
    refused(1_000_000, 100, 'QP_NO_RECEIVE');
    refused(9_000_000, 100);
    c.recv(1, 0, 64)
      .in(9_000_001, send({ psn: 100 }))
      .out(ack({ psn: 100, msn: 1 }))
      .wc({ wrId: 1 });
    refused(9_000_002, 101);
    refused(10_000_002, 101, 'QP_NO_RECEIVE');
  });

  test('repeats the RNR NAK for every try', async () => {
    const c = await rc({ minRnrTimer: 0 });
    for (let us = 0; us < 3; us++) c.in(us, send({ psn: 100 })).out(nak.rnr({ psn: 100, timer: 0 }));
  });

  test('drops packets behind the SEND without a sequence NAK', async () => {
    const c = await rc({ minRnrTimer: 1 });
    c.in(0, send({ psn: 100 }), send({ psn: 101 }))
      .out(nak.rnr({ psn: 100, timer: 1 }))
      .in(1, send({ psn: 102 }))
      .silent()
      .counts({ drop_psn_ahead: 2, out_of_seq_request: 0 });
  });

  test('has executed what is before the SEND, and acknowledges it', async () => {
    const c = await rc({ minRnrTimer: 1, receives: 1 });
    c.in(0, send({ psn: 100 }), send({ psn: 101 }))
      .out(nak.rnr({ psn: 101, msn: 1, timer: 1 }))
      .wc({ wrId: 1 });
  });

  test('looks for the receive before it checks the key', async () => {
    const c = await rc({ minRnrTimer: 1 });
    c.in(0, request.writeOnlyImm({ psn: 100, va: TARGET_VA, rkey: 0xbad, payload: PING, imm: 1 })).out(
      nak.rnr({ psn: 100, timer: 1 }),
    );
  });

  test('needs a receive only for the packet that uses it', async () => {
    const c = await rc({ minRnrTimer: 1, receives: 1 });
    c.in(0, request.sendFirst({ psn: 100, payload: pattern(1024) }), request.sendLast({ psn: 101, payload: PING }))
      .silent()
      .wc({ wrId: 1 })
      .in(1, request.writeOnly({ psn: 102, va: TARGET_VA, rkey: c.target.rkey, payload: PING, ackReq: true }))
      .out(ack({ psn: 102, msn: 2 }));
  });
});

/** IBTA table 46, in microseconds. */
const TIMERS = [
  655360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280, 1920, 2560, 3840, 5120, 7680, 10240, 15360,
  20480, 30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520,
];

describe('the requester', () => {
  test.each(TIMERS.map((us, timer) => [timer, us] as const))('waits with timer %i for %i us', async (timer, us) => {
    const c = await rc({ timeout: 0 });
    c.post(0, ping(1))
      .out(sent(1000))
      .in(5, nak.rnr({ psn: 1000, timer }))
      .silent()
      .at(5 + us - 0.001)
      .silent()
      .at(5 + us)
      .out(sent(1000))
      .in(6 + us, ack({ psn: 1000, msn: 1 }))
      .wc({ wrId: 1 });
  });

  test('repeats from the PSN of the NAK on, and takes everything before it as acknowledged', async () => {
    const c = await rc();
    c.post(0, ping(1), ping(2), ping(3))
      .out(sent(1000), sent(1001), sent(1002))
      .in(1, nak.rnr({ psn: 1001, msn: 1, timer: 1 }))
      .wc({ wrId: 1 })
      .at(11)
      .out(sent(1001), sent(1002))
      .in(12, ack({ psn: 1002, msn: 3 }))
      .wc({ wrId: 2 }, { wrId: 3 })
      .counts({ rcvd_rnr_err: 1, retransmits: 2 });
  });

  test('sends nothing new while it waits', async () => {
    const c = await rc();
    c.post(0, ping(1))
      .out(sent(1000))
      .in(1, nak.rnr({ psn: 1000, timer: 3 }))
      .post(2, ping(2))
      .silent()
      .at(31)
      .out(sent(1000), sent(1001))
      .in(32, ack({ psn: 1001, msn: 2 }))
      .wc({ wrId: 1 }, { wrId: 2 });
  });

  test('goes on waiting when a sequence NAK or another RNR NAK comes behind (rxe sends both)', async () => {
    const c = await rc({ rnrRetry: 1, retryCnt: 0 });
    c.post(0, ping(1), ping(2))
      .out(sent(1000), sent(1001))
      .in(1, nak.rnr({ psn: 1000, timer: 2 }))
      .in(2, nak.sequence({ psn: 1000 }))
      .in(3, nak.rnr({ psn: 1000, timer: 2 }))
      .at(20)
      .silent()
      .at(21)
      .out(sent(1000), sent(1001))
      .in(22, ack({ psn: 1001, msn: 2 }))
      .wc({ wrId: 1 }, { wrId: 2 })
      .counts({ rcvd_rnr_err: 1, rcvd_seq_err: 0, drop_rnr_wait: 2 });
  });

  test('runs no ACK timer while it waits', async () => {
    const c = await rc({ timeout: 1 });
    c.post(0, ping(1))
      .out(sent(1000))
      .in(1, nak.rnr({ psn: 1000, timer: 10 }))
      .at(320)
      .silent()
      .at(321)
      .out(sent(1000))
      .in(322, ack({ psn: 1000, msn: 1 }))
      .wc({ wrId: 1 })
      .counts({ local_ack_timeout_err: 0 });
  });

  function tries(c: Conversation, count: number): number {
    let us = 0;
    c.post(us, ping(1), { ...ping(2), signaled: false }).out(sent(1000), sent(1001));
    for (let i = 0; i < count; i++) {
      us += 1;
      c.in(us, nak.rnr({ psn: 1000, timer: 1 })).silent();
      us += 10;
      c.at(us).out(sent(1000), sent(1001));
    }
    return us;
  }

  test.each([0, 1, 6])('gives up after rnr_retry = %i retries', async (rnrRetry) => {
    const c = await rc({ rnrRetry, signalAll: false });
    const us = tries(c, rnrRetry);
    c.in(us + 1, nak.rnr({ psn: 1000, timer: 1 }))
      .silent()
      .wc({ wrId: 1, status: 'RNR_RETRY_EXC_ERR', syndrome: 0x21, psn: 1000 }, { wrId: 2, status: 'WR_FLUSH_ERR' })
      .state('ERR')
      .counts({ retry_rnr_exceeded_err: 1 });
  });

  test('with rnr_retry 7 never gives up, but waits a quarter longer each time, up to 41 ms', async () => {
    const c = await rc({ rnrRetry: 7 });
    c.post(0, ping(1), { ...ping(2), signaled: false }).out(sent(1000), sent(1001));
    let us = 1;
    const waits: number[] = [];
    for (let i = 0; i < 80; i++) {
      c.in(us, nak.rnr({ psn: 1000, timer: 1 }));
      const wait = Math.max(10, Math.min((us - 1) / 4, 40_960));
      waits.push(wait);
      c.at(us + wait - 0.01)
        .silent()
        .at(us + wait)
        .out(sent(1000), sent(1001));
      us += wait + 1;
    }
    expect(waits.slice(0, 4)).toEqual([10, 10, 10, 10]);
    expect(waits.at(-1)).toBe(40_960);
    c.in(us, nak.rnr({ psn: 1001, timer: 1, msn: 1 })).wc({ wrId: 1 });
    // another message: its wait begins anew
    c.at(us + 10)
      .out(sent(1001))
      .in(us + 11, ack({ psn: 1001, msn: 2 }))
      .wc({ wrId: 2 });
  });

  test('has all its retries again after progress', async () => {
    const c = await rc({ rnrRetry: 1 });
    c.post(0, ping(1), ping(2))
      .out(sent(1000), sent(1001))
      .in(1, nak.rnr({ psn: 1000, timer: 1 }))
      .at(11)
      .out(sent(1000), sent(1001))
      .in(12, nak.rnr({ psn: 1001, msn: 1, timer: 1 }))
      .wc({ wrId: 1 })
      .at(22)
      .out(sent(1001))
      .in(23, ack({ psn: 1001, msn: 2 }))
      .wc({ wrId: 2 });
  });

  test('does not use retry_cnt for RNR retries', async () => {
    const c = await rc({ retryCnt: 0, rnrRetry: 3 });
    const us = tries(c, 3);
    c.in(us + 1, ack({ psn: 1001, msn: 2 })).wc({ wrId: 1 }, { wrId: 2 });
  });

  test('still answers the peer', async () => {
    const c = await rc();
    c.post(0, ping(1))
      .out(sent(1000))
      .in(1, nak.rnr({ psn: 1000, timer: 5 }))
      .in(2, request.read({ psn: 100, va: TARGET_VA, rkey: c.target.rkey, length: 0 }))
      .out(response.readOnly({ psn: 100, msn: 1 }))
      .in(3, ack({ psn: 1000, msn: 1 }))
      .wc({ wrId: 1 });
  });
});
