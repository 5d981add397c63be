/** Checks of remote keys, rights, bounds and lengths. */
import { type Packet, request } from '../packet/packets.js';
import { psnAfter, psnDistance } from '../packet/psn.js';
import type { ResponderCheck } from './check.js';
import { isAck } from './conversation.js';
import { Nak, pattern, type ResponderConversation, receivedText } from './responderconversation.js';
import type { RemoteOperation, ResponderOptions } from './target.js';

/** The needs of a check of one operation. */
const only = (operation: RemoteOperation): ResponderOptions => ({ receives: false, permits: [operation] });
const CLAUSE = 'IBTA volume 1, chapter 9: responder, NAK of a remote access error';
/** Turns a key into one of another memory region. */
const OTHER_REGION = 0x7f000000;

/** Returns a key of no memory region of the peer. */
export const badKey = (talk: ResponderConversation): number => (talk.region.rkey ^ OTHER_REGION) >>> 0;

/** A request with a key that does not exist has to be refused. */
function badKeyCheck(
  name: string,
  what: string,
  operation: RemoteOperation,
  make: (talk: ResponderConversation, psn: number, rkey: number) => Packet,
): ResponderCheck {
  return {
    number: 30,
    name,
    title: `A ${what} with a key that does not exist is refused`,
    clause: CLAUSE,
    sends: `a ${what} whose R_Key is of no region`,
    expects: 'a NAK 0x62 with its PSN',
    needs: only(operation),
    isIntrusive: true,
    async run(talk) {
      await talk.alive('the connection was made');
      const psn = talk.take();
      talk.send(make(talk, psn, badKey(talk)));
      const { bth } = await talk.refused(Nak.REMOTE_ACCESS, `a ${what} with a bad key`);
      if (bth.psn !== psn) talk.fail(`the NAK has PSN ${bth.psn} instead of ${psn}`);
    },
  };
}

const badKeyWrite = badKeyCheck('bad-key-write', 'WRITE', 'WRITE', (talk, psn, rkey) =>
  request.writeOnly({ psn, va: talk.region.va, rkey, payload: pattern(8, 1), ackReq: true }),
);
const badKeyRead = badKeyCheck('bad-key-read', 'READ', 'READ', (talk, psn, rkey) =>
  request.read({ psn, va: talk.region.va, rkey, length: 8, ackReq: true }),
);
const badKeyAtomic = badKeyCheck('bad-key-atomic', 'FETCH_ADD', 'ATOMIC', (talk, psn, rkey) =>
  request.fetchAdd({ psn, va: talk.region.va, rkey, add: 1n, ackReq: true }),
);

const errorState: ResponderCheck = {
  number: 30,
  name: 'error-after-nak',
  title: 'After a fatal NAK the queue pair is in error, and silent',
  clause: 'IBTA volume 1, chapter 9: responder errors, class C',
  sends: 'a request with a bad key, and after its NAK a good one',
  expects: 'no answer to the good one',
  needs: { receives: false, anyOf: ['WRITE', 'READ', 'ATOMIC'] },
  isIntrusive: true,
  async run(talk) {
    const psn = talk.take();
    talk.send(talk.request(1, { psn, rkey: badKey(talk) }));
    await talk.fatal('a request with a bad key');
    talk.psn = psn;
    talk.send(talk.request(2));
    await talk.silent('a request to a queue pair in error', psn);
  },
};

const noRight: ResponderCheck = {
  number: 31,
  name: 'no-write-right',
  title: 'A WRITE to memory without that right is refused',
  clause: CLAUSE,
  sends: 'a WRITE to memory that has the right to READ only',
  expects: 'a NAK 0x62',
  known: { invalid: { of: 'CX5', what: 'NAK 0x61 instead of 0x62' } },
  needs: only('WRITE'),
  isIntrusive: true,
  async run(talk) {
    const { readOnly } = talk.peer;
    if (readOnly === undefined) return talk.notApplicable('the peer offers no memory that is READ only');
    const { va, rkey } = readOnly;
    talk.send(request.writeOnly({ psn: talk.take(), va, rkey, payload: pattern(8, 1), ackReq: true }));
    await talk.refused(Nak.REMOTE_ACCESS, 'a WRITE without the right', { [Nak.INVALID_REQUEST]: 'invalid' });
  },
};

/** The end of the memory has to be known. */
function needsEnd(talk: ResponderConversation): void {
  if (talk.region.isLonger) talk.notApplicable('the end of the memory that the peer offers is not known');
}

/** Returns a WRITE whose last bytes are beyond the end of the memory. */
const beyond = (talk: ResponderConversation, packets: number): Packet[] => {
  const { va, rkey, length } = talk.region;
  const payload = pattern(packets * talk.mtu, 3);
  return request.write({ psn: talk.take(packets), payload, mtu: talk.mtu, rkey, va: va + BigInt(length - 8) });
};

const bounds: ResponderCheck = {
  number: 32,
  name: 'write-over-end',
  title: 'A WRITE over the end of its memory is refused',
  clause: CLAUSE,
  sends: 'a WRITE of one packet over the end, and on another connection one of three packets',
  expects: 'a NAK 0x62; of the single packet nothing is written',
  known: {
    late: { of: 'CX5', what: 'packets before the end are carried out, the one over it is refused' },
  },
  needs: only('WRITE'),
  isIntrusive: true,
  async run(talk) {
    needsEnd(talk);
    const tail = talk.region.length - 8;
    const before = pattern(8, 1);
    await talk.done(talk.write(before, tail), 'a WRITE');
    talk.send(beyond(talk, 1));
    await talk.refused(Nak.REMOTE_ACCESS, 'a WRITE over the end');
    const other = await talk.another();
    if (other.region.rkey === talk.region.rkey)
      await other.holds(tail, before, 'a refused WRITE of one packet has changed memory');
    other.send(beyond(other, 3));
    await other.refused(Nak.REMOTE_ACCESS, 'a WRITE of three packets over the end');
  },
};

const readBounds: ResponderCheck = {
  number: 32,
  name: 'read-over-end',
  title: 'A READ over the end of its memory is refused',
  clause: CLAUSE,
  sends: 'a READ of eight bytes, four of them over the end',
  expects: 'a NAK 0x62 and no data',
  needs: only('READ'),
  isIntrusive: true,
  async run(talk) {
    needsEnd(talk);
    const { va, rkey, length } = talk.region;
    talk.send(request.read({ psn: talk.take(), va: va + BigInt(length - 4), rkey, length: 8, ackReq: true }));
    await talk.refused(Nak.REMOTE_ACCESS, 'a READ over the end');
  },
};

const zeroLength: ResponderCheck = {
  number: 33,
  name: 'zero-length',
  title: 'The key of a READ or WRITE of no bytes is not checked',
  clause: 'IBTA volume 1, chapter 9: zero-length READ and WRITE, C9-88',
  sends: 'a WRITE and a READ of no bytes with a bad key, as far as the peer permits them',
  expects: 'an ACK, and a READ response without data',
  known: { refused: { of: 'mlx4', what: 'a READ of no bytes is refused' } },
  needs: { receives: false, anyOf: ['WRITE', 'READ'] },
  isIntrusive: true,
  async run(talk) {
    const { va } = talk.region;
    const rkey = badKey(talk);
    if (talk.permits('WRITE')) {
      talk.send(request.writeOnly({ psn: talk.take(), va, rkey, length: 0, ackReq: true }));
      await talk.acked(psnAfter(talk.psn, -1), 'a WRITE of no bytes with a bad key');
    }
    if (!talk.permits('READ')) return talk.note('no READ of no bytes was sent: the peer permits none');
    talk.send(request.read({ psn: talk.take(), va, rkey, length: 0, ackReq: true }));
    const answer = await talk.answer('a READ of no bytes with a bad key');
    if ((answer.aeth?.syndrome ?? 0) >>> 5 === 3)
      talk.deviates('refused', 'a READ of no bytes with a bad key is refused');
    if (answer.payload.length > 0) talk.fail(`${answer.payload.length} bytes for a READ of none`);
  },
};

/** Sends packets that break a rule of lengths; the last one wants an ACK. */
function lengthCheck(name: string, what: string, make: (talk: ResponderConversation) => Packet[]): ResponderCheck {
  return {
    number: 34,
    name,
    title: `${what} is refused`,
    clause: 'IBTA volume 1, chapter 9: responder, length validation',
    sends: `${what[0]?.toLowerCase()}${what.slice(1)}`,
    expects: 'a NAK 0x61',
    needs: only('WRITE'),
    isIntrusive: true,
    async run(talk) {
      const packets = make(talk);
      talk.send(packets);
      await talk.refused(Nak.INVALID_REQUEST, `${what[0]?.toLowerCase()}${what.slice(1)}`);
    },
  };
}

const shortMiddle = lengthCheck('short-middle', 'A WRITE whose first packet is not full', (talk) => {
  const { va, rkey } = talk.region;
  const payload = pattern(talk.mtu - 4, 1);
  const length = 2 * talk.mtu;
  return [request.writeFirst({ psn: talk.take(), va, rkey, length, payload, ackReq: true })];
});
const wrongLength = lengthCheck('wrong-length', 'A WRITE with less data than its RETH says', (talk) => {
  const { va, rkey } = talk.region;
  return [request.writeOnly({ psn: talk.take(), va, rkey, length: 16, payload: pattern(8, 1), ackReq: true })];
});

const invalidate: ResponderCheck = {
  number: 38,
  name: 'invalidate-bad-key',
  title: 'A SEND that invalidates a key that does not exist is an error of the responder, without NAK',
  clause: 'IBTA volume 1, chapter 9: responder errors, class J',
  sends: 'a SEND_WITH_INVALIDATE of a bad key, and after it a SEND',
  expects: 'an ACK or silence, no NAK; no answer to the other SEND, as the queue pair is in error',
  known: {
    nak: { of: 'irdma', what: 'the SEND is refused' },
    alive: { of: 'rxe', what: 'the queue pair goes on, as if nothing were wrong' },
  },
  needs: { receives: true, permits: [] },
  isIntrusive: true,
  async run(talk) {
    talk.send(request.sendOnlyInvalidate({ psn: talk.take(), payload: pattern(8, 1), invalidate: badKey(talk) }));
    const answer = await talk.next(50e6);
    if ((answer?.aeth?.syndrome ?? 0) >>> 5 === 3) talk.deviates('nak', 'the SEND is refused');
    const psn = talk.take();
    talk.send(request.sendOnly({ psn, payload: pattern(8, 2), ackReq: true }));
    const next = await talk.next(50e6);
    const isAnswered = next !== undefined && isAck(next) && psnDistance(next.bth.psn, psn) >= 0;
    if (isAnswered) talk.deviates('alive', `${receivedText(next)} to a SEND after it`);
  },
};

const longSend: ResponderCheck = {
  number: 37,
  name: 'long-send',
  title: 'A SEND that is longer than its receive is refused',
  clause: 'IBTA volume 1, chapter 9: responder, NAK of an invalid request',
  sends: 'a SEND of one byte more than a receive takes',
  expects: 'a NAK 0x61',
  known: { operational: { of: 'rxe', what: 'NAK 0x63 instead of 0x61' } },
  needs: { receives: true, permits: [] },
  isIntrusive: true,
  async run(talk) {
    talk.send(talk.message(pattern(talk.peer.receiveBytes + 1, 1)));
    const known = { [Nak.REMOTE_OPERATIONAL]: 'operational' };
    await talk.refused(Nak.INVALID_REQUEST, 'a SEND that is longer than its receive', known);
  },
};

/** In the order of their numbers. */
export const KEY_CHECKS: readonly ResponderCheck[] = [
  badKeyWrite,
  badKeyRead,
  badKeyAtomic,
  errorState,
  noRight,
  bounds,
  readBounds,
  zeroLength,
  shortMiddle,
  wrongLength,
  longSend,
  invalidate,
];
