// The CRC of ICRC spans, computed by the addon: sent frames have the complete ICRC, received frames the folded
// one.
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { faultLink } from '../../src/link/fault/link.js';
import {
  type Frames,
  RX_ICRC_FOLDED,
  TX_CONTINUES_BURST,
  TX_FETCH_SPAN,
  TX_ICRC_SHIFT,
} from '../../src/link/frames.js';
import type { Link } from '../../src/link/link.js';
import { pcapLink } from '../../src/link/pcap.js';
import { frameLayout } from '../../src/link/ring.js';
import { UdpLink } from '../../src/link/udp.js';
import { XdpLink } from '../../src/link/xdp/link.js';
import { native } from '../../src/native.js';
import { headerBytes } from '../kit/gsobursts.js';
import { complete, fold, span } from '../kit/offload.js';
import { all, describeIf, netPrivilege, programPrivilege, xdpPrivilege } from '../kit/privileges.js';
import { addToLoopback, removeFromLoopback, sh, vethPair } from './netns.js';
import { packetPair } from './packetpair.js';
import { type FrameFields, LARGE_SLOTS, payloadsOf, Rig, udpFrame } from './rig.js';

const methods = native().crcMethods();
/** Bytes from the BTH to the ICRC, around the limits of each span. */
const SIZES = [64, 268, 272, 276, 528, 1040, 1056, 2000, 4108, 4112, 4144];
const noise = (bytes: number, seed: number) =>
  Buffer.from(Uint8Array.from({ length: bytes }, (_, i) => (i * i + seed) >> 3));

const none = { ok: false, reason: 'this processor has no method for the CRC' } as const;
const privilege = methods.length > 0 ? all(netPrivilege(), programPrivilege('ip')) : none;

/** UDP payloads in place of packets: only their length matters here. */
const packets = (fields: FrameFields, sizes: readonly number[]) =>
  sizes.map((bytes, id) => udpFrame({ ...fields, id, payload: noise(bytes, id) }));

/**
 * Writes frames as a card does that leaves the ICRC span to the link. Every other frame lacks the bytes of the
 * span as well: these are in memory of their own.
 * @returns the frames that must leave
 */
function putShared(rig: Rig, frames: readonly Buffer[], isBurst = false): Buffer[] {
  return frames.map((frame, k) => {
    const bytes = span(frame.length - headerBytes(frame));
    const whole = Buffer.from(frame);
    complete(whole, bytes << TX_ICRC_SHIFT);
    const isElsewhere = bytes > 0 && k % 2 === 0;
    rig.put(isElsewhere ? withoutShare(rig, frame, bytes) : frame);
    const options = (isBurst && k > 0 ? TX_CONTINUES_BURST : 0) | (isElsewhere ? TX_FETCH_SPAN : 0);
    rig.tx.describe(rig.tx.producer - 1, frame.length, (options | (bytes << TX_ICRC_SHIFT)) >>> 0);
    return whole;
  });
}

/** Moves the span of a frame to other memory of the card. @returns the frame with the address in place of the span */
function withoutShare(rig: Rig, frame: Buffer, bytes: number): Buffer {
  const place = frame.length - 4 - bytes;
  // at an odd address, as an application may choose
  const address = rig.frames.allocate?.(bytes + 1) ?? 0;
  rig.memory.set(frame.subarray(place, place + bytes), address + 1);
  const lacking = Buffer.from(frame).fill(0xee, place, place + bytes);
  lacking.writeBigUInt64LE(BigInt(address + 1), place);
  return lacking;
}

describeIf(privilege, 'packet links at both ends of a cable', () => {
  const { v4, v6, rigs } = packetPair('lko', 104);
  const FLOWS: [string, FrameFields][] = [
    ['IPv4', v4],
    ['IPv6 with a tag', { ...v6, vlan: 5 }],
  ];
  test.each(FLOWS)('%s: a frame leaves with its whole ICRC, however large the span is', async (_name, fields) => {
    const { a, b } = rigs();
    expect(a.link.features.icrcOffload).toBe(true);
    const whole = putShared(a, packets(fields, SIZES));
    expect(a.link.send(0)).toBe(SIZES.length);
    expect(await b.gather(SIZES.length)).toEqual(whole.map((frame) => ({ frame, options: 0 })));
  });

  test.each(FLOWS)('%s: a burst leaves with whole ICRCs, and is folded when it arrives', async (_name, fields) => {
    const { a, b } = rigs({ to: { ...LARGE_SLOTS, icrcOffload: true } });
    const whole = putShared(a, packets(fields, [1040, 1040, 1040, 700]), true);
    a.link.send(0);
    const [one] = await b.gather(1);
    expect(one?.options).toBe(((1040 << 17) | RX_ICRC_FOLDED) >>> 0);
    for (const frame of whole) fold(frame, 0);
    expect(payloadsOf(one as NonNullable<typeof one>)).toEqual(
      whole.map((frame) => frame.subarray(headerBytes(frame))),
    );
  });

  test.each(FLOWS)('%s: single frames are folded up to the end of their datagram', async (_name, fields) => {
    const { a, b } = rigs({ to: { ...LARGE_SLOTS, icrcOffload: true } });
    const frames = packets(fields, SIZES);
    const trailer = Buffer.from('behind it');
    a.put(...frames.map((frame) => Buffer.concat([frame, trailer])));
    a.link.send(0);
    for (const frame of frames) fold(frame, 0);
    expect(await b.gather(SIZES.length)).toEqual(
      frames.map((frame) => ({ frame: Buffer.concat([frame, trailer]), options: RX_ICRC_FOLDED })),
    );
  });

  test('a span that the frame cannot have is ignored, wherever its address leads', async () => {
    const { a, b } = rigs();
    const frames = packets(v4, [64, 300, 1040, 1040, 1040, 1040]);
    const spans = [256, 512, 100, 2 ** 15 - 1, 8192, 2048];
    const first = a.tx.producer;
    a.put(...frames);
    for (const [i, bytes] of spans.entries())
      a.tx.describe(first + i, (frames[i] as Buffer).length, (bytes << TX_ICRC_SHIFT) >>> 0);
    expect(a.link.send(0)).toBe(frames.length);
    expect((await b.gather(frames.length)).map(({ frame }) => frame)).toEqual(frames);
  });

  test('a span outside of the memory is not fetched, and its frame is not sent', async () => {
    const { a, b } = rigs();
    const end = BigInt(a.memory.length);
    const addresses = [end, end - 1023n, 2n ** 32n, 2n ** 53n, 2n ** 64n - 1024n];
    const frames = packets(
      v4,
      addresses.map(() => 1040),
    );
    const first = a.tx.producer;
    for (const [i, address] of addresses.entries()) {
      const frame = frames[i] as Buffer;
      frame.writeBigUInt64LE(address, frame.length - 4 - 1024);
    }
    a.put(...frames);
    const options = (TX_FETCH_SPAN | (1024 << TX_ICRC_SHIFT)) >>> 0;
    for (const [i, frame] of frames.entries()) a.tx.describe(first + i, frame.length, options);
    const last = packets(v4, [300]);
    a.put(...last);
    expect(a.link.send(0)).toBe(frames.length + 1);
    expect((await b.gather(1)).map(({ frame }) => frame)).toEqual(last);
  });

  test('a frame that waits in the ring is completed once', async () => {
    const { a } = rigs();
    const [whole] = putShared(a, packets(v4, [2000])) as [Buffer];
    // The interface no longer exists: the kernel refuses the frame, whose ICRC is complete already.
    const at = a.tx.addr(a.tx.consumer);
    sh('ip link set lko0 down');
    a.link.send(0);
    sh('ip link set lko0 up');
    expect(Buffer.from(a.memory.slice(at, at + whole.length))).toEqual(whole);
    expect(a.tx.options(a.tx.consumer - 1)).toBe(0);
  });

  test.each<[string, (link: Link) => Link]>([
    ['fault', (link) => faultLink(link, {})],
    ['pcap', (link) => pcapLink(link, '/dev/null')],
  ])('a %s link around it offers no offload to the card, and sees frames as they came', async (_name, wrap) => {
    const { a, b } = rigs({ to: { icrcOffload: true }, wrap });
    expect(b.link.features).not.toHaveProperty('icrcOffload');
    const frames = packets(v4, SIZES);
    a.put(...frames);
    a.link.send(0);
    expect(await b.gather(SIZES.length)).toEqual(frames.map((frame) => ({ frame, options: 0 })));
  });
});

test.skipIf(methods.length === 0)('spans are fetched at once, even if nothing can be sent yet', () => {
  const sockets = new (native().UdpSockets)();
  const attach = (frames: Frames) => sockets.attach(frames.memory, frameLayout(frames));
  const rig = new Rig({ attach } as Link);
  const fields = { source: '127.104.2.1', destination: '127.104.2.2' };
  const whole = putShared(rig, packets(fields, [2000, 1040, 300]));
  const first = rig.tx.consumer;
  expect(sockets.send()).toBe(0);
  expect(rig.tx.filled).toBe(3);
  for (const [n, frame] of whole.entries()) {
    const at = rig.tx.addr(first + n);
    expect(Buffer.from(rig.memory.slice(at, at + frame.length))).toEqual(frame);
    expect(rig.tx.options(first + n)).toBe(0);
  }
  sockets.close();
});

describeIf(all(privilege, xdpPrivilege()), 'xdp links at both ends of a cable', () => {
  const LAYOUT = { slots: 128, memoryBytes: 8 * 2 ** 20 };
  const open: Link[] = [];
  beforeAll(() => {
    vethPair(['lkq0', 'lkq1'], 106, 9000);
  });
  afterAll(() => void sh('ip link del lkq0'));
  afterEach(() => {
    for (const link of open.splice(0)) link.close();
  });

  /** @param icrcOffload whether the second card uses the offload */
  function rigs(icrcOffload: boolean): { a: Rig; b: Rig; destMac: number[] } {
    const [from, to] = ['lkq0', 'lkq1'].map((name) => XdpLink.open({ interface: name })) as [XdpLink, XdpLink];
    open.push(from, to);
    const a = new Rig(from, { ...LAYOUT, icrcOffload: true });
    return { a, b: new Rig(to, { ...LAYOUT, icrcOffload }), destMac: [...to.interface.mac] };
  }

  const v4 = { source: '10.106.0.1', destination: '10.106.0.2' };
  const v6 = { source: 'fd00:106:0:0:0:0:0:1', destination: 'fd00:106:0:0:0:0:0:2' };
  test.each<[string, FrameFields]>([
    ['IPv4', v4],
    ['IPv4 with a tag', { ...v4, vlan: 7 }],
    ['IPv6', v6],
  ])('%s: frames leave with their whole ICRC, and arrive folded', async (_name, fields) => {
    for (const icrcOffload of [false, true]) {
      const { a, b, destMac } = rigs(icrcOffload);
      expect(a.link.features.icrcOffload).toBe(true);
      expect(a.link.notes?.join()).toContain('ICRC of large packets');
      const whole = putShared(a, packets({ ...fields, destMac }, SIZES));
      expect(a.link.send(0)).toBe(SIZES.length);
      const arrived = await b.gather(SIZES.length);
      if (icrcOffload) for (const frame of whole) fold(frame, 0);
      expect(arrived.map(({ frame }) => frame)).toEqual(whole);
      for (const { frame, options } of arrived)
        if (span(frame.length - headerBytes(frame)) > 0) expect(options).toBe(icrcOffload ? RX_ICRC_FOLDED : 0);
      for (const link of open.splice(0)) link.close();
    }
  });

  test('a frame to the own address loops back with its whole ICRC, and is not folded', () => {
    const { a } = rigs(true);
    const destMac = [...(a.link as XdpLink).interface.mac];
    const whole = putShared(a, packets({ source: v4.source, destination: v4.source, destMac }, SIZES));
    expect(a.link.send(0)).toBe(SIZES.length);
    expect(a.take()).toEqual(whole.map((frame) => ({ frame, options: 0 })));
  });
});

describeIf(privilege, 'udp links over the loopback interface', () => {
  const [A4, B4] = ['10.104.1.1', '10.104.1.2'];
  const [A6, B6] = ['fd00:104:1:0:0:0:0:1', 'fd00:104:1:0:0:0:0:2'];
  const addresses = [`${A4}/32`, `${B4}/32`, 'fd00:104:1::1/128', 'fd00:104:1::2/128'];
  const open: Link[] = [];

  beforeAll(() => addToLoopback(addresses));
  afterAll(() => removeFromLoopback(addresses));
  afterEach(() => {
    for (const link of open.splice(0)) link.close();
  });

  test.each<[string, FrameFields]>([
    ['IPv4', { source: A4, destination: B4 }],
    ['IPv6', { source: A6, destination: B6 }],
  ])('%s: frames leave whole and arrive folded', async (_name, fields) => {
    const a = UdpLink.open({ addresses: [A4, A6] });
    const b = UdpLink.open({ addresses: [B4, B6] });
    open.push(a, b);
    const [from, to] = [new Rig(a), new Rig(b, { icrcOffload: true })];
    const whole = putShared(from, packets(fields, SIZES));
    expect(a.send(0)).toBe(SIZES.length);
    for (const frame of whole) fold(frame, 0);
    const arrived = await to.gather(SIZES.length);
    expect(arrived.map((one) => payloadsOf({ ...one, options: 0 })[0])).toEqual(
      whole.map((frame) => frame.subarray(headerBytes(frame))),
    );
    for (const { options } of arrived) expect(options & RX_ICRC_FOLDED).toBe(RX_ICRC_FOLDED);
  });
});
