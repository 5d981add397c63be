/**
 * GSO bursts, which leave as one super-packet, and super-packets that arrive as one descriptor (Frames in
 * src/link/link.ts).
 */
import { describe, expect, test } from 'vitest';
import {
  ack,
  CNP,
  decode,
  encodeFrame,
  type Flow,
  flowOf,
  request,
  response,
  uc,
} from '../../src/probe/packet/packets.js';
import { type Conversation, pattern, type RcOptions, rc, send, TARGET_VA, unreliable } from '../kit/conversation.js';
import { createAh, openPort, QKEY } from '../kit/datagrams.js';
import { coalesce, type GsoLimits, gsoBursts } from '../kit/gsobursts.js';
import { fold } from '../kit/offload.js';
import { Rig } from '../kit/rig.js';

const LIMITS: GsoLimits = { packets: 64, bytes: 65507 };
const V6: RcOptions = {
  localIp: [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
  remoteIp: [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2],
  flow: { srcIp: 'fd00::2', dstIp: 'fd00::1' },
};
const WAYS: [string, RcOptions][] = [
  ['IPv4', {}],
  ['IPv4 behind a VLAN tag', { vlan: 0x6123, flow: { vlan: 0x6123 } }],
  ['IPv6', V6],
];
const IP_ID_UNKNOWN = 0x10000;

async function rigWith({ packets, bytes } = LIMITS): Promise<Rig> {
  const rig = await Rig.create();
  rig.x.setLink(0, 0, packets, bytes);
  return rig;
}

/** Lengths of the GSO bursts that the card makes. */
function sentRuns(c: Conversation, limits = LIMITS): number[] {
  return gsoBursts(c.rig.sent(0), limits).map((run) => run.length);
}

function write(c: Conversation, length: number, count = 1): void {
  for (let i = 0; i < count; i++) {
    const errno = c.qp.send({
      opcode: 'RDMA_WRITE',
      pieces: [c.buffer.piece(0, length)],
      remote: { va: 1n, rkey: 1 },
      signaled: false,
    });
    if (errno !== 'OK') throw new Error(errno);
  }
}

describe.each(WAYS)('bursts that the card sends over %s', (_, way) => {
  test('packets of one length make a burst, a shorter one ends it, and each has its own ICRC', async () => {
    const c = await rc({ ...way, signalAll: false, rig: await rigWith() });
    // the first packet also has a RETH, so that the second ends its burst
    write(c, 8 * 1024 + 100);
    expect(sentRuns(c)).toEqual([2, 7]);
    c.in(1, ack({ psn: 1008, msn: 1 })).silent();
    write(c, 8, 5);
    expect(sentRuns(c)).toEqual([5]);
    c.in(2, ack({ psn: 1013, msn: 6 })).silent();
  });

  test('a burst has no more packets and bytes than the link can send in one call', async () => {
    const limits = { packets: 5, bytes: 3200 };
    const c = await rc({ ...way, signalAll: false, rig: await rigWith(limits) });
    write(c, 8, 12);
    expect(sentRuns(c, limits)).toEqual([5, 5, 2]);
    c.in(1, ack({ psn: 1011, msn: 12 })).silent();
    write(c, 1024, 7);
    expect(sentRuns(c, limits)).toEqual([3, 3, 1]);
    c.in(2, ack({ psn: 1018, msn: 19 })).silent();
  });
});

test('a link without the feature gets no bursts', async () => {
  const c = await rc({ signalAll: false });
  write(c, 8, 20);
  expect(gsoBursts(c.rig.sent(0)).map((run) => run.length)).toEqual(Array(20).fill(1));
  c.in(1, ack({ psn: 1019, msn: 20 })).silent();
});

test('a link that sends single packets gets no bursts, and one with few bytes gets short ones', async () => {
  for (const limits of [
    { packets: 1, bytes: 65507 },
    { packets: 64, bytes: 10 },
  ]) {
    const c = await rc({ signalAll: false, rig: await rigWith(limits) });
    write(c, 8, 20);
    expect(sentRuns(c, limits)).toEqual(Array(20).fill(1));
    c.in(1, ack({ psn: 1019, msn: 20 })).silent();
  }
});

test('a burst is cut where the ring is full, and the next begins with the packet after it', async () => {
  const rig = await Rig.create(1, { txSlots: 4 });
  rig.x.setLink(0, 0, LIMITS.packets, LIMITS.bytes);
  const c = await rc({ signalAll: false, rig });
  write(c, 8, 10);
  expect(sentRuns(c)).toEqual([4, 4, 2]);
  c.in(1, ack({ psn: 1009, msn: 10 })).silent();
});

test('two queue pairs share no burst, and take turns of a whole one', async () => {
  const rig = await rigWith();
  const [a, b] = [await rc({ rig }), await rc({ rig })];
  for (let i = 0; i < 2; i++) for (const c of [a, b]) write(c, 8, 30);
  const runs = gsoBursts(rig.sent(0), LIMITS);
  // windows open with 32 packets
  expect(runs.map((run) => run.length)).toEqual([32, 32]);
  a.qp.modify({ STATE: 6 });
  b.qp.modify({ STATE: 6 });
  a.qp.poll();
  b.qp.poll();
});

test('64 packets leave as a burst, and so do the responses of a READ', async () => {
  const c = await rc({ rig: await rigWith(), mtu: 256, signalAll: false });
  // the window opens for all 64 packets once 32 are acknowledged
  write(c, 8, 32);
  c.rig.out(0);
  c.in(1, ack({ psn: 1031, msn: 32 })).silent();
  write(c, 8, 64);
  expect(sentRuns(c)).toEqual([64]);
  c.in(2, ack({ psn: 1095, msn: 96 })).silent();
  const read = await rc({ rig: await rigWith(), mtu: 1024 });
  read.rig.put(
    encodeFrame(read.there, request.read({ psn: 100, va: TARGET_VA, rkey: read.target.rkey, length: 64 * 1024 })),
  );
  read.rig.x.rx(0, 1);
  // 1040 bytes each; FIRST and LAST have an AETH
  expect(sentRuns(read)).toEqual([2, 61, 1]);
});

test('responses and requests of one queue pair are bursts of their own, and neither starves', async () => {
  const c = await rc({ rig: await rigWith({ packets: 8, bytes: 65507 }), mtu: 1024 });
  c.rig.put(encodeFrame(c.there, request.read({ psn: 100, va: TARGET_VA, rkey: c.target.rkey, length: 40 * 1024 })));
  c.rig.x.rx(0, 1);
  write(c, 1024, 30);
  const opcodes = c.rig.out(0).map((bytes) => decode(bytes).bth.opcode);
  const turns = opcodes
    .map((opcode) => (opcode < 13 ? 'w' : 'r'))
    .join('')
    .match(/r+|w+/g);
  expect(turns?.slice(0, 4).every((turn) => turn.length <= 16)).toBe(true);
  c.qp.modify({ STATE: 6 });
  c.qp.poll();
});

test('a CNP is no part of a burst', async () => {
  const c = await rc({ signalAll: false, rig: await rigWith() });
  c.rig.put(encodeFrame({ ...c.there, trafficClass: 3 }, request.sendOnly({ psn: 99 })));
  c.rig.x.rx(1_000_000, 1);
  write(c, 0, 3);
  const runs = gsoBursts(c.rig.sent(1_000_000), LIMITS);
  expect(runs[0]?.map((bytes) => decode(bytes).bth.opcode)).toEqual([CNP]);
  expect(runs.slice(1).flat()).toHaveLength(4);
  c.in(1000, ack({ psn: 1002, msn: 3 })).silent();
});

test('datagrams to one address handle make bursts, without those to another', async () => {
  const rig = await rigWith();
  openPort(rig, ['10.0.0.1'], 1024);
  const c = await rc({ rig, type: 'UD', qkey: QKEY });
  const [one, two] = [createAh(c.qp), createAh(c.qp, { remoteIp: [10, 0, 0, 3], remoteMac: [2, 0, 0, 0, 0, 3] })];
  for (const ah of [one, one, one, two, two, one])
    c.qp.send({ opcode: 'SEND', pieces: [c.buffer.piece(0, 100)], to: { ah, qpn: 5, qkey: QKEY }, signaled: false });
  expect(sentRuns(c)).toEqual([3, 2, 1]);
  c.qp.poll();
});

/** Receives frames as one super-packet. */
function arrive(c: Conversation, us: number, frames: readonly Uint8Array[], options = 0, folds = false): Conversation {
  const { bytes, options: all } = coalesce(frames, options);
  return c.frameWith(us, bytes, folds ? fold(bytes, all) : all);
}

const SEEN = WAYS.flatMap(([name, way]): [string, RcOptions, boolean][] => [
  [name, way, false],
  [`${name}, from a link that does its part of the ICRC`, way, true],
]);

describe.each(SEEN)('super-packets that arrive over %s', (_, way, folds) => {
  const wide = { mtu: 1024, receives: 8, ...way };
  const sends = (there: Flow, ids: readonly number[], lastBytes = 1024) =>
    ids.map((ipId, i) =>
      encodeFrame(
        { ...there, ipId },
        send({
          psn: 100 + i,
          ackReq: i === ids.length - 1,
          payload: pattern(i === ids.length - 1 ? lastBytes : 1024, i),
        }),
      ),
    );
  const wcs = (count: number, last = 1024) =>
    Array.from({ length: count }, (_, i) => ({ wrId: i + 1, byteLen: i === count - 1 ? last : 1024 }));

  test.each([
    ['identifications that count', [7, 8, 9, 10]],
    ['identifications that wrap', [0xfffe, 0xffff, 0, 1]],
    ['one identification', [7, 7, 7, 7]],
    ['the identification 0', [0, 0, 0, 0]],
  ])('a super-packet of %s', async (_, ids) => {
    const c = await rc(wide);
    arrive(c, 0, sends(c.there, ids, 333), 0, folds)
      .out(ack({ psn: 103, msn: 4 }))
      .wc(...wcs(4, 333))
      .counts({ rcvd_pkts: 4 });
    for (const i of [0, 1, 2]) c.holds(c.buffer, 4096 * i, pattern(1024, i));
    c.holds(c.buffer, 4096 * 3, pattern(333, 3));
  });

  test.each([
    ['count from 0', [0, 1, 2, 3]],
    ['are all 0', [0, 0, 0, 0]],
    ['count from elsewhere', [500, 501, 502, 503]],
    ['are all the same', [77, 77, 77, 77]],
    ['are anything', [0xffff, 3, 0x8000, 77]],
  ])('identifications that the link did not see and that %s', async (_, ids) => {
    const c = await rc(wide);
    const unseen = sends(c.there, ids).map((bytes, i) => {
      // the header as the link makes it up, with identification 0
      const seen = sends(c.there, [0, 0, 0, 0])[i] as Uint8Array;
      return Uint8Array.from([...seen.subarray(0, -4), ...bytes.subarray(-4)]);
    });
    arrive(c, 0, unseen, IP_ID_UNKNOWN, folds)
      .out(ack({ psn: 103, msn: 4 }))
      .wc(...wcs(4));
  });

  test('a single packet', async () => {
    const c = await rc(wide);
    arrive(c, 0, sends(c.there, [9], 20), 0, folds)
      .out(ack({ psn: 100, msn: 1 }))
      .wc({ byteLen: 20 });
  });

  test('lengths and checksum of the outer headers are not read', async () => {
    const c = await rc(wide);
    const { bytes, options } = coalesce(sends(c.there, [0, 1]));
    const ip = bytes.length - 2 * 1040 - 8 - (c.there.srcIp.includes(':') ? 40 : 20);
    if (c.there.srcIp.includes(':')) bytes.set([0xff, 0xff], ip + 4);
    else {
      bytes.set([0xff, 0xff], ip + 2);
      bytes.set([0xab, 0xcd], ip + 10);
    }
    bytes.set([0, 0, 1, 2], bytes.length - 2 * 1040 - 4);
    c.frameWith(0, bytes, options)
      .out(ack({ psn: 101, msn: 2 }))
      .wc(...wcs(2));
  });

  test('a damaged packet of a super-packet is dropped alone', async () => {
    const c = await rc(wide);
    const frames = sends(c.there, [0, 1, 2]);
    const bad = frames[1] as Uint8Array;
    bad[bad.length - 20] = (bad[bad.length - 20] as number) ^ 4;
    arrive(c, 0, frames, 0, folds)
      .out({ ...ack({ psn: 101, msn: 1, syndrome: 0x60 }) })
      .wc({ byteLen: 1024 })
      .counts({ drop_icrc: 1, rcvd_pkts: 2 })
      .cardCounts({ rcvd_bytes: 2 * (frames[0] as Uint8Array).length });
  });
});

test('packets with other identifications than the rule allows are damaged', async () => {
  const c = await rc({ receives: 4 });
  const frames = [0, 1, 5].map((ipId, i) => encodeFrame({ ...c.there, ipId }, send({ psn: 100 + i, ackReq: false })));
  arrive(c, 0, frames).wc({}, {}).counts({ drop_icrc: 1, rcvd_pkts: 2 });
});

test('the packets may be for different queue pairs, of every type', async () => {
  const rig = await Rig.create();
  const [a, b] = [await rc({ rig, receives: 4 }), await unreliable({ rig, receives: 4 })];
  const both = [
    encodeFrame({ ...a.there, ipId: 0 }, send({ psn: 100, payload: pattern(64) })),
    encodeFrame({ ...b.there, ipId: 1 }, uc(request.sendOnly({ psn: 5, payload: pattern(64, 1) }))),
    encodeFrame({ ...a.there, destQp: 0x777777, ipId: 2 }, send({ psn: 0, payload: pattern(64) })),
    encodeFrame({ ...a.there, ipId: 3 }, send({ psn: 101, payload: pattern(8, 2) })),
  ];
  arrive(a, 0, both)
    .out(ack({ psn: 101, msn: 2 }))
    .wc({ byteLen: 64 }, { byteLen: 8 })
    .cardCounts({ drop_qpn: 1, rcvd_pkts: 3 });
  b.wc({ byteLen: 64 });
});

test('READ responses and ACKs arrive in super-packets too', async () => {
  const c = await rc();
  c.post(0, {
    opcode: 'RDMA_READ',
    wrId: 9,
    pieces: [c.buffer.piece(0, 3000)],
    remote: { va: 0n, rkey: 5 },
  }).out(request.read({ psn: 1000, va: 0n, rkey: 5, length: 3000, ackReq: true }));
  const answers = response.read({ psn: 1000, msn: 1, payload: pattern(3000), mtu: 1024 });
  const [first, ...rest] = answers.map((packet, i) => encodeFrame({ ...c.there, ipId: i === 0 ? 0 : i - 1 }, packet));
  c.frames(1, first as Uint8Array).silent();
  arrive(c, 2, rest).silent().wc({ wrId: 9, byteLen: 3000 }).holds(c.buffer, 0, pattern(3000));
});

describe('datagrams in a super-packet', () => {
  async function receiver() {
    const rig = await Rig.create();
    openPort(rig, ['10.0.0.1', 'fd00::1'], 1024);
    const c = await rc({ rig, type: 'UD', qkey: QKEY, receives: 4 });
    return c;
  }
  const packet = (psn: number, length: number) => ({
    bth: { opcode: 0x64, psn, ackReq: false, solicited: false },
    deth: { qkey: QKEY, srcQp: 0x22 },
    payload: pattern(length, psn),
  });

  test.each([
    ['IPv4', {}],
    ['IPv6', { srcIp: 'fd00::2', dstIp: 'fd00::1' }],
  ])('each datagram has the header in front of it that it had on the wire, over %s', async (_, way) => {
    const c = await receiver();
    const frames = [100, 100, 60].map((length, i) =>
      encodeFrame(flowOf({ destQp: c.qp.qpn, ...way, ipId: 40 + i }), packet(i, length)),
    );
    arrive(c, 0, frames).wc({ byteLen: 140 }, { byteLen: 140 }, { byteLen: 100 });
    for (const [i, bytes] of frames.entries()) {
      const isIpv6 = decode(bytes).ip.version === 6;
      const grh = new Uint8Array(40);
      if (isIpv6) grh.set(bytes.subarray(14, 54));
      else grh.set(bytes.subarray(14, 34), 20);
      c.holds(c.buffer, 4096 * i, grh);
      c.holds(c.buffer, 4096 * i + 40, pattern(i === 2 ? 60 : 100, i));
    }
  });
});

describe('malformed super-packets', () => {
  const good = (there: Flow) =>
    coalesce([100, 101].map((psn, i) => encodeFrame({ ...there, ipId: i }, send({ psn, ackReq: false }))));
  const drops = (c: Conversation) =>
    Object.entries(c.rig.counters())
      .filter(([name]) => name.startsWith('drop_'))
      .reduce((sum, [, count]) => sum + count, 0);

  test('cut off anywhere, each packet that is not whole is dropped', async () => {
    const c = await rc({ receives: 8 });
    const { bytes, options } = good(c.there);
    const one = (bytes.length - 42) / 2;
    let packets = 0;
    let whole = 0;
    for (let length = 1; length < bytes.length; length++) {
      c.frameWith(length, bytes.slice(0, length), options);
      packets += Math.max(1, Math.ceil((length - 42) / one));
      whole += Math.max(0, Math.floor((length - 42) / one));
      c.take();
    }
    expect(drops(c)).toBe(packets - whole);
    c.cardCounts({ rcvd_pkts: whole });
    c.qp.poll();
  });

  test.each([1, 3, 12, 15, 16, 31, 33, 63, 65, 32767])('segments of %i bytes', async (segment) => {
    const c = await rc({ receives: 8 });
    const { bytes } = good(c.there);
    c.frameWith(0, bytes, (segment << 17) >>> 0);
    expect(drops(c)).toBe(Math.ceil((bytes.length - 42) / segment));
    c.cardCounts({ rcvd_pkts: 0 });
    c.take();
    c.qp.poll();
  });
});
