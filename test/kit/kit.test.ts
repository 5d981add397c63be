import { expect, test } from 'vitest';
import { ipBytes, ipText } from '../../src/probe/packet/address.js';
import { crc32, icrc, rxeFlushIcrc } from '../../src/probe/packet/icrc.js';
import { HEADER_BYTES } from '../../src/probe/packet/opcodes.js';
import {
  ack,
  datagram,
  decode,
  describe,
  encode,
  encodeFrame,
  flowOf,
  nak,
  OPCODES,
  Op,
  request,
  response,
  reverse,
  uc,
  underived,
} from '../../src/probe/packet/packets.js';
import { CAPTURES, FLUSH_CAPTURES, roceFrames } from './fixtures.js';
import { Random } from './random.js';

/** Packets from the IP header on, without ICRC. The first two were captured from adapters of other vendors. */
const ICRC_VECTORS: readonly (readonly [string, string, string])[] = [
  [
    'UC SEND_ONLY with a UDP checksum',
    '45010040047840004011b4d5c0a80007c0a80007c00012b7002caca2' +
      '2460ffff000000d300cf17104630818be28935d90e9a95505401be885e500000',
    '78f353f3',
  ],
  [
    'CNP of a ConnectX-4 Lx',
    '45c2003c718c4000401191610a0011010a001201000012b7002800008100ffff400001180000000000000000000000000000000000000000',
    '82fd002a',
  ],
  ['RC ACK', '4500003000004000401126bb0a0000010a000002c00012b7001c00001100ffff00000011000000641f000001', '1addec5c'],
  [
    'RC SEND_ONLY over IPv4',
    '4500003400004000401126b70a0000010a000002c00012b7002000000430ffff000000128000006468656c6c6f000000',
    '60f953ca',
  ],
  [
    'RC SEND_ONLY over IPv6',
    '6000000000201140fd000000000000000000000000000001fd000000000000000000000000000002' +
      'c00012b7002000000430ffff000000128000006468656c6c6f000000',
    '1c71ad71',
  ],
];

const fromHex = (hex: string) => Uint8Array.from(Buffer.from(hex, 'hex'));

test('crc32 has the check value of its definition', () => {
  expect(crc32(new TextEncoder().encode('123456789'))).toBe(0xcbf43926);
});

test.each(ICRC_VECTORS)('ICRC of a known packet: %s', (_name, packet, expected) => {
  expect(icrc(fromHex(packet)).toString(16).padStart(8, '0')).toBe(expected);
});

test('the builders encode a known packet byte by byte', () => {
  const [, packet = '', sum] = ICRC_VECTORS[3] ?? [];
  const there = flowOf({ srcIp: '10.0.0.1', dstIp: '10.0.0.2', destQp: 0x12, migReq: false });
  const payload = new TextEncoder().encode('hello');
  const bytes = encodeFrame(there, request.sendOnly({ psn: 100, ackReq: true, payload }));
  expect(Buffer.from(bytes.subarray(14)).toString('hex')).toBe(packet + sum);
});

test.each(CAPTURES)('%s: every RoCE packet is decoded and encoded identically, and its ICRC is right', (name) => {
  const frames = roceFrames(name);
  let wrong = 0;
  for (const bytes of frames) {
    const decoded = decode(bytes);
    if (!decoded.icrcOk) wrong++;
    const again = encode(decoded.icrcOk ? underived(decoded) : { ...underived(decoded), icrc: decoded.icrc });
    if (Buffer.compare(again, bytes) !== 0) expect(describe(again)).toBe(describe(bytes));
    expect(Buffer.compare(again, bytes)).toBe(0);
  }
  expect(wrong).toBe(FLUSH_CAPTURES.includes(name) ? 1 : 0);
});

test('every bit from the BTH on is kept by decode and encode, reserved ones too', () => {
  const random = new Random(11);
  for (const [opcode, { name, headers }] of OPCODES)
    for (let i = 0; i < 20; i++) {
      const length = 12 + headers.reduce((sum, header) => sum + HEADER_BYTES[header], 0) + 16;
      const empty = { ...request.sendOnly({ psn: 0 }), payload: new Uint8Array(length - 12) };
      const bytes = encodeFrame(flowOf(i % 2 === 0 ? {} : { srcIp: 'fd77::3', dstIp: 'fd77::2' }), empty);
      const bth = bytes.length - 4 - length;
      bytes.set(random.bytes(length), bth);
      bytes[bth] = opcode;
      const decoded = decode(bytes);
      const again = encode({ ...underived(decoded), padding: decoded.padding, icrc: decoded.icrc });
      expect(Buffer.from(again).toString('hex'), name).toBe(Buffer.from(bytes).toString('hex'));
    }
});

test('the captures contain every RC opcode but two', () => {
  const seen = new Set<number>();
  let frames = 0;
  for (const name of CAPTURES)
    for (const bytes of roceFrames(name)) frames += seen.add(decode(bytes).bth.opcode) ? 1 : 0;
  expect(CAPTURES.length).toBe(78);
  expect(frames).toBeGreaterThan(7000);
  const rc = Object.values(Op).filter((code) => typeof code === 'number');
  expect(rc.filter((code) => !seen.has(code)).map((code) => Op[code])).toEqual([
    'SEND_ONLY_WITH_IMM',
    'SEND_LAST_WITH_INVALIDATE',
  ]);
});

test('a packet is also an expectation of a frame', () => {
  const back = reverse(flowOf({ vlan: 0x6005, srcIp: 'fd77::3', dstIp: 'fd77::2' }));
  const decoded = decode(encodeFrame(back, ack({ psn: 0xffffff, msn: 3 })));
  expect(decoded).toMatchObject(ack({ psn: 0xffffff, msn: 3 }));
  expect(decoded).not.toMatchObject(ack({ psn: 0xffffff, msn: 4 }));
  expect(decoded).toMatchObject({ eth: { vlan: 0x6005 }, ip: { src: 'fd77::2', dst: 'fd77::3' }, icrcOk: true });
  const data = decode(encodeFrame(back, request.sendOnly({ psn: 1, payload: Uint8Array.of(1, 2, 3) })));
  expect(data).toMatchObject(request.sendOnly({ psn: 1, payload: Uint8Array.of(1, 2, 3) }));
  expect(data).not.toMatchObject(request.sendOnly({ psn: 1, payload: Uint8Array.of(1, 2) }));
  expect(data).not.toMatchObject(request.sendOnly({ psn: 1 }));
});

test('a message is split at the MTU, PSNs wrap, and only the last packet requests the ACK', () => {
  const payload = new Random(1).bytes(600);
  const packets = request.write({ psn: 0xfffffe, payload, mtu: 256, va: 0x1000n, rkey: 7, imm: 5 });
  expect(packets.map((p) => p.bth.psn)).toEqual([0xfffffe, 0xffffff, 0]);
  expect(packets.map((p) => p.bth.opcode)).toEqual([
    Op.RDMA_WRITE_FIRST,
    Op.RDMA_WRITE_MIDDLE,
    Op.RDMA_WRITE_LAST_WITH_IMM,
  ]);
  expect(packets.map((p) => p.bth.ackReq)).toEqual([false, false, true]);
  expect(packets[0]?.reth).toEqual({ va: 0x1000n, rkey: 7, length: 600 });
  expect(Buffer.concat(packets.map((p) => p.payload))).toEqual(Buffer.from(payload));
  expect(response.read({ psn: 4, msn: 1, payload: new Uint8Array(0), mtu: 256 }).map((p) => p.bth.opcode)).toEqual([
    Op.RDMA_READ_RESPONSE_ONLY,
  ]);
});

test('a builder writes fields that break a rule as it is told', () => {
  const send = request.sendOnly({ psn: 1, payload: Uint8Array.of(1, 2, 3), bth: { version: 1, pad: 0 } });
  const decoded = decode(encodeFrame(flowOf(), send, { icrc: 0x01020304, trailer: new Uint8Array(6) }));
  expect(decoded).toMatchObject({ bth: { version: 1, pad: 0 }, icrc: 0x01020304, icrcOk: false });
  expect(decoded.payload).toEqual(Uint8Array.of(1, 2, 3, 0));
  expect(decoded.trailer.length).toBe(6);
});

test('describe returns one line for any packet, and never throws', () => {
  const there = flowOf();
  expect(describe(encodeFrame(there, nak.rnr({ psn: 9, msn: 2, timer: 12 })))).toBe(
    '10.0.0.2 > 10.0.0.1, RC ACKNOWLEDGE qp 0x11 psn 9, RNR timer 12 msn 2, 0 bytes, icrc ok',
  );
  const bytes = encodeFrame(there, uc(request.sendOnly({ psn: 9, payload: Uint8Array.of(1), solicited: true })));
  expect(describe(bytes)).toContain('UC SEND_ONLY qp 0x11 psn 9, solicited, 1 bytes + 3 pad, icrc ok');
  const random = new Random(7);
  for (let length = 0; length <= bytes.length; length++) describe(bytes.subarray(0, length));
  for (let i = 0; i < 500; i++) {
    const mutant = bytes.slice();
    mutant[random.below(mutant.length)] = random.below(256);
    describe(mutant);
  }
  expect(describe(new Uint8Array(3))).toBe('3 bytes, not RoCEv2');
});

test('addresses become text and bytes again', () => {
  for (const text of ['::', '::1', 'fd77::3', 'fe80::1:2:3:4', '2001:db8:1:2:3:4:5:6', '10.77.0.3'])
    expect(ipText(ipBytes(text))).toBe(text);
  expect(() => ipBytes('1:2')).toThrow(RangeError);
  expect(() => ipBytes('1.2.3')).toThrow(RangeError);
});

test('the same seed gives the same numbers, in the requested range', () => {
  const [a, b] = [new Random(5), new Random(5)];
  const numbers = Array.from({ length: 1000 }, () => a.between(3, 9));
  expect(numbers).toEqual(Array.from({ length: 1000 }, () => b.between(3, 9)));
  expect([...new Set(numbers)].sort()).toEqual([3, 4, 5, 6, 7, 8]);
});

test.each(FLUSH_CAPTURES)('%s: the FLUSH has the wrong ICRC of rxe', (name) => {
  const frames = roceFrames(name).filter((bytes) => decode(bytes).bth.opcode === Op.FLUSH);
  expect(frames).toHaveLength(1);
  for (const bytes of frames) expect(decode(bytes).icrc).toBe(rxeFlushIcrc(bytes.subarray(14, -4)));
});

test('a datagram carries its Q_Key and sender', () => {
  const bytes = encodeFrame(flowOf({ destQp: 1 }), datagram.sendOnly({ psn: 0, qkey: 0x80010000, srcQp: 1 }));
  expect(decode(bytes)).toMatchObject({ deth: { qkey: 0x80010000, srcQp: 1 }, bth: { destQp: 1 } });
});
