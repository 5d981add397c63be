// The links' part of the ICRC, by the addon: what leaves has the whole of it, what arrives has its part folded into it.
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { faultLink } from '../../src/link/fault.js';
import { type Link, RX_ICRC_FOLDED, TX_CONTINUES_RUN, TX_ICRC_SHIFT } from '../../src/link/link.js';
import { pcapLink } from '../../src/link/pcap.js';
import { UdpLink } from '../../src/link/udp.js';
import { native } from '../../src/native.js';
import { register } from '../kit/icrc.js';
import { complete, fold, share } from '../kit/offload.js';
import { all, describeIf, netPrivilege, programPrivilege } from '../kit/privileges.js';
import { headerBytes } from '../kit/runs.js';
import { sh } from './far.js';
import { packetCable } from './packetcable.js';
import { type FrameFields, LARGE_SLOTS, payloadsOf, Rig, udpFrame } from './rig.js';

const methods = native().crcMethods();
/** Bytes from the BTH to the ICRC, around each share. */
const SIZES = [64, 268, 272, 276, 528, 1040, 1056, 2000, 4108, 4112, 4144];
const noise = (bytes: number, seed: number) =>
  Buffer.from(Uint8Array.from({ length: bytes }, (_, i) => (i * i + seed) >> 3));

describe.skipIf(methods.length === 0)('carry-less multiplication', () => {
  test.each(methods)('%s agrees with the CRC byte by byte, whatever it starts from', (method) => {
    for (const length of [256, 512, 768, 1024, 2048, 4096])
      for (const [shift, start] of [0, 1, 0xffffffff, 0xdebb20e3].entries()) {
        const bytes = noise(length + 4, length).subarray(shift, shift + length);
        expect(native().crc(method, start, bytes)).toBe(register(start, bytes));
      }
  });
});

const none = { ok: false, reason: 'this processor has no carry-less multiplication' } as const;
const privilege = methods.length > 0 ? all(netPrivilege(), programPrivilege('ip')) : none;

/** UDP payloads as of packets: what counts here is where they end. */
const packets = (fields: FrameFields, sizes: readonly number[]) =>
  sizes.map((bytes, id) => udpFrame({ ...fields, id, payload: noise(bytes, id) }));

/** Puts frames as a card that leaves their part to the link. @returns them as they must leave */
function putShared(rig: Rig, frames: readonly Buffer[], isRun = false): Buffer[] {
  return frames.map((frame, k) => {
    const bytes = share(frame.length - headerBytes(frame));
    const whole = Buffer.from(frame);
    complete(whole, bytes << TX_ICRC_SHIFT);
    rig.put(frame);
    const run = isRun && k > 0 ? TX_CONTINUES_RUN : 0;
    rig.tx.describe(rig.tx.producer - 1, frame.length, (run | (bytes << TX_ICRC_SHIFT)) >>> 0);
    return whole;
  });
}

describeIf(privilege, 'packet links at both ends of a cable', () => {
  const { v4, v6, rigs } = packetCable('lko', 104);
  const FLOWS: [string, FrameFields][] = [
    ['IPv4', v4],
    ['IPv6 with a tag', { ...v6, vlan: 5 }],
  ];
  test.each(FLOWS)('%s: a frame leaves with the whole of it, however much the card has left', async (_name, fields) => {
    const { a, b } = rigs();
    expect(a.link.features.icrcOffload).toBe(true);
    const whole = putShared(a, packets(fields, SIZES));
    expect(a.link.send(0)).toBe(SIZES.length);
    expect(await b.gather(SIZES.length)).toEqual(whole.map((frame) => ({ frame, options: 0 })));
  });

  test.each(FLOWS)('%s: so does a run, and is folded on its way in', async (_name, fields) => {
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

  test('what must wait in the ring is completed once', async () => {
    const { a } = rigs();
    const [whole] = putShared(a, packets(v4, [2000])) as [Buffer];
    // no such interface any more: the frame is refused, and was completed before
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
  ])('a %s link around it leaves all of it to the card, and sees it as it came', async (_name, wrap) => {
    const { a, b } = rigs({ to: { icrcOffload: true }, wrap });
    expect(b.link.features).not.toHaveProperty('icrcOffload');
    const frames = packets(v4, SIZES);
    a.put(...frames);
    a.link.send(0);
    expect(await b.gather(SIZES.length)).toEqual(frames.map((frame) => ({ frame, options: 0 })));
  });
});

describeIf(privilege, 'udp links over the loopback interface', () => {
  const [A4, B4] = ['10.104.1.1', '10.104.1.2'];
  const [A6, B6] = ['fd00:104:1:0:0:0:0:1', 'fd00:104:1:0:0:0:0:2'];
  const addresses = [`${A4}/32`, `${B4}/32`, 'fd00:104:1::1/128', 'fd00:104:1::2/128'];
  const open: Link[] = [];

  beforeAll(() => void sh(addresses.map((address) => `ip addr add ${address} dev lo`).join(';')));
  afterAll(() => void sh(addresses.map((address) => `ip addr del ${address} dev lo`).join(';')));
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
