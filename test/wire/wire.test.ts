import { beforeAll, expect, describe as group, test } from 'vitest';
import {
  ack,
  decode,
  describe,
  encode,
  encodeFrame,
  flowOf,
  frameOf,
  Op,
  request,
  underived,
} from '../../src/probe/packet/packets.js';
import { CAPTURES, FLUSH_CAPTURES, roceFrames } from '../kit/fixtures.js';
import { Random } from '../kit/random.js';
import { Wire } from './wire.js';

let wire: Wire;
beforeAll(async () => {
  wire = await Wire.create();
}, 60_000);

group('captures of rxe', () => {
  test.each(CAPTURES)('%s: every packet is decoded, intact, and encoded identically', (name) => {
    let wrong = 0;
    for (const bytes of roceFrames(name)) {
      const theirs = decode(bytes);
      expect(wire.parse(bytes), describe(bytes)).toBe('ok');
      expect(wire.isIcrcRight, describe(bytes)).toBe(theirs.icrcOk);
      // rxe's own ICRC of a FLUSH, which only rxe accepts
      if (!theirs.icrcOk) {
        expect(Boolean(wire.exports.isIcrcOfRxe()), describe(bytes)).toBe(true);
        wrong++;
      }
      // Differences between the card's headers and rxe's: MigReq, no identification, DF, UDP checksum 0, flow label 0.
      const ours = underived(theirs);
      ours.bth.migReq = true;
      ours.udp.checksum = 0;
      if (ours.ip.version === 4) Object.assign(ours.ip, { id: 0, fragment: 0x4000 });
      else ours.ip.flowLabel = 0;
      const again = wire.reemit(ours.ip.version === 4 ? ours.ip.ttl : ours.ip.hopLimit);
      const expected = encode({ ...ours, trailer: new Uint8Array(0) });
      if (Buffer.compare(again, expected) !== 0) expect(describe(again)).toBe(describe(expected));
      expect(Buffer.compare(again, expected)).toBe(0);
    }
    expect(wrong).toBe(FLUSH_CAPTURES.includes(name) ? 1 : 0);
  });
});

group('the ICRC', () => {
  test('agrees with the second implementation at every length and alignment', () => {
    const random = new Random(11);
    for (let length = 0; length < 300; length++) {
      const payload = random.bytes(length);
      const v6 = length % 2 ? { srcIp: 'fd00::2', dstIp: 'fd00::1' } : {};
      const vlan = length % 3 ? { vlan: 0x2005 } : {};
      const bytes = encodeFrame(
        flowOf({ ...v6, ...vlan, trafficClass: length & 255 }),
        request.sendOnly({ psn: length, payload }),
      );
      expect(wire.parse(bytes, 0, length % 16)).toBe('ok');
      expect(wire.isIcrcRight, `${length} bytes`).toBe(true);
    }
  });

  test('does not cover what routers change, and covers every other bit', () => {
    const good = encodeFrame(flowOf(), request.sendOnly({ psn: 1, payload: new Random(3).bytes(8) }));
    const uncovered = new Set([14 + 1, 14 + 8, 14 + 10, 14 + 11, 14 + 20 + 6, 14 + 20 + 7, 14 + 28 + 4]);
    for (let bit = 14 * 8; bit < good.length * 8; bit++) {
      const bad = good.slice();
      const at = bit >> 3;
      bad[at] = (bad[at] ?? 0) ^ (1 << (bit & 7));
      if (wire.parse(withIpSum(bad)) === 'ok') expect(wire.isIcrcRight, `byte ${at}`).toBe(uncovered.has(at));
    }
  });

  test('can be checked without the IPv4 identification where the link cannot see it, and still detects damage', () => {
    const IP_ID_UNKNOWN = 0x10000;
    const random = new Random(5);
    for (let i = 0; i < 200; i++) {
      const there = flowOf({ ipId: random.below(65536) });
      const packet = request.sendOnly({ psn: i, payload: random.bytes(random.below(600)) });
      const sent = decode(encodeFrame(there, packet));
      const seen = encode({ ...frameOf({ ...there, ipId: 0 }, packet), icrc: sent.icrc });
      expect(wire.parse(seen, IP_ID_UNKNOWN)).toBe('ok');
      expect(wire.isIcrcRight).toBe(true);
      if (there.ipId !== 0) {
        expect(wire.parse(seen)).toBe('ok');
        expect(wire.isIcrcRight).toBe(false);
      }
      const bad = seen.slice();
      const at = bad.length - 5 - random.below(packet.payload.length);
      bad[at] = (bad[at] ?? 0) ^ (1 << random.below(8));
      if (packet.payload.length > 0 && wire.parse(bad, IP_ID_UNKNOWN) === 'ok') expect(wire.isIcrcRight).toBe(false);
    }
  });
});

/** The frame with a right IPv4 header checksum, so that other damage is found. */
function withIpSum(bytes: Uint8Array): Uint8Array {
  const out = bytes.slice();
  let sum = 0;
  out[24] = out[25] = 0;
  for (let at = 14; at < 34; at += 2) sum += ((out[at] ?? 0) << 8) | (out[at + 1] ?? 0);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  new DataView(out.buffer).setUint16(24, ~sum & 0xffff);
  return out;
}

group('a frame that is no packet for a card', () => {
  const send = request.sendOnly({ psn: 1, payload: Uint8Array.of(1, 2, 3, 4) });
  const good = () => frameOf(flowOf(), send);
  const v4 = (change: object) => encode({ ...good(), ip: { ...good().ip, ...change } as never });
  const v6 = (change: object) => {
    const made = frameOf(flowOf({ srcIp: 'fd00::2', dstIp: 'fd00::1' }), send);
    return encode({ ...made, ip: { ...made.ip, ...change } as never });
  };
  const patched = (at: number, value: number, make = encodeFrame(flowOf(), send)) => {
    make[at] = value;
    return withIpSum(make);
  };

  test.each<readonly [string, () => Uint8Array, string]>([
    ['nothing', () => new Uint8Array(0), 'drop_short'],
    ['half a header', () => encodeFrame(flowOf(), send).slice(0, 20), 'drop_short'],
    ['ARP', () => patched(13, 6), 'drop_ethertype'],
    ['IPv4 with options', () => patched(14, 0x46), 'drop_ip_header'],
    ['an IPv4 length beyond the frame', () => v4({ totalLength: 1000 }), 'drop_ip_header'],
    ['an IPv4 length of nothing', () => v4({ totalLength: 19 }), 'drop_ip_header'],
    ['an IPv4 checksum that is wrong', () => v4({ checksum: 1 }), 'drop_ip_checksum'],
    ['a first fragment', () => v4({ fragment: 0x2000 }), 'drop_ip_fragment'],
    ['a later fragment', () => v4({ fragment: 1 }), 'drop_ip_fragment'],
    ['an IPv6 length beyond the frame', () => v6({ payloadLength: 1000 }), 'drop_ip_header'],
    ['TCP', () => patched(23, 6), 'drop_not_udp'],
    ['another port', () => encode({ ...good(), udp: { sport: 1, dport: 53, checksum: 0 } }), 'drop_udp_port'],
    ['a UDP length that lies', () => encode({ ...good(), udp: { ...good().udp, length: 9 } }), 'drop_udp_length'],
    [
      'another transport version',
      () => encodeFrame(flowOf(), { ...send, bth: { ...send.bth, version: 1 } }),
      'drop_transport_version',
    ],
    [
      'an opcode that nobody gave out',
      () => encodeFrame(flowOf(), { ...send, bth: { ...send.bth, opcode: 0xc5 } }),
      'drop_opcode',
    ],
    [
      'more pad than payload',
      () => encodeFrame(flowOf(), { ...ack({ psn: 1, msn: 1 }), bth: { ...send.bth, opcode: 0x11, pad: 3 } }),
      'drop_length',
    ],
    [
      'an ACK with a payload',
      () => encodeFrame(flowOf(), ack({ psn: 1, msn: 1, payload: new Uint8Array(4) })),
      'drop_length',
    ],
    [
      'a RETH cut off',
      () =>
        encodeFrame(flowOf(), { ...request.sendOnly({ psn: 1 }), bth: { ...send.bth, opcode: Op.RDMA_WRITE_ONLY } }),
      'drop_length',
    ],
  ])('%s', (_name, make, reason) => {
    expect(wire.parse(make())).toBe(reason);
  });

  test('Ethernet padding behind the IP packet is not read', () => {
    expect(wire.parse(encodeFrame(flowOf(), send, { trailer: Uint8Array.of(9, 9, 9) }))).toBe('ok');
    expect(wire.isIcrcRight).toBe(true);
  });
});

test('PSNs are compared and counted modulo 2^24', () => {
  const { psnDiff, psnAdd, packetCount } = wire.exports;
  expect(psnDiff(0, 0xffffff)).toBe(1);
  expect(psnDiff(0xffffff, 0)).toBe(-1);
  expect(psnDiff(0x7fffff, 0)).toBe(0x7fffff);
  expect(psnDiff(0x800000, 0)).toBe(-0x800000);
  expect(psnAdd(0xffffff, 2)).toBe(1);
  expect([0, 1, 1024, 1025, 2 ** 31].map((length) => packetCount(length, 1024))).toEqual([1, 1, 1, 2, 2 ** 21]);
});

test('RNR timer codes mean what table 45 of the IBTA says', () => {
  const hundredths = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
    6144, 8192, 12288, 16384, 24576, 32768, 49152,
  ];
  expect(hundredths.map((_, code) => wire.exports.rnrDelay(code))).toEqual(hundredths.map((n) => BigInt(n) * 10_000n));
});
