/** Checks of messages: of no bytes, and in packets of a smaller path MTU than the link has. */
import { Op } from '../packet/opcodes.js';
import { request } from '../packet/packets.js';
import type { ResponderCheck } from './check.js';
import { isSame, pattern, receivedText } from './responderconversation.js';

/** The smallest path MTU (IBTA 9.2: code 1). */
const SMALLEST_MTU = 256;

const empty: ResponderCheck = {
  number: 33,
  name: 'empty-messages',
  title: 'Messages of no bytes are carried out, of every kind',
  clause: 'IBTA volume 1, chapter 9: zero-length SEND, WRITE and READ',
  sends: 'what the peer permits of: a SEND, a WRITE and a READ of no bytes, SEND and WRITE also with immediate data',
  expects: 'ACKs, and a READ response without data; then an answer to another request',
  needs: { receives: false, anyOf: ['WRITE', 'READ', 'SEND'] },
  async run(talk) {
    const { va, rkey } = talk.region;
    const none = new Uint8Array(0);
    const next = () => ({ psn: talk.take(), ackReq: true, payload: none });
    if (talk.permits('SEND')) {
      await talk.done([request.sendOnly(next())], 'a SEND of no bytes');
      await talk.done([request.sendOnlyImm({ ...next(), imm: 7 })], 'a SEND of no bytes with immediate data');
    }
    if (talk.permits('WRITE')) await talk.done([request.writeOnly({ ...next(), va, rkey })], 'a WRITE of no bytes');
    if (talk.permits('WRITE') && talk.permits('SEND'))
      await talk.done(
        [request.writeOnlyImm({ ...next(), va, rkey, imm: 8 })],
        'a WRITE of no bytes with immediate data',
      );
    if (talk.permits('READ')) {
      const psn = talk.take();
      talk.send(request.read({ psn, va, rkey, length: 0, ackReq: true }));
      const answer = await talk.answerTo(psn, 'a READ of no bytes');
      if (answer.bth.opcode !== Op.RDMA_READ_RESPONSE_ONLY)
        talk.fail(`a READ of no bytes: ${receivedText(answer)} instead of a READ response`);
      if (answer.payload.length > 0) talk.fail(`${answer.payload.length} bytes for a READ of none`);
    }
    await talk.done([talk.request()], 'a request after messages of no bytes');
  },
};

const smallMtu: ResponderCheck = {
  number: 19,
  name: 'smaller-mtu',
  title: 'A connection with a smaller path MTU than the link has keeps to it',
  clause: 'IBTA volume 1, chapter 9: path MTU of a connection',
  sends: `over a connection with a path MTU of ${SMALLEST_MTU} a WRITE of three packets, and a READ of the same bytes`,
  expects: `an ACK, and three packets of no more than ${SMALLEST_MTU} bytes with the data`,
  needs: { receives: false, permits: ['WRITE', 'READ'], mtu: SMALLEST_MTU },
  async run(talk) {
    if (talk.mtu !== SMALLEST_MTU) talk.notApplicable(`the target chooses the path MTU, ${talk.mtu}`);
    const { va, rkey } = talk.region;
    const data = pattern(2 * SMALLEST_MTU + 88, 5);
    await talk.done(talk.write(data), 'a WRITE of three packets');
    talk.send(request.read({ psn: talk.take(3), va, rkey, length: data.length, ackReq: true }));
    for (let i = 0; i < 3; i++) {
      const { payload } = await talk.answer('a READ of three packets');
      if (payload.length > SMALLEST_MTU) talk.fail(`packet ${i + 1} of 3 has ${payload.length} bytes`);
      if (i === 0 && !isSame(payload, data.subarray(0, SMALLEST_MTU))) talk.fail('packet 1 of 3 has other data');
    }
  },
};

/** In the order of their numbers. */
export const MESSAGE_CHECKS: readonly ResponderCheck[] = [smallMtu, empty];
