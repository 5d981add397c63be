/** The shortest ACK timeout, and retries without limit. */
import { describe, expect, test } from 'vitest';
import { MIN_ACK_TIMEOUT } from '../../src/device/codes.js';
import { ack, nak, request, response } from '../../src/probe/packet/packets.js';
import { PING, rc } from '../kit/conversation.js';

const sent = (psn: number) => request.sendOnly({ psn, payload: PING, ackReq: true });
const ping = (wrId: number) => ({ wrId, opcode: 'SEND', inline: PING });
/** Microseconds. */
const LEAST = 4.096 * 2 ** 12;

describe('a card with the default shortest timeout', () => {
  const usual = async (timeout: number) => {
    const c = await rc({ timeout });
    c.rig.x.setMinAckTimeout(MIN_ACK_TIMEOUT);
    return c;
  };

  test.each([1, 11, 12])('waits as long for timeout %i as for 12', async (timeout) => {
    const c = await usual(timeout);
    c.post(0, ping(1))
      .out(sent(1000))
      .at(LEAST - 1)
      .silent()
      .at(LEAST)
      .out(sent(1000))
      .in(LEAST + 1, ack({ psn: 1000, msn: 1 }))
      .wc({ wrId: 1 });
  });

  test.each([13, 14])('takes a timeout of %i literally', async (timeout) => {
    const c = await usual(timeout);
    const us = 4.096 * 2 ** timeout;
    c.post(0, ping(1))
      .out(sent(1000))
      .at(us - 1)
      .silent()
      .at(us)
      .out(sent(1000));
    c.in(us + 1, ack({ psn: 1000, msn: 1 })).wc({ wrId: 1 });
  });

  test('waits longer than a measured round trip', async () => {
    const c = await usual(1);
    c.post(1000, ping(1)).out(sent(1000));
    // SRTT 16 ms and its variance 8 ms: 48 ms
    c.in(17_000, ack({ psn: 1000, msn: 1 })).wc({ wrId: 1 });
    c.qp.adaptive(false);
    c.post(17_000, ping(2)).out(sent(1001)).at(64_999).silent().at(65_000).out(sent(1001));
    c.in(65_001, ack({ psn: 1001, msn: 2 })).wc({ wrId: 2 });
  });

  test('has no timer at all for timeout 0', async () => {
    const c = await usual(0);
    c.post(0, ping(1))
      .out(sent(1000))
      .at(1e9)
      .silent()
      .in(1e9, ack({ psn: 1000, msn: 1 }))
      .wc({ wrId: 1 });
  });
});

test('a retry_cnt of 255 never gives up', async () => {
  const c = await rc({ timeout: 1, retryCnt: 255, adaptive: false });
  c.post(0, ping(1)).out(sent(1000));
  for (let i = 1; i <= 1000; i++) c.at(i * 8.192).out(sent(1000));
  expect(c.qp.attribute('RETRY_LEFT')).toBe(255);
  c.in(9000, ack({ psn: 1000, msn: 1 })).wc({ wrId: 1 });
  c.counts({ local_ack_timeout_err: 1000, retry_exceeded_err: 0 });
});

test.each([8, 254, 256])('a retry_cnt of %i is refused', async (retryCnt) => {
  const c = await rc({ until: 'RTR' });
  expect(c.qp.modify({ STATE: 3, SQ_PSN: 0, TIMEOUT: 1, RETRY_CNT: retryCnt, RNR_RETRY: 7, MAX_QP_RD_ATOMIC: 1 })).toBe(
    'EINVAL',
  );
});

describe('the retries are there again after', () => {
  const tried = async () => {
    const c = await rc({ timeout: 1, retryCnt: 3 });
    const big = c.buffer.piece(0, 3 * 1024);
    const remote = { va: 0x1000n, rkey: 0x77 };
    return { c, big, remote, left: () => c.qp.attribute('RETRY_LEFT') };
  };

  test('an ACK in the middle of a message', async () => {
    const { c, big, remote, left } = await tried();
    c.post(0, { wrId: 1, opcode: 'RDMA_WRITE', pieces: [big], remote }).take();
    c.at(8.192).take();
    expect(left()).toBe(2);
    c.in(9, ack({ psn: 1000, msn: 0 }));
    expect(left()).toBe(3);
    c.take();
    c.in(10, ack({ psn: 1002, msn: 1 })).wc({ wrId: 1 });
  });

  test('the first packet of a READ response', async () => {
    const { c, big, remote, left } = await tried();
    c.post(0, { wrId: 1, opcode: 'RDMA_READ', pieces: [big], remote }).take();
    c.at(8.192).take();
    expect(left()).toBe(2);
    c.in(9, response.readFirst({ psn: 1000, msn: 0, payload: new Uint8Array(1024) }));
    expect(left()).toBe(3);
  });

  test('an RNR NAK, which shows that the packet has arrived', async () => {
    const { c, left } = await tried();
    c.post(0, ping(1)).out(sent(1000)).at(8.192).out(sent(1000));
    expect(left()).toBe(2);
    c.in(9, nak.rnr({ psn: 1000, timer: 1 }));
    expect(left()).toBe(3);
    c.at(9 + 10).out(sent(1000));
    c.in(20, ack({ psn: 1000, msn: 1 })).wc({ wrId: 1 });
  });
});
