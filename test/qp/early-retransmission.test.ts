/** Adaptive retransmission: which packet is sent again when an ACK is overdue, and what the response to it means. */
import { describe, expect, test } from 'vitest';
import { ack, encodeFrame, nak, request, response } from '../../src/probe/packet/packets.js';
import { type Conversation, pattern, rc } from '../kit/conversation.js';
import {
  ACK_TIMER,
  measuredAfterLoss,
  ping,
  REMOTE,
  RETRANSMITTED,
  roundTrip,
  START,
  sent,
  WAIT,
} from './measured-rtt.js';

const window = (c: Conversation) => c.qp.attribute('WINDOW');

/** Three packets are in flight, the first is sent again, and a fourth waits for the response. */
const probeOfThree = (c: Conversation) =>
  c
    .post(START, ping(1), ping(2), ping(3))
    .out(sent(1001), sent(1002), sent(1003))
    .at(START + WAIT)
    .out(sent(1001))
    .post(START + WAIT + 1, ping(4))
    .silent();

describe('an early retransmission', () => {
  test('repeats the oldest packet; an ACK of that alone means that all behind it is lost', async () => {
    const c = await measuredAfterLoss();
    const before = window(c);
    probeOfThree(c)
      .in(START + WAIT + 2, ack({ psn: 1001, msn: 2 }))
      .out(sent(1002), sent(1003), sent(1004))
      .wc({ wrId: 1 });
    expect(window(c)).toBe((before + 1) >> 1);
    c.in(START + WAIT + 3, ack({ psn: 1004, msn: 5 })).wc({ wrId: 2 }, { wrId: 3 }, { wrId: 4 });
  });

  test('is enough when an ACK covers more', async () => {
    const c = await measuredAfterLoss();
    const before = window(c);
    probeOfThree(c)
      .in(START + WAIT + 2, ack({ psn: 1002, msn: 3 }))
      .out(sent(1004))
      .wc({ wrId: 1 }, { wrId: 2 });
    expect(window(c)).toBe(before);
    c.in(START + WAIT + 3, ack({ psn: 1004, msn: 5 }))
      .wc({ wrId: 3 }, { wrId: 4 })
      .counts({ retransmits: 1 + RETRANSMITTED });
  });

  test('is enough when packets behind it still have to ask for an ACK', async () => {
    const c = await measuredAfterLoss();
    c.post(START, ping(1), ping(2), ping(3))
      .out(sent(1001), sent(1002), sent(1003))
      .at(START + WAIT)
      .out(sent(1001))
      .in(START + WAIT + 2, ack({ psn: 1002, msn: 3 }))
      .wc({ wrId: 1 }, { wrId: 2 })
      .at(START + WAIT + 2 + 2 * WAIT)
      .out(sent(1003))
      .in(START + 4 * WAIT, ack({ psn: 1003, msn: 4 }))
      .wc({ wrId: 3 });
  });

  test('goes on where it was, between packets that are repeated', async () => {
    const c = await measuredAfterLoss({ sendWr: 32, retryCnt: 3 });
    const psns = Array.from({ length: 16 }, (_, i) => 1001 + i);
    c.post(START, ...psns.map(ping)).out(...psns.map(sent));
    const before = window(c);
    c.in(START + 1, nak.sequence({ psn: 1001, msn: 1 }));
    // the window was halved, and has no room for all packets
    const repeated = c.take().length;
    expect([repeated, window(c)]).toEqual([before >> 1, before >> 1]);
    c.at(START + 1 + WAIT)
      .out(sent(1001))
      .in(START + 2 + WAIT, ack({ psn: 1000 + repeated, msn: 1 + repeated }))
      .out(...psns.slice(repeated).map(sent))
      .wc(...psns.slice(0, repeated).map((wrId) => ({ wrId })))
      .in(START + 3 + WAIT, ack({ psn: 1016, msn: 17 }))
      .wc(...psns.slice(repeated).map((wrId) => ({ wrId })));
  });

  test('ends with a NAK, which names what is missing and costs a try', async () => {
    const c = await measuredAfterLoss({ retryCnt: 3 });
    c.post(START, ping(1), ping(2), ping(3))
      .out(sent(1001), sent(1002), sent(1003))
      .at(START + WAIT)
      .out(sent(1001))
      .in(START + WAIT + 1, nak.sequence({ psn: 1002, msn: 2 }))
      .out(sent(1002), sent(1003))
      .wc({ wrId: 1 });
    expect(c.qp.attribute('RETRY_LEFT')).toBe(2);
    c.in(START + WAIT + 2, ack({ psn: 1003, msn: 4 })).wc({ wrId: 2 }, { wrId: 3 });
  });

  test('does not happen when the answer comes before the packet has left', async () => {
    const c = await measuredAfterLoss();
    const ns = (START + WAIT) * 1000;
    c.post(START, ping(1), ping(2))
      .out(sent(1001), sent(1002))
      .at(START + WAIT, () => {
        c.rig.x.expire(ns);
        c.rig.put(encodeFrame(c.there, ack({ psn: 1002, msn: 3 })));
        c.rig.x.rx(ns, 1);
      })
      .silent()
      .wc({ wrId: 1 }, { wrId: 2 })
      .at(10 * ACK_TIMER)
      .silent()
      .counts({ roce_adp_retrans: 1, retransmits: RETRANSMITTED });
  });

  test('repeats again for a peer that sends one NAK and misses the repeated packet as well', async () => {
    const c = await measuredAfterLoss();
    c.post(START, ping(1), ping(2))
      .out(sent(1001), sent(1002))
      .in(START + 500, nak.sequence({ psn: 1001, msn: 1 }))
      .out(sent(1001), sent(1002))
      .at(START + 500 + WAIT)
      .out(sent(1001))
      .in(START + 4000, ack({ psn: 1001, msn: 2 }))
      .out(sent(1002))
      .wc({ wrId: 1 })
      .in(START + 4100, ack({ psn: 1002, msn: 3 }))
      .wc({ wrId: 2 })
      .counts({ local_ack_timeout_err: 0, rcvd_seq_err: 1 + RETRANSMITTED });
  });
});

describe('an early retransmission of a READ', () => {
  const read = (c: Conversation) => ({
    wrId: 1,
    opcode: 'RDMA_READ',
    pieces: [c.buffer.piece(0, 3072)],
    remote: REMOTE,
  });
  const part = (i: number): Uint8Array => pattern(1024, i);

  test('is timed by the first packet of its response', async () => {
    const c = await rc();
    c.post(1, read(c))
      .out(request.read({ psn: 1000, ...REMOTE, length: 3072, ackReq: true }))
      .in(701, response.readFirst({ psn: 1000, msn: 1, payload: part(0) }));
    expect(roundTrip(c)).toBe(700);
    c.in(900, response.readMiddle({ psn: 1001, payload: part(1) }))
      .in(1000, response.readLast({ psn: 1002, msn: 1, payload: part(2) }))
      .wc({ wrId: 1 });
    expect(roundTrip(c)).toBe(700);
  });

  test('requests the missing rest of a response that ends early', async () => {
    const c = await measuredAfterLoss();
    const later = { va: REMOTE.va + 1024n, rkey: REMOTE.rkey };
    c.post(START, read(c))
      .out(request.read({ psn: 1001, ...REMOTE, length: 3072, ackReq: true }))
      .in(START + 1000, response.readFirst({ psn: 1001, msn: 2, payload: part(0) }))
      .at(START + 1000 + 2500)
      .out(request.read({ psn: 1002, ...later, length: 2048, ackReq: true }))
      .in(START + 4000, response.readFirst({ psn: 1002, msn: 2, payload: part(1) }))
      .in(START + 4010, response.readLast({ psn: 1003, msn: 2, payload: part(2) }))
      .wc({ wrId: 1 })
      .holds(c.buffer, 1024, part(1));
  });
});
