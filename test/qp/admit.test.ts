/** Frames that a queue pair may not process (IBTA 9.6.1): dropped silently, and counted by reason. */
import { describe, test } from 'vitest';
import {
  ack,
  encodeFrame,
  type Flow,
  type Frame,
  nak,
  type Packet,
  request,
  response,
  uc,
} from '../../src/probe/packet/packets.js';
import { PING, pattern, rc, send } from '../kit/conversation.js';

const good = send({ psn: 100 });

interface Case {
  /** The flow of the frame, if not from the peer to us. */
  readonly flow?: Partial<Flow>;
  readonly packet?: Packet;
  readonly changes?: Partial<Frame>;
  readonly bytes?: (good: Uint8Array) => Uint8Array;
  readonly counter: string;
  /** Counted for the card only: the queue pair is not known yet. */
  readonly early?: true;
}

/** A copy with one byte changed. */
const flip = (at: number, by: number) => (good: Uint8Array) => {
  const bytes = good.slice();
  const i = at < 0 ? bytes.length + at : at;
  bytes[i] = (bytes[i] as number) ^ by;
  return bytes;
};

const CASES: Record<string, Case> = {
  'the P_Key of another partition': { flow: { pkey: 0x8001 }, counter: 'drop_pkey' },
  'the P_Key 0': { flow: { pkey: 0 }, counter: 'drop_pkey' },
  'the invalid P_Key 0x8000': { flow: { pkey: 0x8000 }, counter: 'drop_pkey' },
  'another source address': { flow: { srcIp: '10.0.0.3' }, counter: 'drop_source_address' },
  'another destination address': { flow: { dstIp: '10.0.0.9' }, counter: 'drop_destination_address' },
  'an IPv6 packet for a queue pair of IPv4': {
    flow: { srcIp: '::ffff:a00:2', dstIp: '::ffff:a00:1' },
    counter: 'drop_destination_address',
  },
  'the tag of a VLAN where the connection has none': { flow: { vlan: 0x6005 }, counter: 'drop_vlan' },
  'an unknown queue pair': { flow: { destQp: 0x123456 }, counter: 'drop_qpn', early: true },
  'queue pair 0': { flow: { destQp: 0 }, counter: 'drop_qpn', early: true },
  'queue pair 1': { flow: { destQp: 1 }, counter: 'drop_qpn', early: true },
  'the multicast queue pair': { flow: { destQp: 0xffffff }, counter: 'drop_multicast', early: true },
  'another transport version': {
    packet: { ...good, bth: { ...good.bth, version: 1 } },
    counter: 'drop_transport_version',
    early: true,
  },
  'the class of unreliable connections': { packet: uc(good), counter: 'drop_qp_type' },
  'a class nobody has': {
    packet: { ...good, bth: { ...good.bth, opcode: 0xc4 } },
    counter: 'drop_opcode',
    early: true,
  },
  'an opcode its class has not': {
    packet: { ...good, bth: { ...good.bth, opcode: 0x2c } },
    counter: 'drop_opcode',
    early: true,
  },
  'a wrong ICRC': { changes: { icrc: 0x12345678 }, counter: 'drop_icrc' },
  'a bit of the payload flipped': { bytes: flip(-8, 0x10), counter: 'drop_icrc' },
  'a bit of the PSN flipped': { bytes: flip(14 + 20 + 8 + 9, 0x80), counter: 'drop_icrc' },
  'a bit of the UDP source port flipped': { bytes: flip(14 + 20 + 1, 0x01), counter: 'drop_icrc' },
  'a payload that is no multiple of four with its pad': {
    packet: { ...good, payload: pattern(5), padding: new Uint8Array(0) },
    counter: 'drop_length',
    early: true,
  },
  'more pad than there are bytes': {
    packet: { ...good, payload: new Uint8Array(0), bth: { ...good.bth, pad: 3 } },
    counter: 'drop_length',
    early: true,
  },
  'a READ request with a payload': {
    packet: { ...request.read({ psn: 100, va: 0n, rkey: 0, length: 0 }), payload: PING },
    counter: 'drop_length',
    early: true,
  },
  'an ACK with a payload': {
    packet: { ...ack({ psn: 999, msn: 0 }), payload: PING },
    counter: 'drop_length',
    early: true,
  },
  'too few bytes for its headers': {
    packet: { bth: { opcode: 0x0a, psn: 100, ackReq: true, solicited: false }, payload: new Uint8Array(12) },
    counter: 'drop_length',
    early: true,
  },
  'an answer to nothing': { packet: response.readOnly({ psn: 1000, msn: 1 }), counter: 'drop_ghost_response' },
};

describe.each(Object.entries(CASES))('a packet with %s is dropped', (_, each) => {
  test(`and counted as ${each.counter}`, async () => {
    const c = await rc({ receives: 1 });
    const bytes = encodeFrame({ ...c.there, ...each.flow }, each.packet ?? good, each.changes);
    c.frames(0, each.bytes?.(bytes) ?? bytes)
      .silent()
      .wc()
      .state('RTS')
      .cardCounts({ [each.counter]: 1, rcvd_pkts: 0 })
      .counts({ [each.counter]: each.early ? 0 : 1 })
      .in(1, good)
      .out(ack({ psn: 100, msn: 1 }))
      .wc({ wrId: 1 });
  });
});

describe('a packet is taken with any value of a field that the responder does not check', () => {
  const FINE: Record<string, Partial<Flow> | Packet> = {
    'the source port': { sport: 1 },
    'the source port 0': { sport: 0 },
    'the MAC addresses': { srcMac: '0a:0b:0c:0d:0e:0f', dstMac: 'ff:ff:ff:ff:ff:ff' },
    'a tag that gives a priority only': { vlan: 0x6000 },
    'the hop limit': { hopLimit: 1 },
    'the type of service': { trafficClass: 0xb8 },
    'the IP identification': { ipId: 0xbeef },
    'the MigReq bit': { migReq: false },
    'the P_Key of a limited member': { pkey: 0x7fff },
    'FECN and BECN': { ...good, bth: { ...good.bth, fecn: true, becn: true } },
  };
  test.each(Object.entries(FINE))('%s', async (_, each) => {
    const c = await rc({ receives: 1 });
    const packet = 'bth' in each ? each : good;
    c.frames(0, encodeFrame('bth' in each ? c.there : { ...c.there, ...each }, packet))
      .out(ack({ psn: 100, msn: 1 }))
      .wc({ wrId: 1 });
  });
});

describe('on a connection in a VLAN', () => {
  test.each([
    ['another VLAN', 0x6006],
    ['no VLAN', undefined],
    ['the VLAN 0', 0x6000],
  ])('a packet of %s is dropped', async (_, vlan) => {
    const c = await rc({ receives: 1, vlan: 0x6005, flow: { vlan: 0x6005 } });
    c.frames(0, encodeFrame({ ...c.there, vlan }, good))
      .silent()
      .wc()
      .state('RTS')
      .counts({ drop_vlan: 1 });
  });

  test('priority and drop eligibility are ignored', async () => {
    const c = await rc({ receives: 1, vlan: 0x6005, flow: { vlan: 0x6005 } });
    c.frames(0, encodeFrame({ ...c.there, vlan: 0xf005 }, good))
      .out(ack({ psn: 100, msn: 1 }))
      .wc({ wrId: 1 });
  });
});

test('eight wrong ICRCs raise an event where none was right', async () => {
  const c = await rc({ receives: 4 });
  const wrong = (us: number, count: number) =>
    c.frames(us, ...Array.from({ length: count }, () => encodeFrame(c.there, send({ psn: 100 }), { icrc: 0 })));
  wrong(0, 7).events().silent();
  wrong(1, 2).events('QP_ICRC_ERR').silent();
  wrong(2, 20).events().silent();
  const heard = await rc({ receives: 4 });
  heard
    .in(0, send({ psn: 100 }))
    .wc({ wrId: 1 })
    .take();
  heard
    .frames(1, ...Array.from({ length: 9 }, () => encodeFrame(heard.there, send({ psn: 101 }), { icrc: 0 })))
    .events();
});

test('the ICRC is checked before the packet changes any state', async () => {
  const c = await rc({ receives: 1 });
  c.frames(0, encodeFrame(c.there, send({ psn: 105 }), { icrc: 0 }))
    .silent()
    .in(1, send({ psn: 101 }))
    .out(nak.sequence({ psn: 100 }));
});
