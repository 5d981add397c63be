/** Checks of PSNs: gaps and their NAK, the sequence of opcodes, wrapping. */
import { type Packet, request } from '../packet/packets.js';
import { psnAfter } from '../packet/psn.js';
import type { ResponderCheck } from './check.js';
import {
  LONG_REQUESTS,
  Nak,
  pattern,
  REQUESTS,
  type ResponderConversation,
  receivedText,
} from './responderconversation.js';

/** Time without a packet after which a peer has said all (ns). */
const SETTLED = 5e6;

/** A late NAK is one that a timer sent, instead of the packet out of sequence. */
const NAK_GENERATION_LIMIT = 10e6;
/** Gaps, and the NAKs of which a busy host delays so many at most. */
const [GAPS, LATE_NAKS] = [10, 3];

/** A request that was left out, and the one behind it that was sent. */
interface Gap {
  readonly missing: Packet;
  readonly next: Packet;
  /** When `next` left. */
  readonly at: number;
}

/** Sends a request beyond a gap of one PSN. */
function skipOne(talk: ResponderConversation): Gap {
  const [missing, next] = [talk.request(3), talk.request(2)];
  return { missing, next, at: talk.send(next) };
}

/**
 * Sends everything from a gap on, as a requester does after the NAK: a peer may have dropped what was behind the gap,
 * or have kept it.
 */
async function repair(
  talk: ResponderConversation,
  { missing, next }: Gap,
  behind: readonly Packet[],
  what: string,
): Promise<void> {
  await talk.done([missing, next, ...behind], what);
  // a peer that has kept them acknowledges the repetitions, too
  while ((await talk.next(SETTLED)) !== undefined);
}

const gap: ResponderCheck = {
  number: 21,
  name: 'psn-gap',
  title: 'A gap in the PSNs is answered by one NAK with the expected PSN',
  clause: 'IBTA volume 1, chapter 9: responder, NAK of a PSN sequence error',
  sends: 'a request beyond a gap, three more of them, and then the missing one',
  expects: 'one NAK 0x60 with the PSN that is missing, none for the others, an ACK after the repair',
  needs: REQUESTS,
  async run(talk) {
    await talk.alive('the connection was made');
    const first = skipOne(talk);
    const missing = first.missing.bth.psn;
    const { bth } = await talk.refused(Nak.SEQUENCE, 'a PSN gap');
    if (bth.psn !== missing) talk.fail(`the NAK has PSN ${bth.psn}, ${missing} is missing`);
    const behind = [1, 2, 3].map(() => talk.request(4));
    talk.send(behind);
    await talk.silent('more packets beyond the same gap', missing);
    await repair(talk, first, behind, 'the missing packet');
    await talk.alive('the repair');
    // a second gap is news
    const again = skipOne(talk);
    await talk.refused(Nak.SEQUENCE, 'a second PSN gap');
    await repair(talk, again, [], 'the second missing packet');
  },
};

const nakGeneration: ResponderCheck = {
  number: 22,
  name: 'nak-generation',
  title: 'The NAK of a gap is sent at once',
  clause: 'IBTA volume 1, chapter 9: responder, NAK of a PSN sequence error',
  sends: 'ten requests, each beyond a gap that is repaired afterwards',
  expects: `a NAK of each within ${NAK_GENERATION_LIMIT / 1e6} ms, but for ${LATE_NAKS}; the times are reported as nak_generation`,
  known: { slow: { of: 'CX4-Lx', what: 'the NAK takes 100 us and more' } },
  needs: REQUESTS,
  async run(talk) {
    const times: number[] = [];
    for (let i = 0; i < GAPS; i++) {
      const left = skipOne(talk);
      const refusal = await talk.refused(Nak.SEQUENCE, 'a PSN gap');
      talk.measure('nak_generation', refusal.at - left.at);
      times.push(refusal.at - left.at);
      await repair(talk, left, [], 'the missing packet');
    }
    const late = times.filter((time) => time > NAK_GENERATION_LIMIT);
    if (late.length > LATE_NAKS)
      talk.fail(`${late.length} of ${GAPS} NAKs came late, the last one after ${(late.at(-1) ?? 0) / 1e6} ms`);
  },
};

const opcodeSequence: ResponderCheck = {
  number: 34,
  name: 'opcode-sequence',
  title: 'A middle or last packet without a first one is refused',
  clause: 'IBTA volume 1, chapter 9: responder, sequence of opcodes',
  sends: 'on one connection a middle packet as the first one, on another one an only packet inside of a message',
  expects: 'a NAK 0x61 of each',
  needs: LONG_REQUESTS,
  isIntrusive: true,
  async run(talk) {
    const middle = talk.permits('WRITE') ? request.writeMiddle : request.sendMiddle;
    talk.send(middle({ psn: talk.take(), payload: pattern(talk.mtu, 1), ackReq: true }));
    await talk.refused(Nak.INVALID_REQUEST, 'a middle packet without a first one');
    const other = await talk.another();
    const [first] = other.long(pattern(3 * other.mtu, 1));
    if (first === undefined) return;
    other.psn = psnAfter(first.bth.psn, 1);
    other.send([first, other.request(2)]);
    await other.refused(Nak.INVALID_REQUEST, 'an only packet inside of a message');
  },
};

const wrap: ResponderCheck = {
  number: 55,
  name: 'psn-wrap',
  title: 'PSNs continue with 0 after 2^24 - 1',
  clause: 'IBTA volume 1, chapter 9: packet sequence numbers',
  sends: 'a WRITE of four packets, or four other requests, across the wrap, and a duplicate from before it',
  expects: 'ACKs, the data, and an ACK of the duplicate',
  needs: { ...REQUESTS, psn: 0xfffffe },
  async run(talk) {
    if (talk.peer.psn !== 0xfffffe) talk.notApplicable('the target chooses the first PSN');
    const data = pattern(4 * talk.mtu, 1);
    const packets = talk.permits('WRITE') ? talk.write(data) : [1, 2, 3, 4].map((seed) => talk.request(seed));
    await talk.done(packets, 'requests across the wrap');
    talk.send(talk.request(2, { psn: 0xffffff }));
    const duplicate = await talk.answer('a duplicate from before the wrap');
    if (duplicate.aeth === undefined || duplicate.aeth.syndrome >>> 5 !== 0)
      talk.fail(`a duplicate from before the wrap: ${receivedText(duplicate)} instead of an ACK`);
    await talk.holds(0, data.subarray(0, 64), 'the data of a WRITE across the wrap is wrong');
  },
};

const reconnect: ResponderCheck = {
  number: 55,
  name: 'psn-after-reconnect',
  title: 'A new connection begins with its own PSN, and not where the one before has ended',
  clause: 'IBTA volume 1, chapter 9: packet sequence numbers; chapter 10: reset of a queue pair',
  sends: 'four requests, and one on the connection that is made when the first one has ended',
  expects: 'an ACK of each',
  needs: REQUESTS,
  async run(talk) {
    for (let i = 0; i < 4; i++) await talk.done([talk.request(i)], 'a request');
    await talk.target.release?.();
    const other = await talk.another();
    const first = other.request(5);
    other.send(first);
    const what = 'the first request of a new connection';
    const answer = await other.answer(what);
    const { psn } = first.bth;
    if (answer.aeth?.syndrome === Nak.SEQUENCE && answer.bth.psn === talk.psn && psn !== talk.psn)
      other.fail(`the peer expects PSN ${talk.psn} of the connection before instead of ${psn}`);
    await other.acked(psn, what, answer);
  },
};

/** In the order of their numbers. */
export const SEQUENCE_CHECKS: readonly ResponderCheck[] = [gap, nakGeneration, opcodeSequence, wrap, reconnect];
