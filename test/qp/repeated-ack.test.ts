/**
 * An ACK that comes early, while the peer is about to send again what it covers, is repeated once when nothing new
 * comes: rxe needs it, other peers take it for a credit update (IBTA 9.7.7.2.4).
 */
import { describe, expect, test } from 'vitest';
import { ack, nak, request, response } from '../../src/probe/packet/packets.js';
import { type Conversation, pattern, rc, send, TARGET_VA } from '../kit/conversation.js';
import { ACK_TIMER } from './measured-rtt.js';

/** A gap of one packet is filled, and the ACK covers the packet behind it. */
const filled = async (receives = 8): Promise<Conversation> =>
  (await rc({ receives, minRnrTimer: 14 }))
    .in(0, send({ psn: 101 }))
    .out(nak.sequence({ psn: 100 }))
    .in(1, send({ psn: 100, ackReq: false }))
    .out(ack({ psn: 101, msn: 2 }))
    .wc({ wrId: 1 }, { wrId: 2 });

const repeats = (c: Conversation): number =>
  c.rig.decisions(c.qp.qpn).filter((line) => line.includes('repeats the ACK of psn 101')).length;

describe('the ACK of what waited behind a gap', () => {
  test('is repeated once, after an ACK timeout without anything new', async () => {
    const c = await filled();
    c.at(1 + ACK_TIMER - 0.001)
      .silent()
      .at(1 + ACK_TIMER)
      .out(ack({ psn: 101, msn: 2 }))
      .at(10 * ACK_TIMER)
      .silent();
    expect(repeats(c)).toBe(1);
  });

  test('is not repeated when something new has come', async () => {
    const c = await filled();
    c.in(2, send({ psn: 102, ackReq: false }))
      .wc({ wrId: 3 })
      .at(10 * ACK_TIMER)
      .silent();
    expect(repeats(c)).toBe(0);
  });

  test('is not repeated while a NAK of another gap waits for its answer', async () => {
    const c = await filled();
    c.in(2, send({ psn: 103 }))
      .out(nak.sequence({ psn: 102, msn: 2 }))
      .at(10 * ACK_TIMER)
      .silent();
  });

  test('is not repeated while an RNR NAK waits for its answer', async () => {
    const c = await filled(2);
    c.in(2, send({ psn: 102 }))
      .out(nak.rnr({ psn: 102, msn: 2, timer: 14 }))
      .at(10 * ACK_TIMER)
      .silent();
  });

  test('is not repeated by a queue pair that has failed', async () => {
    const c = await filled(2);
    c.at(2, () => c.qp.modify({ STATE: 6 }))
      .at(10 * ACK_TIMER)
      .silent();
  });
});

describe('the ACK of a duplicate', () => {
  test('is repeated once if it covers more than the duplicate, after the last of them', async () => {
    const c = await rc({ receives: 8 });
    c.in(0, send({ psn: 100, ackReq: false }), send({ psn: 101 }))
      .out(ack({ psn: 101, msn: 2 }))
      .wc({ wrId: 1 }, { wrId: 2 })
      .in(ACK_TIMER, send({ psn: 100, ackReq: false }))
      .out(ack({ psn: 101, msn: 2 }))
      .in(ACK_TIMER + 5, send({ psn: 100, ackReq: false }))
      .out(ack({ psn: 101, msn: 2 }))
      .at(2 * ACK_TIMER + 4.999)
      .silent()
      .at(2 * ACK_TIMER + 5)
      .out(ack({ psn: 101, msn: 2 }))
      .at(10 * ACK_TIMER)
      .silent();
  });

  test('is not repeated if the duplicate is the newest packet', async () => {
    const c = await rc({ receives: 8 });
    c.in(0, send({ psn: 100 }))
      .out(ack({ psn: 100, msn: 1 }))
      .wc({ wrId: 1 })
      .in(5, send({ psn: 100 }))
      .out(ack({ psn: 100, msn: 1 }))
      .at(10 * ACK_TIMER)
      .silent();
  });

  test('never covers a READ behind it, whose response alone acknowledges it', async () => {
    const c = await rc({ receives: 8 });
    const read = request.read({ psn: 102, va: TARGET_VA, rkey: c.target.rkey, length: 4 });
    const data = response.readOnly({ psn: 102, msn: 3, payload: pattern(4, 2) });
    c.in(0, send({ psn: 100, ackReq: false }), send({ psn: 101, ackReq: false }), read)
      .out(data)
      .wc({ wrId: 1 }, { wrId: 2 })
      .in(5, send({ psn: 100, ackReq: false }))
      .out(ack({ psn: 101, msn: 3 }))
      .at(5 + ACK_TIMER)
      .out(ack({ psn: 101, msn: 3 }))
      .at(10 * ACK_TIMER)
      .silent();
  });
});
