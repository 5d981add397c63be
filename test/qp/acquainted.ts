/** For tests of adaptive retransmission: a peer whose round trips are known. */
import { type Conversation, PING, type RcOptions, rc } from '../kit/conversation.js';
import { ack, nak, type Packet, request } from '../kit/packets.js';

export const sent = (psn: number): Packet => request.sendOnly({ psn, payload: PING, ackReq: true });
export const ping = (wrId: number) => ({ wrId, opcode: 'SEND', inline: PING });
export const REMOTE = { va: 0x1000n, rkey: 0x77 };

/** 4.096 us times 2^14, the default. */
export const ACK_TIMER = 67108.864;
/** Microseconds of the first round trip, and how long an answer is then awaited: it, and four times the half of it. */
export const ROUND_TRIP = 1000;
export const WAIT = 3 * ROUND_TRIP;
/** When `acquainted` is over; the next PSN is 1001. */
export const START = 10_000;

/** A round trip has been measured, and nothing was lost. (Not from time 0 on, which stands for none.) */
export async function unharmed(options: RcOptions = {}, roundTrip = ROUND_TRIP): Promise<Conversation> {
  return timed(await rc(options), roundTrip);
}

/** Microseconds that an answer is awaited at least where nothing was lost, and for how long a loss is remembered. */
export const LEAST_WAIT = 16_000;
export const LOSSY_FOR = 250_000;
/** How many packets `acquainted` has repeated. */
export const REPEATED = 1;

/** A round trip has been measured, and a packet was lost. */
export async function acquainted(options: RcOptions = {}, roundTrip = ROUND_TRIP): Promise<Conversation> {
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
