/** Checks of READs, atomic operations, duplicates of requests, and RNR NAKs. */
import { Op } from '../packet/opcodes.js';
import { request } from '../packet/packets.js';
import { psnAfter } from '../packet/psn.js';
import type { ResponderCheck } from './check.js';
import { isAck } from './conversation.js';
import { isSame, Nak, pattern, type ResponderConversation, receivedText } from './responderconversation.js';
import type { ResponderOptions } from './target.js';

const WRITES: ResponderOptions = { receives: false, permits: ['WRITE'] };
const READS: ResponderOptions = { receives: false, permits: ['READ'] };
const ATOMICS: ResponderOptions = { receives: false, permits: ['ATOMIC'] };
const RECEIVES: ResponderOptions = { receives: true, permits: [] };
const NOT_READY: ResponderOptions = { receives: false, noReceives: true, anyOf: ['WRITE', 'READ', 'ATOMIC'] };

/** Opcodes of the answer to a READ of three packets. */
const READ_OPCODES = [Op.RDMA_READ_RESPONSE_FIRST, Op.RDMA_READ_RESPONSE_MIDDLE, Op.RDMA_READ_RESPONSE_LAST] as const;

const littleEndian = (value: bigint): Uint8Array => new Uint8Array(BigUint64Array.of(value).buffer);

/** Sends FETCH_ADD. @returns the value before, as the peer says it */
async function fetchAdd(talk: ResponderConversation, psn: number, add: bigint): Promise<bigint> {
  const { va, rkey } = talk.region;
  talk.send(request.fetchAdd({ psn, va, rkey, add, ackReq: true }));
  const answer = await talk.answerTo(psn, 'a FETCH_ADD');
  return answer.atomicack ?? talk.fail(`a FETCH_ADD: ${receivedText(answer)} instead of the value`);
}

/** Puts a value into memory by a WRITE. @returns the value, or that which is there if the peer permits no WRITE */
async function startValue(talk: ResponderConversation, value: bigint): Promise<bigint> {
  if (!talk.permits('WRITE')) return await fetchAdd(talk, talk.take(), 0n);
  await talk.done(talk.write(littleEndian(value)), 'a WRITE');
  return value;
}

/** Fails unless memory holds a value, as a READ says, or FETCH_ADD 0 if the peer does not permit to look otherwise. */
async function holdsValue(talk: ResponderConversation, value: bigint, otherwise: string): Promise<void> {
  if (talk.permits('READ') && talk.permits('WRITE')) await talk.holds(0, littleEndian(value), otherwise);
  else if ((await fetchAdd(talk, talk.take(), 0n)) !== value) talk.fail(otherwise);
}

const duplicateWrite: ResponderCheck = {
  number: 18,
  name: 'duplicate-write',
  title: 'A duplicate WRITE is acknowledged and not carried out again',
  clause: 'IBTA volume 1, chapter 9: responder, duplicate requests',
  sends: 'two WRITEs to one place, and the first one again',
  expects: 'an ACK, and memory as the second WRITE has left it',
  needs: WRITES,
  async run(talk) {
    const [first, second] = [talk.write(pattern(8, 1)), talk.write(pattern(8, 2))];
    await talk.done([...first, ...second], 'two WRITEs');
    talk.send(first);
    const answer = await talk.answer('a duplicate WRITE');
    if (answer.aeth === undefined || answer.aeth.syndrome >>> 5 !== 0)
      talk.fail(`a duplicate WRITE: ${receivedText(answer)} instead of an ACK`);
    await talk.unchanged(0, pattern(8, 2), pattern(8, 1), 'a duplicate WRITE');
  },
};

const duplicateSend: ResponderCheck = {
  number: 18,
  name: 'duplicate-send',
  title: 'A duplicate SEND is acknowledged and takes no receive',
  clause: 'IBTA volume 1, chapter 9: responder, duplicate requests',
  sends: 'a SEND, the same one again as often as receives are posted, and one more new one',
  expects: 'ACKs, no RNR NAK',
  needs: RECEIVES,
  async run(talk) {
    if (talk.peer.receives < 2) talk.notApplicable('the peer has posted less than two receives');
    const sent = talk.message(pattern(16, 1));
    for (let i = 0; i <= talk.peer.receives; i++) await talk.done(sent, i === 0 ? 'a SEND' : 'a duplicate SEND');
    await talk.done(talk.message(pattern(16, 2)), 'a SEND after the duplicates');
  },
};

const readResponses: ResponderCheck = {
  number: 19,
  name: 'read-responses',
  title: 'A READ is answered by full packets in order with the PSNs of the request',
  clause: 'IBTA volume 1, chapter 9: responses to READ requests',
  sends: 'a WRITE of three packets and a READ of the same bytes',
  expects: 'FIRST, MIDDLE, LAST with one PSN after the other, full but for the last one, and the data',
  needs: READS,
  async run(talk) {
    const { va, rkey } = talk.region;
    const data = pattern(2 * talk.mtu + 10, 1);
    const isWritten = talk.permits('WRITE');
    if (isWritten) await talk.done(talk.write(data), 'a WRITE');
    else talk.note('the data was not looked at: the peer permits no WRITE');
    const psn = talk.take(3);
    talk.send(request.read({ psn, va, rkey, length: data.length }));
    for (const [i, opcode] of READ_OPCODES.entries()) {
      const { bth, payload } = await talk.answerTo(psnAfter(psn, i), 'a READ');
      if (bth.opcode !== opcode) talk.fail(`packet ${i + 1} of 3 is ${Op[bth.opcode]} instead of ${Op[opcode]}`);
      if (bth.psn !== psnAfter(psn, i)) talk.fail(`packet ${i + 1} has PSN ${bth.psn} instead of ${psnAfter(psn, i)}`);
      const expected = data.subarray(i * talk.mtu, (i + 1) * talk.mtu);
      const isRight = isWritten ? isSame(payload, expected) : payload.length === expected.length;
      if (!isRight) talk.fail(`packet ${i + 1} of 3 has other data (${payload.length} bytes)`);
    }
  },
};

const duplicateRead: ResponderCheck = {
  number: 19,
  name: 'duplicate-read',
  title: 'A duplicate READ is carried out again',
  clause: 'IBTA volume 1, chapter 9: responder, duplicate READ requests',
  sends: 'a READ of three packets, a WRITE of other bytes, the same READ again, and its last two packets only',
  expects: 'the bytes that are there each time; FIRST and LAST for the last two packets',
  known: { middle: { of: 'rxe', what: 'a READ that is repeated from its middle on is answered by MIDDLE and LAST' } },
  needs: READS,
  async run(talk) {
    const { va, rkey } = talk.region;
    const { mtu } = talk;
    const [before, other] = [pattern(3 * mtu, 1), pattern(3 * mtu, 4)];
    const isWritten = talk.permits('WRITE');
    if (isWritten) await talk.done(talk.write(before), 'a WRITE');
    const psn = talk.psn;
    const found = await talk.read(0, before.length);
    // a peer that has kept the answer shows by the old bytes
    if (isWritten) await talk.done(talk.write(other), 'a WRITE');
    else talk.note('no other bytes came between: the peer permits no WRITE');
    const data = isWritten ? other : found;
    let isMiddle = false;
    for (const from of [0, 1]) {
      const rest = data.subarray(from * mtu);
      const at = { va: va + BigInt(from * mtu), rkey, length: rest.length };
      talk.send(request.read({ psn: psnAfter(psn, from), ...at, ackReq: true }));
      for (let i = from; i < 3; i++) {
        let answer = await talk.answerTo(psnAfter(psn, i), 'a duplicate READ');
        // the path may have doubled the ACK of the WRITE, whose PSN is later
        while (isWritten && isAck(answer)) answer = await talk.answerTo(psnAfter(psn, i), 'a duplicate READ');
        const { opcode } = answer.bth;
        if (answer.payload.length === 0) talk.fail(`a duplicate READ: ${receivedText(answer)} instead of the data`);
        isMiddle ||= from > 0 && i === from && opcode === Op.RDMA_READ_RESPONSE_MIDDLE;
        const bytes = data.subarray(i * mtu, (i + 1) * mtu);
        const isOld = isWritten && isSame(answer.payload, before.subarray(i * mtu, (i + 1) * mtu));
        if (isOld) talk.fail('a duplicate READ gives the bytes of the first answer, others are there now');
        if (!isSame(answer.payload, bytes)) talk.fail('a duplicate READ gives other data');
      }
    }
    if (isMiddle) talk.deviates('middle', 'the rest of a READ begins with MIDDLE instead of FIRST');
  },
};

const atomics: ResponderCheck = {
  number: 15,
  name: 'atomic-values',
  title: 'Atomic operations return the value before, and change memory',
  clause: 'IBTA volume 1, chapter 9: atomic operations',
  sends: 'FETCH_ADD 5, COMPARE_SWAP with the right and with a wrong value',
  expects: 'the values before; the wrong comparison changes nothing',
  needs: ATOMICS,
  async run(talk) {
    const { va, rkey } = talk.region;
    const start = await startValue(talk, 1000n);
    const sum = BigInt.asUintN(64, start + 5n);
    const first = await fetchAdd(talk, talk.take(), 5n);
    if (first !== start) talk.fail(`FETCH_ADD says ${first} instead of ${start}`);
    for (const [compare, swap, before] of [
      [sum, 77n, sum],
      [4n, 99n, 77n],
    ] as const) {
      const psn = talk.take();
      talk.send(request.compareSwap({ psn, va, rkey, compare, swap, ackReq: true }));
      const { atomicack } = await talk.answerTo(psn, 'a COMPARE_SWAP');
      if (atomicack !== before) talk.fail(`COMPARE_SWAP says ${atomicack} instead of ${before}`);
    }
    await holdsValue(talk, 77n, 'memory differs from what the atomic operations have said');
  },
};

const duplicateAtomic: ResponderCheck = {
  number: 20,
  name: 'duplicate-atomic',
  title: 'A duplicate atomic operation gives the saved answer and is not carried out again',
  clause: 'IBTA volume 1, chapter 9: responder, duplicate atomic requests',
  sends: 'a FETCH_ADD, another one, and the first one again',
  expects: 'the value of the first answer, and both additions once',
  known: { data: { of: 'rxe of 2022', what: 'the saved answer has wrong data' } },
  needs: ATOMICS,
  async run(talk) {
    const start = await startValue(talk, 1000n);
    const psn = talk.take();
    const before = await fetchAdd(talk, psn, 5n);
    await fetchAdd(talk, talk.take(), 7n);
    const again = await fetchAdd(talk, psn, 5n);
    await holdsValue(talk, BigInt.asUintN(64, start + 12n), 'the duplicate was carried out');
    if (again !== before) talk.deviates('data', `the duplicate says ${again}, the first answer said ${before}`);
  },
};

const unalignedAtomic: ResponderCheck = {
  number: 36,
  name: 'unaligned-atomic',
  title: 'An atomic operation at an address that is no multiple of eight is refused',
  clause: 'IBTA volume 1, chapter 9: atomic operations, alignment',
  sends: 'a FETCH_ADD at an address with 4 beyond a multiple of eight',
  expects: 'a NAK 0x61',
  needs: ATOMICS,
  isIntrusive: true,
  async run(talk) {
    const { va, rkey } = talk.region;
    talk.send(request.fetchAdd({ psn: talk.take(), va: va + 4n, rkey, add: 1n, ackReq: true }));
    await talk.refused(Nak.INVALID_REQUEST, 'an unaligned FETCH_ADD');
  },
};

/** Uses up the receives. @returns the RNR NAK of one SEND more, and its PSN */
async function notReady(talk: ResponderConversation) {
  const psn = talk.take();
  talk.send(request.sendOnly({ psn, payload: pattern(16, 1), ackReq: true }));
  const answer = await talk.answer('a SEND without receive');
  if ((answer.aeth?.syndrome ?? 0) >>> 5 !== 1)
    talk.fail(`a SEND without receive: ${receivedText(answer)} instead of an RNR NAK`);
  return { answer, psn };
}

const rnr: ResponderCheck = {
  number: 28,
  name: 'rnr-nak',
  title: 'A SEND without receive is answered by an RNR NAK with its PSN and the timer',
  clause: 'IBTA volume 1, chapter 9: responder, RNR NAK',
  sends: 'a SEND without receive',
  expects: 'an RNR NAK with its PSN, and the code of the timer of the queue pair where it is known',
  counts: ['rnr_timer_code'],
  needs: { receives: false, noReceives: true, permits: [] },
  async run(talk) {
    const { answer, psn } = await notReady(talk);
    const code = (answer.aeth?.syndrome ?? 0) & 31;
    talk.measure('rnr_timer_code', code);
    if (answer.bth.psn !== psn) talk.fail(`the RNR NAK has PSN ${answer.bth.psn} instead of ${psn}`);
    const { rnrTimer } = talk.peer;
    if (rnrTimer !== undefined && code !== rnrTimer) talk.fail(`the timer has code ${code} instead of ${rnrTimer}`);
  },
};

const rnrRest: ResponderCheck = {
  number: 28,
  name: 'rnr-drops-the-rest',
  title: 'What follows a SEND without receive is not carried out',
  clause: 'IBTA volume 1, chapter 9: responder, RNR NAK',
  sends: 'a SEND without receive, and a WRITE or another request after it',
  expects: 'the request is not carried out and not acknowledged',
  known: { sequence: { of: 'rxe', what: 'an RNR NAK is followed by one NAK 0x60' } },
  needs: NOT_READY,
  async run(talk) {
    const before = pattern(8, 1);
    await talk.done([talk.request(1)], 'a request');
    const { psn } = await notReady(talk);
    talk.send(talk.request(2));
    const answer = await talk.next(50e6);
    talk.psn = psn;
    await talk.unchanged(0, before, pattern(8, 2), 'a request after an RNR NAK');
    if (answer?.aeth?.syndrome === Nak.SEQUENCE) talk.deviates('sequence', 'a NAK 0x60 follows the RNR NAK');
    if (answer !== undefined) talk.fail(`a request after an RNR NAK: ${receivedText(answer)} instead of silence`);
  },
};

/** In the order of their numbers. */
export const REPEAT_CHECKS: readonly ResponderCheck[] = [
  atomics,
  duplicateWrite,
  duplicateSend,
  readResponses,
  duplicateRead,
  duplicateAtomic,
  rnr,
  rnrRest,
  unalignedAtomic,
];
