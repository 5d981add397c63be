/** Checks of ACKs: their PSN, their MSN, their credits. */
import { request } from '../packet/packets.js';
import { psnAfter } from '../packet/psn.js';
import type { ResponderCheck } from './check.js';
import { LONG_REQUESTS, pattern, REQUESTS } from './responderconversation.js';

/** Credit code of responders without credits. */
const NO_CREDITS = 31;

/** Returns the number of receives of a credit code (IBTA end-to-end flow control, encoding of credits). */
const creditsOf = (code: number): number => (code < 2 ? code : (2 + (code & 1)) << ((code >> 1) - 1));

const ackRequest: ResponderCheck = {
  number: 13,
  name: 'ack-request',
  title: 'A request for an ACK is answered by an ACK of that packet',
  clause: 'IBTA volume 1, chapter 9: responder, ACK request bit',
  sends: 'ten WRITEs, or other requests, that request an ACK',
  expects: 'an ACK with the PSN of each; the times are reported as ack_generation',
  needs: REQUESTS,
  async run(talk) {
    for (let i = 0; i < 10; i++) {
      const at = talk.send(talk.request(i));
      const sent = psnAfter(talk.psn, -1);
      const answer = await talk.acked(sent, 'a request');
      if (answer.bth.psn !== sent) talk.fail(`an ACK of PSN ${answer.bth.psn}, ${sent} was the last that was sent`);
      talk.measure('ack_generation', answer.at - at);
    }
    const last = psnAfter(talk.psn, -1);
    // no ACK may come of what was not sent
    const more = await talk.next(50e6);
    if (more !== undefined && more.bth.psn !== last) talk.fail(`an ACK of PSN ${more.bth.psn} after the last request`);
  },
};

const midMessage: ResponderCheck = {
  number: 14,
  name: 'ack-in-message',
  title: 'An ACK in the middle of a message does not count the message',
  clause: 'IBTA volume 1, chapter 9: message sequence number',
  sends: 'a WRITE or SEND of three packets, each of which requests an ACK',
  expects: 'the MSN grows with the ACK of the last packet only',
  needs: LONG_REQUESTS,
  async run(talk) {
    const start = (await talk.done([talk.request()], 'a request')).aeth?.msn ?? 0;
    const packets = talk.long(pattern(3 * talk.mtu, 2));
    for (const packet of packets) {
      const asking = { ...packet, bth: { ...packet.bth, ackReq: true } };
      const { aeth } = await talk.done([asking], 'a packet of three');
      if (packet !== packets.at(-1) && aeth?.msn !== start)
        talk.fail(`the MSN grew from ${start} to ${aeth?.msn} in the middle of a message`);
    }
  },
};

const msn: ResponderCheck = {
  number: 15,
  name: 'msn',
  title: 'The MSN grows by one with each message',
  clause: 'IBTA volume 1, chapter 9: message sequence number',
  sends: 'what the peer permits of: a SEND, WRITEs of one and of three packets, a READ, and an atomic operation',
  expects: 'the MSN of the last response is one more each time',
  needs: REQUESTS,
  async run(talk) {
    const { va, rkey } = talk.region;
    let before = (await talk.done([talk.request()], 'a request')).aeth?.msn ?? 0;
    const counted = (what: string, now: number | undefined) => {
      const expected = (before + 1) & 0xffffff;
      if (now !== expected) talk.fail(`the MSN after ${what} is ${now} instead of ${expected}`);
      before = expected;
    };
    if (talk.permits('SEND')) counted('a SEND', (await talk.done(talk.message(pattern(64, 2)), 'a SEND')).aeth?.msn);
    if (talk.permits('WRITE')) {
      counted('a WRITE', (await talk.done(talk.write(pattern(8, 3)), 'a WRITE')).aeth?.msn);
      counted('a long WRITE', (await talk.done(talk.write(pattern(3 * talk.mtu, 4)), 'a long WRITE')).aeth?.msn);
    }
    if (talk.permits('READ')) {
      const psn = talk.take();
      talk.send(request.read({ psn, va, rkey, length: 8 }));
      counted('a READ', (await talk.answerTo(psn, 'a READ')).aeth?.msn);
    }
    if (!talk.permits('ATOMIC')) return;
    const psn = talk.take();
    talk.send(request.fetchAdd({ psn, va, rkey, add: 1n }));
    counted('an atomic operation', (await talk.answerTo(psn, 'an atomic operation')).aeth?.msn);
  },
};

const credits: ResponderCheck = {
  number: 16,
  name: 'credits',
  title: 'ACKs give no more credits than receives are posted',
  clause: 'IBTA volume 1, chapter 9: end-to-end flow control, credits of ACKs',
  sends: 'SENDs',
  expects: 'a code whose number of receives is there; code 31 where the connection has no flow control',
  counts: ['credit_code'],
  known: { none: { of: 'rxe', what: 'ACKs have code 31, which tells nothing, although receives are posted' } },
  needs: { receives: true, permits: [] },
  async run(talk) {
    let isSilent = false;
    for (let sent = 1; sent <= Math.min(4, talk.peer.receives); sent++) {
      const { aeth } = await talk.done(talk.message(pattern(16, sent)), 'a SEND');
      const code = (aeth?.syndrome ?? 0) & 31;
      talk.measure('credit_code', code);
      const left = talk.peer.receives - sent;
      if (code !== NO_CREDITS && creditsOf(code) > left)
        talk.fail(`${creditsOf(code)} credits (code ${code}), although ${left} receives are left`);
      isSilent ||= code === NO_CREDITS;
    }
    if (isSilent && talk.peer.hasFlowControl !== false) talk.deviates('none', 'ACKs have code 31, receives are posted');
  },
};

/** In the order of their numbers. */
export const ACK_CHECKS: readonly ResponderCheck[] = [ackRequest, midMessage, msn, credits];
