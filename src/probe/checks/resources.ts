/** Checks of how many READs and atomic operations a peer takes at once. */
import { Op } from '../packet/opcodes.js';
import { type Packet, request } from '../packet/packets.js';
import { psnAfter } from '../packet/psn.js';
import type { ResponderCheck } from './check.js';
import { Nak, type ResponderConversation, receivedText } from './responderconversation.js';

/** Requests at once: more than adapters keep of one queue pair (16 is usual, 128 is the most that is known). */
const BURST = 160;
/** Returns READs and FETCH_ADDs by turns, each with one packet as its answer. */
function burst(talk: ResponderConversation): Packet[] {
  const { va, rkey } = talk.region;
  return Array.from({ length: BURST }, (_, i) => {
    const at = { psn: talk.take(), va, rkey };
    return i % 2 === 0 ? request.read({ ...at, length: 8 }) : request.fetchAdd({ ...at, add: 1n });
  });
}

const tooMany: ResponderCheck = {
  number: 35,
  name: 'too-many-reads',
  title: 'READs and atomic operations beyond the resources of the responder are refused, or answered like the others',
  clause: 'IBTA volume 1, chapter 9: responder resources for RDMA READ and atomic operations',
  sends: `${BURST} READs and FETCH_ADDs by turns, without waiting for an answer`,
  expects: 'all answers in order, or those that the resources permit and a NAK 0x61; requests_answered says which',
  counts: ['requests_answered'],
  needs: { receives: false },
  isIntrusive: true,
  async run(talk) {
    const requests = burst(talk);
    talk.send(requests);
    let before: bigint | undefined;
    for (const [done, { bth }] of requests.entries()) {
      const name = `request ${done + 1} of ${BURST} at once`;
      const answer = await talk.answerTo(bth.psn, name);
      const { aeth, atomicack, payload } = answer;
      if (aeth?.syndrome === Nak.INVALID_REQUEST && answer.bth.psn === bth.psn) return refused(talk, done);
      const isKind = bth.opcode === Op.FETCH_ADD ? atomicack !== undefined : payload.length === 8;
      if (!isKind || answer.bth.psn !== bth.psn) talk.fail(`${name}: ${receivedText(answer)} instead of its answer`);
      if (atomicack !== undefined && before !== undefined && atomicack !== BigInt.asUintN(64, before + 1n))
        talk.fail(`${name}: FETCH_ADD says ${atomicack}, the one before it said ${before}`);
      before = atomicack ?? before;
    }
    talk.measure('requests_answered', BURST);
    await talk.alive('all of them');
  },
};

/** The responder has refused a request with so many before it. */
function refused(talk: ResponderConversation, answered: number): void {
  talk.measure('requests_answered', answered);
  const { resources } = talk.peer;
  if (resources !== undefined && answered < resources)
    talk.fail(`${answered} requests are answered, the responder has resources for ${resources}`);
}

const oldAtomic: ResponderCheck = {
  number: 20,
  name: 'old-atomic',
  title: 'A duplicate atomic operation whose answer is no longer saved is not carried out again',
  clause: 'IBTA volume 1, chapter 9: responder, duplicate atomic requests',
  sends: `${BURST} FETCH_ADDs one after the other, and the first one again`,
  expects: 'silence, or the answer of the first time where it is still saved; memory unchanged',
  needs: { receives: false },
  async run(talk) {
    const { va, rkey } = talk.region;
    const first = talk.psn;
    let last: bigint | undefined;
    let original: bigint | undefined;
    for (let i = 0; i < BURST; i++) {
      const psn = talk.take();
      talk.send(request.fetchAdd({ psn, va, rkey, add: 1n }));
      const answer = await talk.answerTo(psn, 'a FETCH_ADD');
      last = answer.atomicack ?? talk.fail(`a FETCH_ADD: ${receivedText(answer)} instead of the value`);
      original ??= last;
    }
    talk.send(request.fetchAdd({ psn: first, va, rkey, add: 1n }));
    const again = await talk.next(20e6);
    // the path may have doubled the answer to the last one
    const isLast = again?.bth.psn === psnAfter(talk.psn, -1) && again.atomicack === last;
    if (again !== undefined && !isLast && again.atomicack !== original)
      talk.fail(`an old FETCH_ADD: ${receivedText(again)} with ${again.atomicack}, the first answer said ${original}`);
    const after = talk.take();
    talk.send(request.fetchAdd({ psn: after, va, rkey, add: 1n }));
    const { atomicack } = await talk.answerTo(after, 'a FETCH_ADD after the old one');
    const expected = BigInt.asUintN(64, (last ?? 0n) + 1n);
    if (atomicack === expected) return;
    if (atomicack === BigInt.asUintN(64, expected + 1n)) talk.fail('the old FETCH_ADD was carried out again');
    talk.fail(`a FETCH_ADD after the old one says ${atomicack} instead of ${expected}`);
  },
};

/** In the order of their numbers. */
export const RESOURCE_CHECKS: readonly ResponderCheck[] = [oldAtomic, tooMany];
