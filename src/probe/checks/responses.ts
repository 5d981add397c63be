/** Checks of a peer that sends requests: which ACKs and READ responses it takes, and which it does not. */
import { Op } from '../packet/opcodes.js';
import type { Packet } from '../packet/packets.js';
import { psnAfter, psnDistance } from '../packet/psn.js';
import type { RequesterCheck } from './check.js';
import { type Received, receivedText } from './conversation.js';
import type { Message, Service } from './service.js';

/** Kinds whose packets an ACK completes. */
const ACKNOWLEDGED = ['WRITE', 'SEND'] as const;

const coalescing: RequesterCheck = {
  number: 13,
  name: 'ack-of-several',
  title: 'One ACK completes all messages up to its PSN',
  clause: 'IBTA volume 1, chapter 9: requester, coalesced ACKs',
  sends: 'an ACK of the last of four messages only',
  expects: 'none of them again, and the next message',
  asks: { anyOf: ACKNOWLEDGED, timeout: 14 },
  async run(service) {
    const acknowledge = async () => {
      const messages = await service.messages(4);
      service.msn += messages.length - 1;
      service.complete(messages.at(-1) as Message);
      return undefined;
    };
    await service.ignores('an ACK of four messages', acknowledge, service.patience);
    await service.goesOn('an ACK of four messages');
  },
};

const staleAck: RequesterCheck = {
  number: 13,
  name: 'stale-ack',
  title: 'An ACK of a PSN that is acknowledged already is ignored',
  clause: 'IBTA volume 1, chapter 9: requester, ghost responses',
  sends: 'ACKs of earlier PSNs while a message waits for its own',
  expects: 'no packet because of them, and the message again by its timer',
  asks: { anyOf: ACKNOWLEDGED, timeout: 14 },
  async run(service) {
    await service.goesOn('the connection was made');
    await service.goesOn('the first message');
    const message = await service.ignores('a stale ACK', async () => {
      const acknowledged = psnAfter(service.expected, -1);
      const [waiting] = (await service.messages(1)) as [Message];
      service.acknowledge(acknowledged);
      service.acknowledge(psnAfter(acknowledged, -1));
      return waiting;
    });
    if ((await service.again(message[0].bth.psn)) === undefined)
      service.fail('after a stale ACK a message without ACK is not sent again');
    service.complete(message);
    await service.goesOn('the stale ACKs');
  },
};

const futureAck: RequesterCheck = {
  number: 13,
  name: 'future-ack',
  title: 'An ACK of a PSN that was never sent is ignored',
  clause: 'IBTA volume 1, chapter 9: requester, ghost responses',
  sends: 'an ACK of three PSNs more than were sent',
  expects: 'no packet because of it, and the message again by its timer',
  known: { taken: { of: 'rxe', what: 'the ACK completes what was sent' } },
  asks: { anyOf: ACKNOWLEDGED, timeout: 14 },
  isIntrusive: true,
  async run(service) {
    const message = await service.ignores('an ACK of the future', async () => {
      const [waiting] = (await service.messages(1)) as [Message];
      service.acknowledge(psnAfter(await service.rest(), 3));
      return waiting;
    });
    if ((await service.again(message[0].bth.psn)) === undefined)
      service.deviates('taken', 'after an ACK of the future a message without ACK is not sent again');
    service.complete(message);
    await service.goesOn('an ACK of the future');
  },
};

/** Asks for a READ of some packets. Not applicable, if the peer's READs are shorter. */
async function readOf(service: Service, packets: number): Promise<{ read: Received; data: Packet[] }> {
  service.ask(1, (packets - 1) * service.mtu + 12);
  const [read] = await service.message();
  const data = service.data(read);
  if (data.length < packets) service.notApplicable(`its READs have ${data.length} packets`);
  await service.rest();
  return { read, data };
}

const lostResponse: RequesterCheck = {
  number: 24,
  name: 'read-response-lost',
  title: 'A READ whose response has a gap is repeated at once from the gap on',
  clause: 'IBTA volume 1, chapter 9: requester, implied NAK',
  sends: 'the response to a READ of four packets without the second one',
  expects: 'a READ of the rest: PSN, address and length from the gap on; its time is reported as read_recovery',
  known: {
    timer: { of: 'rxe', what: 'the gap is not noticed, the timer repairs it' },
    whole: { of: 'some software adapters', what: 'the READ is repeated from its start' },
  },
  asks: { anyOf: ['READ'], timeout: 14 },
  async run(service) {
    const { read, data } = await readOf(service, 4);
    const at = service.send(data.filter((_, i) => i !== 1));
    const isOld = ({ bth }: Received) => psnDistance(bth.psn, service.expected) < 0;
    const again = (await service.find(service.patience, isOld)) ?? service.fail('after a gap the READ is not repeated');
    service.measure('read_recovery', again.at - at);
    const { reth } = read;
    if (again.reth === undefined || reth === undefined) return service.fail(`after a gap: ${receivedText(again)}`);
    const from = psnDistance(again.bth.psn, read.bth.psn);
    if (from < 0 || from > 1) service.fail(`after a gap of packet 2: the READ is repeated from packet ${from + 1} on`);
    const bytes = from * service.mtu;
    if (again.reth.va !== reth.va + BigInt(bytes) || again.reth.length !== reth.length - bytes)
      service.fail(`the READ from packet ${from + 1} on does not name the bytes from ${bytes} on`);
    service.msn++;
    service.send(service.data(again, service.msn));
    await service.goesOn('the repeated READ');
    if (from === 0) service.deviates('whole', 'the READ is repeated from its start');
    if (again.at - at >= service.timeout / 2)
      service.deviates('timer', `the READ is repeated after ${(again.at - at) / 1e6} ms`);
  },
};

const duplicateResponse: RequesterCheck = {
  number: 24,
  name: 'duplicate-read-response',
  title: 'A READ response that has come before is ignored',
  clause: 'IBTA volume 1, chapter 9: requester, duplicate responses',
  sends: 'the response to a READ of three packets, the first and the last packet twice',
  expects: 'no packet because of them, and the next READ',
  asks: { anyOf: ['READ'], timeout: 14 },
  async run(service) {
    await service.ignores('a duplicate READ response', async () => {
      const { data } = await readOf(service, 3);
      const [first, middle, end] = data as [Packet, Packet, Packet];
      service.send([first, first, middle, first, end, end]);
      service.msn++;
      return undefined;
    });
    await service.goesOn('a duplicate READ response');
  },
};

/**
 * Sends a READ response that breaks a rule. The peer may end its connection, or drop the response and repeat the READ.
 * @returns `taken`: it never repeats the READ, and goes on with two more, the first of which is answered; `resumed`: it
 * requests the end of the first one with a PSN that is not its own; `refused`: it does neither
 */
async function taking(
  service: Service,
  read: Received,
  bad: readonly Packet[],
): Promise<'taken' | 'resumed' | 'refused'> {
  service.send(bad);
  service.ask(1, 12);
  const end = psnAfter(read.bth.psn, service.span(read));
  let next: Received | undefined;
  const isRepeated = (packet: Received) => {
    const { psn } = packet.bth;
    const isFirst = psnDistance(psn, read.bth.psn) >= 0 && psnDistance(psn, end) < 0;
    const isAgain = next?.bth.psn === psn;
    if (psnDistance(psn, end) >= 0) next ??= packet;
    return isFirst || isAgain || isRest(packet, read);
  };
  // its timer repeats the oldest READ that is not complete
  const again = await service.find(service.patience, isRepeated);
  if (again === undefined || next === undefined) return 'refused';
  if (isRest(again, read)) return psnDistance(again.bth.psn, end) >= 0 ? 'resumed' : 'refused';
  if (again.bth.psn !== next.bth.psn) return 'refused';
  service.send(service.data(again, service.msn + 2));
  service.ask(1, 12);
  const behind = psnAfter(again.bth.psn, service.span(again));
  const third = await service.find(service.patience, ({ bth }) => psnDistance(bth.psn, behind) >= 0);
  return third === undefined ? 'refused' : 'taken';
}

/** Returns whether a packet requests the end of a READ, but not all of it. */
function isRest({ reth: rest }: Received, { reth }: Received): boolean {
  if (rest === undefined || reth === undefined) return false;
  return rest.va > reth.va && rest.length < reth.length && rest.va < reth.va + BigInt(reth.length);
}

const responseOrder: RequesterCheck = {
  number: 34,
  name: 'read-response-order',
  title: 'A READ response whose last packet comes too early is not taken',
  clause: 'IBTA volume 1, chapter 9: requester, READ response opcodes',
  sends: 'of a READ of three packets the FIRST one, and a LAST one with the PSN of the second',
  expects: 'the end of the connection, or the READ again',
  asks: { anyOf: ['READ'], timeout: 14 },
  isIntrusive: true,
  async run(service) {
    const { read, data } = await readOf(service, 3);
    const [first, middle, end] = data as [Packet, Packet, Packet];
    const early = { ...end, bth: { ...end.bth, psn: middle.bth.psn }, payload: middle.payload };
    if ((await taking(service, read, [first, early])) === 'taken')
      service.fail(
        'a READ whose LAST response came in place of the second one is not repeated, and the next READs come',
      );
  },
};

const responseLength: RequesterCheck = {
  number: 34,
  name: 'read-response-length',
  title: 'A READ response with fewer bytes than requested is not taken',
  clause: 'IBTA volume 1, chapter 9: requester, READ response length',
  sends: 'of a READ of three packets the last one with four bytes less; on another connection the first one',
  expects: 'the end of the connection, or the READ again',
  known: { resumed: { of: 'rxe', what: 'what is missing is requested with the PSN of the next request' } },
  asks: { anyOf: ['READ'], timeout: 14 },
  isIntrusive: true,
  async run(service) {
    for (const short of [Op.RDMA_READ_RESPONSE_LAST, Op.RDMA_READ_RESPONSE_FIRST]) {
      const one = short === Op.RDMA_READ_RESPONSE_LAST ? service : await service.another();
      const { read, data } = await readOf(one, 3);
      const bad = data.map((packet) =>
        packet.bth.opcode === short ? { ...packet, payload: packet.payload.subarray(4) } : packet,
      );
      const outcome = await taking(one, read, bad);
      if (outcome === 'taken')
        one.fail('a READ whose response lacks four bytes is not repeated, and the next READs come');
      if (outcome === 'resumed')
        one.deviates('resumed', 'the missing bytes are requested with the PSN of the next READ');
    }
  },
};

/** In the order of their numbers. */
export const RESPONSE_CHECKS: readonly RequesterCheck[] = [
  coalescing,
  staleAck,
  futureAck,
  lostResponse,
  duplicateResponse,
  responseOrder,
  responseLength,
];
