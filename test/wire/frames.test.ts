/**
 * Whole frames into and out of the card: the headers around the transport headers. The second encoder defines what is
 * right.
 */
import { describe, expect, test } from 'vitest';
import { ack, encodeFrame, type Flow, request, response } from '../../src/probe/packet/packets.js';
import { PING, pattern, type RcOptions, rc, send, TARGET_VA } from '../kit/conversation.js';
import { Random } from '../kit/random.js';

const V6 = {
  localIp: [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
  remoteIp: [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2],
};
const V6_FLOW = { srcIp: 'fd00::2', dstIp: 'fd00::1' };
const MACS = { localMac: [2, 0, 0, 0, 0, 1], remoteMac: [2, 0, 0, 0, 0, 2] };

/** The same packets under different headers. */
const WAYS: Record<string, RcOptions & { flow: Partial<Flow> }> = {
  IPv4: { flow: {} },
  'IPv4 behind a VLAN tag': { vlan: 0x6123, flow: { vlan: 0x6123 } },
  'VLAN 0: priority alone': { vlan: 0xe000, flow: { vlan: 0xe000 } },
  IPv6: { ...V6, flow: V6_FLOW },
  'IPv6 behind a VLAN tag': { ...V6, vlan: 0x0fff, flow: { ...V6_FLOW, vlan: 0x0fff } },
  'IPv4 with a type of service and hop limit': {
    trafficClass: 0x6a,
    hopLimit: 255,
    flow: { trafficClass: 0x6a, hopLimit: 255 },
  },
  'IPv6 with traffic class, flow label and hop limit': {
    ...V6,
    trafficClass: 0xb9,
    flowLabel: 0xabcde,
    hopLimit: 1,
    flow: { ...V6_FLOW, trafficClass: 0xb9, flowLabel: 0xabcde, hopLimit: 1 },
  },
  'another source port': { sourcePort: 0xfedc, flow: { sport: 0xfedc } },
};

describe.each(Object.entries(WAYS))('%s', (_, options) => {
  test('a received SEND is acknowledged, and a posted one is completed', async () => {
    const c = await rc({ ...MACS, ...options, receives: 1 });
    c.in(0, send({ psn: 100 }))
      .out(ack({ psn: 100, msn: 1 }))
      .wc({ wrId: 1, byteLen: 4 })
      .post(1, { wrId: 2, opcode: 'SEND', inline: PING })
      .out(request.sendOnly({ psn: 1000, payload: PING, ackReq: true }))
      .in(2, ack({ psn: 1000, msn: 1 }))
      .wc({ wrId: 2 });
  });

  test('payloads of 0 to 9 bytes and of one MTU are padded and read back', async () => {
    const c = await rc({ ...MACS, ...options, mtu: 4096 });
    let psn = 100;
    for (const length of [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 4093, 4096]) {
      const at = { va: TARGET_VA, rkey: c.target.rkey };
      const payload = pattern(length, psn);
      const msn = psn - 99;
      c.in(psn, request.writeOnly({ psn, ...at, payload }), request.read({ psn: psn + 1, ...at, length })).out(
        response.readOnly({ psn: psn + 1, msn: msn + 1, payload }),
      );
      psn += 2;
    }
  });
});

test('frames have the source port of a link that has one of its own', async () => {
  const c = await rc({ until: 'INIT', flow: { sport: 4791 } });
  c.rig.x.setLink(c.rig.x.LinkFlag.FIXED_SOURCE_PORT, 4791, 0, 0);
  c.at(0, () => c.qp.modify({ STATE: 0 }));
  c.qp.connect({ destQpn: c.there.srcQp, sqPsn: 1000, rqPsn: 100, sourcePort: 0xc123 });
  c.post(1, { wrId: 2, opcode: 'SEND', inline: PING })
    .out(request.sendOnly({ psn: 1000, payload: PING, ackReq: true }))
    .in(2, ack({ psn: 1000, msn: 1 }))
    .wc({ wrId: 2 });
});

test('bytes behind the IP packet are Ethernet padding, whatever they are', async () => {
  const c = await rc({ receives: 3 });
  [1, 4, 46].forEach((length, i) => {
    c.frames(i, encodeFrame(c.there, send({ psn: 100 + i }), { trailer: pattern(length, 0xaa) }))
      .out(ack({ psn: 100 + i, msn: i + 1 }))
      .wc({ wrId: i + 1, byteLen: 4 });
  });
});

test('a frame that is cut off anywhere is dropped and counted once', async () => {
  const c = await rc({ receives: 1 });
  const whole = encodeFrame({ ...c.there, vlan: 5 }, send({ psn: 100 }));
  for (let length = 1; length < whole.length; length++) c.frames(length, whole.slice(0, length)).silent();
  const drops = Object.entries(c.rig.counters()).filter(([name]) => name.startsWith('drop_'));
  expect(drops.reduce((sum, [, count]) => sum + count, 0)).toBe(whole.length - 1);
  c.cardCounts({ rcvd_pkts: 0 });
});

describe('a frame that is no RoCE over UDP over IP is dropped', () => {
  const edit =
    (at: number, ...bytes: number[]) =>
    (good: Uint8Array) => {
      const copy = good.slice();
      copy.set(bytes, at);
      return copy;
    };
  const CASES: Record<string, [string, (good: Uint8Array) => Uint8Array]> = {
    ARP: ['drop_ethertype', edit(12, 0x08, 0x06)],
    'a second VLAN tag': ['drop_ethertype', edit(12, 0x88, 0xa8)],
    'IPv4 with options': ['drop_ip_header', edit(14, 0x46)],
    'another IP version under the IPv4 type': ['drop_ip_header', edit(14, 0x55)],
    'a total length behind the frame': ['drop_ip_header', edit(16, 0x7f)],
    'a wrong header checksum': ['drop_ip_checksum', edit(24, 0x12, 0x34)],
  };
  test.each(Object.entries(CASES))('%s', async (_, [counter, change]) => {
    const c = await rc({ receives: 1 });
    c.frames(0, change(encodeFrame(c.there, send({ psn: 100 }))))
      .silent()
      .cardCounts({ [counter]: 1, rcvd_pkts: 0 });
  });

  test('a fragment', async () => {
    const c = await rc({ receives: 1 });
    const { there } = c;
    const ip = { version: 4 as const, tos: 0, id: 0, ttl: 64, src: there.srcIp, dst: there.dstIp };
    for (const fragment of [0x2000, 0x0001])
      c.frames(0, encodeFrame(there, send({ psn: 100 }), { ip: { ...ip, fragment } })).silent();
    c.cardCounts({ drop_ip_fragment: 2, rcvd_pkts: 0 });
  });

  test('another UDP port, or a UDP length that is not that of the IP packet', async () => {
    const c = await rc({ receives: 1 });
    const udp = { sport: 0xc000, dport: 4791, checksum: 0 };
    c.frames(0, encodeFrame(c.there, send({ psn: 100 }), { udp: { ...udp, dport: 4792 } }))
      .silent()
      .cardCounts({ drop_udp_port: 1 })
      .frames(1, encodeFrame(c.there, send({ psn: 100 }), { udp: { ...udp, length: 31 } }))
      .silent()
      .frames(2, encodeFrame(c.there, send({ psn: 100 }), { udp: { ...udp, length: 33 } }))
      .silent()
      .cardCounts({ drop_udp_length: 2, rcvd_pkts: 0 });
  });

  test('the UDP checksum is not read: the ICRC covers more', async () => {
    const c = await rc({ receives: 1 });
    const udp = { sport: 0xc000, dport: 4791, checksum: 0x1234 };
    c.frames(0, encodeFrame(c.there, send({ psn: 100 }), { udp }))
      .out(ack({ psn: 100, msn: 1 }))
      .wc({ wrId: 1 });
  });
});

describe('on a link that cannot see the IPv4 identification', () => {
  const IP_ID_UNKNOWN = 0x10000;
  /** A packet that the peer sent with this identification, with the header that the link makes up. */
  function seen(there: Flow, psn: number, ipId: number, payload: Uint8Array = PING): Uint8Array {
    const sent = encodeFrame({ ...there, ipId }, send({ psn, payload }));
    const icrc = new DataView(sent.buffer, sent.length - 4).getUint32(0);
    return encodeFrame(there, send({ psn, payload }), { icrc });
  }

  test.each([0, 1, 0x100, 0x1234, 0x8000, 0xffff])('the card solves for the identification %i', async (ipId) => {
    const c = await rc({ receives: 4 });
    [0, 1, 500, 1024].forEach((length, i) => {
      c.frameWith(i, seen(c.there, 100 + i, ipId, pattern(length)), IP_ID_UNKNOWN)
        .out(ack({ psn: 100 + i, msn: i + 1 }))
        .wc({ wrId: i + 1, byteLen: length });
    });
  });

  test('the same frame is damaged without the option', async () => {
    const c = await rc({ receives: 1 });
    c.frames(0, seen(c.there, 100, 0x1234))
      .silent()
      .counts({ drop_icrc: 1 });
  });

  test('a damaged frame is detected, whichever bit of UDP, BTH, payload or ICRC is wrong', async () => {
    const c = await rc({ receives: 1 });
    const good = seen(c.there, 100, 0xbeef);
    // not covered: the UDP checksum (40, 41) and the byte of FECN and BECN (46)
    for (let at = 34; at < good.length; at++)
      for (let bit = 0; bit < 8; bit++) {
        if (at === 40 || at === 41 || at === 46) continue;
        const bad = good.slice();
        bad[at] = (bad[at] as number) ^ (1 << bit);
        c.frameWith(at, bad, IP_ID_UNKNOWN).silent();
      }
    c.wc()
      .events('QP_ICRC_ERR')
      .cardCounts({ rcvd_pkts: 0 })
      .frameWith(100, good, IP_ID_UNKNOWN)
      .out(ack({ psn: 100, msn: 1 }))
      .wc({ wrId: 1 });
  });

  test('random damage passes no more often than once in 65,536', async () => {
    const c = await rc({ receives: 1 });
    const random = new Random(4791);
    const good = seen(c.there, 100, 0xbeef, pattern(64));
    for (let i = 0; i < 2000; i++) {
      const bad = good.slice();
      for (let n = 0; n < 4; n++) bad[54 + random.below(64)] = random.below(256);
      if (Buffer.compare(bad, good) !== 0) c.frameWith(i, bad, IP_ID_UNKNOWN).silent();
    }
    c.events('QP_ICRC_ERR').cardCounts({ rcvd_pkts: 0 });
  });

  test('there is nothing to solve for over IPv6', async () => {
    const c = await rc({ ...V6, flow: V6_FLOW, receives: 1 });
    const bad = encodeFrame(c.there, send({ psn: 100 }), { icrc: 0x1234 });
    c.frameWith(0, bad, IP_ID_UNKNOWN)
      .silent()
      .frameWith(1, encodeFrame(c.there, send({ psn: 100 })), IP_ID_UNKNOWN)
      .out(ack({ psn: 100, msn: 1 }))
      .wc({ wrId: 1 });
  });
});
