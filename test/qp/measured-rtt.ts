/** For tests of adaptive retransmission: connections whose round-trip time is measured. */

import { ack, nak, type Packet, request } from '../../src/probe/packet/packets.js';
import { type Conversation, PING, type RcOptions, rc } from '../kit/conversation.js';

export const sent = (psn: number): Packet => request.sendOnly({ psn, payload: PING, ackReq: true });
export const ping = (wrId: number) => ({ wrId, opcode: 'SEND', inline: PING });
export const REMOTE = { va: 0x1000n, rkey: 0x77 };

/** 4.096 us times 2^14, the default. */
export const ACK_TIMER = 67108.864;
/** First round trip in microseconds, and the timeout that it gives: itself plus four times its half. */
export const ROUND_TRIP = 1000;
export const WAIT = 3 * ROUND_TRIP;
/** When the preparation is over; the next PSN is 1001. */
export const START = 10_000;

/** A connection with a measured round trip and without loss. (It does not start at time 0, which stands for none.) */
export async function measured(options: RcOptions = {}, roundTrip = ROUND_TRIP): Promise<Conversation> {
  return timed(await rc(options), roundTrip);
}

/** Minimum timeout in microseconds without a recent loss, and how long a loss is remembered. */
export const MIN_RTO = 16_000;
export const LOSSY_PERIOD = 250_000;
/** Number of packets that were retransmitted. */
export const RETRANSMITTED = 1;

/** A connection with a measured round trip and a recent loss. */
export async function measuredAfterLoss(options: RcOptions = {}, roundTrip = ROUND_TRIP): Promise<Conversation> {
  const c = await rc({ ...options, sqPsn: 999 });
  c.post(1, ping(99))
    .out(sent(999))
    .in(2, nak.sequence({ psn: 999, msn: 0 }))
    .out(sent(999))
    .in(3, ack({ psn: 999, msn: 1 }))
    .wc({ wrId: 99 });
  return timed(c, roundTrip);
}

function timed(c: Conversation, roundTrip: number): Conversation {
  return c
    .post(10, ping(100))
    .out(sent(1000))
    .in(10 + roundTrip, ack({ psn: 1000, msn: 1 }))
    .wc({ wrId: 100 });
}

export const roundTrip = (c: Conversation) => c.qp.attribute('ROUND_TRIP') / 1000;
