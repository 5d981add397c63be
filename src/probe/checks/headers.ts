/** Checks of the headers: ICRC, reserved bits, addresses, partition key, malformed packets. */
import { encode } from '../packet/encode.js';
import { encodeFrame, frameOf, type Packet } from '../packet/packets.js';
import { psnAfter } from '../packet/psn.js';
import type { Check, ResponderCheck } from './check.js';
import { Nak, pattern, REQUESTS, type ResponderConversation, receivedText } from './responderconversation.js';
import { DO_NOT_FRAGMENT, ICRC, MIG_REQ, NOT_MARKED, RULE_CHECKS } from './rules.js';

/** Sends a request that must not be carried out, and shows that the peer stays silent and unchanged. */
export async function dropped(talk: ResponderConversation, what: string, send: (psn: number) => void): Promise<void> {
  await talk.done([talk.request(1)], 'a request');
  const { psn } = talk;
  send(psn);
  await talk.silent(what, psn);
  await talk.unchanged(0, pattern(8, 1), pattern(8, INTRUDER), what);
}

/** Seed of the bytes of `intruder`. */
export const INTRUDER = 2;

/** The request of `dropped`, at the PSN that it gives. */
export const intruder = (talk: ResponderConversation, psn: number) => talk.request(INTRUDER, { psn });

const icrc: ResponderCheck = {
  number: 1,
  name: 'icrc',
  title: 'Every packet of the peer has a valid ICRC',
  clause: 'IBTA annex A17 (RoCEv2): invariant CRC',
  sends: 'a WRITE or SEND of 13 bytes, READs of 1, 2, 3, 4 and three packets of bytes, a request out of sequence',
  expects: 'ACK, READ responses with and without padding, and NAK, all with the right ICRC; in all other checks, too',
  known: {
    pad: { of: 'rxe of Linux before 5.5', what: 'the ICRC of a packet with padding is wrong' },
  },
  needs: REQUESTS,
  rule: ICRC,
  async run(talk) {
    if (talk.permits('WRITE') || talk.permits('SEND')) await talk.done(talk.long(pattern(13, 1)), 'a message');
    if (talk.permits('READ')) for (const length of [1, 2, 3, 4, 2 * talk.mtu + 5]) await talk.read(0, length);
    else talk.note('no packet with padding was looked at: the peer permits no READ');
    talk.send(talk.request(1, { psn: psnAfter(talk.psn, 5) }));
    await talk.next();
  },
};

const damagedIcrc: ResponderCheck = {
  number: 2,
  name: 'damaged-icrc',
  title: 'A packet with a wrong ICRC is dropped silently',
  clause: 'IBTA annex A17 (RoCEv2): invariant CRC',
  sends: 'a request whose ICRC has one wrong bit',
  expects: 'no answer, and memory unchanged',
  needs: REQUESTS,
  isIntrusive: true,
  async run(talk) {
    await dropped(talk, 'a request with a wrong ICRC', (psn) => {
      const bytes = encodeFrame(talk.peer.port.flow, intruder(talk, psn));
      const last = bytes.length - 1;
      bytes[last] = (bytes[last] as number) ^ 1;
      talk.sendFrame(bytes);
    });
  },
};

const reserved: ResponderCheck = {
  number: 3,
  name: 'reserved-bits',
  title: 'Reserved bits of the BTH are ignored',
  clause: 'IBTA volume 1, chapter 9: base transport header, reserved fields',
  sends: 'requests with all reserved bits of byte 4, then of byte 8, set',
  expects: 'an ACK of each',
  needs: REQUESTS,
  isIntrusive: true,
  async run(talk) {
    for (const bits of [{ reserved6: 0x3f }, { reserved7: 0x7f }]) {
      const packet = talk.request();
      const marked = { ...packet, bth: { ...packet.bth, ...bits } };
      await talk.done([marked], `a request with ${Object.keys(bits)} set`);
    }
  },
};

const migReq: ResponderCheck = {
  number: 4,
  name: 'migreq',
  title: 'The packets of the peer say that the path is migrated',
  clause: 'IBTA volume 1, chapter 17: automatic path migration',
  sends: 'a WRITE, or another request',
  expects: 'MigReq 1 in its answer, and in the packets of all other checks',
  known: { zero: { of: 'rxe, E810', what: 'MigReq is 0; CX5 then takes its slow path' } },
  needs: REQUESTS,
  rule: MIG_REQ,
  async run(talk) {
    await talk.done([talk.request()], 'a request');
  },
};

const doNotFragment: ResponderCheck = {
  number: 5,
  name: 'ipv4-header',
  title: 'IPv4 packets are not to be fragmented',
  clause: 'IBTA annex A17 (RoCEv2): IPv4 header',
  sends: 'a request',
  expects: 'an answer with DF set, and fragment offset 0; in all other checks, too',
  needs: REQUESTS,
  rule: DO_NOT_FRAGMENT,
  async run(talk) {
    const { ip } = await talk.done([talk.request()], 'a request');
    if (ip.version === 6) talk.notApplicable('the peer has an IPv6 address');
  },
};

const sourcePort: ResponderCheck = {
  number: 6,
  name: 'source-port',
  title: 'The UDP source port means nothing to the receiver',
  clause: 'IBTA annex A17 (RoCEv2): UDP header, source port',
  sends: 'requests from the ports 49152, 65535 and 1024',
  expects: 'an ACK of each',
  needs: REQUESTS,
  async run(talk) {
    for (const sport of [0xc000, 0xffff, 1024]) {
      talk.send(talk.request(), { sport });
      await talk.acked(psnAfter(talk.psn, -1), `a request from UDP port ${sport}`);
    }
  },
};

const udpChecksum: ResponderCheck = {
  number: 7,
  name: 'udp-checksum',
  title: 'A UDP checksum of 0 is accepted',
  clause: 'IBTA annex A17 (RoCEv2): UDP header, checksum',
  sends: 'a request without UDP checksum',
  expects: 'an ACK',
  needs: REQUESTS,
  async run(talk) {
    await talk.alive('packets without UDP checksum');
  },
};

const ecn: ResponderCheck = {
  number: 8,
  name: 'ecn-capable',
  title: 'ECN-capable packets are accepted, and packets of the peer are not marked',
  clause: 'IBTA annex A17 (RoCEv2): congestion management',
  sends: 'a request with ECT(0), one with ECT(1)',
  expects: 'ACKs; in no packet of any check congestion experienced',
  counts: ['answer_ecn'],
  needs: REQUESTS,
  rule: NOT_MARKED,
  async run(talk) {
    for (const trafficClass of [2, 1]) {
      talk.send(talk.request(), { trafficClass });
      const { ip } = await talk.acked(psnAfter(talk.psn, -1), `a request with ECN ${trafficClass}`);
      const own = (ip.version === 4 ? ip.tos : ip.trafficClass) & 3;
      talk.measure('answer_ecn', own);
    }
    if (talk.cnps.length > 0) talk.fail('a CNP although no packet was marked');
  },
};

const malformed: ResponderCheck = {
  number: 9,
  name: 'malformed',
  title: 'Packets with unknown class or transport version, and truncated ones, are dropped silently',
  clause: 'IBTA volume 1, chapter 9: packet validation, base transport header',
  sends: 'a request with version 1, the opcode 0xc4, a packet that ends in its BTH',
  expects: 'no answer, and memory unchanged',
  needs: REQUESTS,
  isIntrusive: true,
  async run(talk) {
    const bare = (psn: number, opcode: number): Packet => ({
      bth: { opcode, psn, ackReq: true, solicited: false },
      payload: new Uint8Array(0),
    });
    await dropped(talk, 'a request with transport version 1', (psn) => {
      const packet = intruder(talk, psn);
      talk.send({ ...packet, bth: { ...packet.bth, version: 1 } });
    });
    await dropped(talk, 'an opcode of an unknown class', (psn) => talk.send(bare(psn, 0xc4)));
    await dropped(talk, 'a packet that ends in its BTH', (psn) => {
      const whole = encode(frameOf(talk.peer.port.flow, bare(psn, 0x0a)));
      talk.sendFrame(whole.subarray(0, whole.length - 8));
    });
  },
};

const reservedOpcode: ResponderCheck = {
  number: 9,
  name: 'reserved-opcode',
  title: 'A reserved opcode of the RC class is refused',
  clause: 'IBTA volume 1, chapter 9: responder, opcode validation',
  sends: 'a packet with the opcode 0x1f',
  expects: 'a NAK 0x61',
  known: { silent: { of: 'rxe', what: 'the packet is dropped silently' } },
  needs: REQUESTS,
  isIntrusive: true,
  async run(talk) {
    const bth = { opcode: 0x1f, psn: talk.take(), ackReq: true, solicited: false };
    talk.send({ bth, payload: new Uint8Array(0) });
    const answer = await talk.nextOrAgain();
    if (answer === undefined) talk.deviates('silent', 'no answer to the opcode 0x1f');
    else if (answer.aeth?.syndrome !== Nak.INVALID_REQUEST)
      talk.fail(`the opcode 0x1f: ${receivedText(answer)} instead of a NAK INVALID_REQUEST`);
  },
};

const partition: ResponderCheck = {
  number: 10,
  name: 'partition-key',
  title: 'A packet of another partition is dropped without NAK',
  clause: 'IBTA volume 1, chapter 9: packet validation, partition key',
  sends: 'a request with partition key 0x8123',
  expects: 'no answer, and memory unchanged',
  needs: REQUESTS,
  isIntrusive: true,
  async run(talk) {
    await dropped(talk, 'a request of partition 0x8123', (psn) => talk.send(intruder(talk, psn), { pkey: 0x8123 }));
  },
};

const foreignSource: ResponderCheck = {
  number: 12,
  name: 'foreign-source',
  title: 'A packet from another address is dropped silently',
  clause: 'IBTA volume 1, chapter 9: packet validation, addresses of connected services',
  sends: 'a request from an IP address that the connection does not have',
  expects: 'no answer, and memory unchanged',
  needs: REQUESTS,
  isIntrusive: true,
  async run(talk) {
    const own = talk.peer.port.flow.srcIp;
    const last = own.at(-1) === '9' ? '8' : '9';
    const srcIp = own.slice(0, -1) + last;
    await dropped(talk, `a request from ${srcIp}`, (psn) => talk.send(intruder(talk, psn), { srcIp }));
  },
};

const unknownQueue: ResponderCheck = {
  number: 12,
  name: 'unknown-queue-pair',
  title: 'A packet to a queue pair that does not exist is dropped silently',
  clause: 'IBTA volume 1, chapter 9: packet validation, destination queue pair',
  sends: 'requests to the queue pair numbers 0 and 0xfffffe',
  expects: 'no answer, and memory unchanged',
  needs: REQUESTS,
  isIntrusive: true,
  async run(talk) {
    for (const destQp of [0, 0xfffffe])
      await dropped(talk, `a request to queue pair ${destQp}`, (psn) => talk.send(intruder(talk, psn), { destQp }));
  },
};

/** Checks whose rule makes every receiver drop a packet that breaks it. */
export const DROP_CHECKS: readonly Check[] = [icrc, ...RULE_CHECKS].filter(({ rule }) => rule?.isDropped);

/** In the order of their numbers. */
export const HEADER_CHECKS: readonly ResponderCheck[] = [
  icrc,
  damagedIcrc,
  reserved,
  migReq,
  doNotFragment,
  sourcePort,
  udpChecksum,
  ecn,
  malformed,
  reservedOpcode,
  partition,
  foreignSource,
  unknownQueue,
];
