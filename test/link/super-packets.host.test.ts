// GSO bursts leave, and super-packets arrive, in one system call. Where one end does not support this, the frames are
// the same.
import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { faultLink } from '../../src/link/fault/link.js';
import { RX_IP_ID_UNKNOWN, RX_SEGMENT_SHIFT } from '../../src/link/frames.js';
import type { Link } from '../../src/link/link.js';
import { PacketLink } from '../../src/link/packet.js';
import { pcapLink } from '../../src/link/pcap.js';
import { UdpLink } from '../../src/link/udp.js';
import { all, describeIf, netPrivilege, programPrivilege, testIf } from '../kit/privileges.js';
import { addToLoopback, removeFromLoopback, sh } from './netns.js';
import { packetPair } from './packetpair.js';
import { sendSuperPacket } from './rawsuperpacket.js';
import { type FrameFields, LARGE_SLOTS, payloadsOf, Rig, udpFrame } from './rig.js';

const privilege = all(netPrivilege(), programPrivilege('ip'));

/** Returns payloads with different bytes, the last one shorter. */
const payloads = (count: number, bytes: number) =>
  Array.from({ length: count }, (_, k) => Buffer.alloc(k === count - 1 ? bytes - 4 : bytes, k + 1));
/** Returns a GSO burst as a card writes it. */
const burstOf = (fields: FrameFields, parts: Buffer[]) =>
  parts.map((payload, id) => udpFrame({ ...fields, id, payload }));

/** Runs peerlink.ts with a kernel that refuses the first message with EINVAL, as a kernel without GSO does. */
function sendWithGsoRefused(...args: string[]) {
  const strace = ['-f', '-qq', '-o', '/dev/null', '-e', 'trace=sendmmsg', '-e', 'inject=sendmmsg:error=EINVAL:when=1'];
  const node = [process.execPath, '--import', 'tsx', fileURLToPath(new URL('peerlink.ts', import.meta.url)), 'bursts'];
  const output = execFileSync('strace', [...strace, ...node, ...args], { encoding: 'utf8', input: '' });
  return JSON.parse(output);
}

describeIf(privilege, 'packet links at both ends of a cable', () => {
  const { rigs, keep, mac, ...cable } = packetPair('lks', 98);
  const [v4, v6] = [cable.v4, cable.v6].map((fields) => ({ ...fields, trafficClass: 2 })) as [FrameFields, FrameFields];
  const FLOWS: [string, FrameFields][] = [
    ['IPv4', v4],
    ['IPv6', v6],
    ['IPv4 with a tag', { ...v4, vlan: 0x6005 }],
    ['IPv6 with a tag', { ...v6, vlan: 5 }],
  ];
  test.each(FLOWS)('%s: a burst leaves as one super-packet and arrives as one', async (_name, fields) => {
    const { a, b } = rigs({ to: LARGE_SLOTS });
    const parts = payloads(14, 4128);
    a.putBurst(...burstOf(fields, parts));
    expect(a.link.send(0)).toBe(14);
    const [one] = await b.gather(1);
    expect(one?.options).toBe(4128 * 2 ** RX_SEGMENT_SHIFT);
    expect(payloadsOf(one as NonNullable<typeof one>)).toEqual(parts);
    expect(b.link.counters()).toMatchObject({ rx_gro_packets: 1, rx_gro_frames: 14, rx_frames: 14 });
    expect(b.link.counters().rx_bytes).toBe(a.link.counters().tx_bytes);
    expect(a.link.counters()).toMatchObject({ tx_gso_bursts: 1, tx_gso_frames: 14, tx_frames: 14, tx_gso_refused: 0 });
  });

  test.each(FLOWS)(
    '%s: a super-packet is split into the frames that were written for small slots',
    async (_name, fields) => {
      const { a, b } = rigs();
      const frames = burstOf(fields, payloads(14, 4128));
      a.putBurst(...frames);
      a.link.send(0);
      expect(await b.gather(14)).toEqual(frames.map((frame) => ({ frame, options: 0 })));
      expect(b.link.counters()).toMatchObject({ rx_gro_packets: 1, rx_gro_frames: 14, rx_frames: 14, rx_truncated: 0 });
    },
  );

  test('bursts and single frames stay in order, in one call', async () => {
    const { a, b } = rigs();
    const single = (text: string) => udpFrame({ ...v4, id: 77, payload: Buffer.from(text) });
    const [long, short] = [burstOf(v4, payloads(30, 1040)), burstOf(v6, payloads(2, 20))];
    a.put(single('before'));
    a.putBurst(...long);
    a.putBurst(...short);
    a.put(single('behind'));
    expect(a.link.send(0)).toBe(34);
    const arrived = (await b.gather(34)).map(({ frame }) => frame);
    expect(arrived).toEqual([single('before'), ...long, ...short, single('behind')]);
    expect(b.link.counters()).toMatchObject({ rx_gro_packets: 2, rx_gro_frames: 32 });
  });

  test('a super-packet that the ring has no room for waits, and none of it is lost', async () => {
    const { a, b } = rigs({ to: { slots: 16 } });
    const frames = burstOf(v4, payloads(60, 1040));
    a.putBurst(...frames);
    a.link.send(0);
    await new Promise((resolve) => b.link.wait(0, true, () => resolve(undefined)));
    b.link.receive(0);
    expect(b.rx.filled).toBe(16);
    expect(b.link.receive(0)).toBe(0);
    expect((await b.gather(60)).map(({ frame }) => frame)).toEqual(frames);
  });

  test.each([
    ['small', {}],
    ['large', LARGE_SLOTS],
  ])('%s slots: a super-packet that is longer than its datagram arrives as one frame', async (_name, to) => {
    const { a, b } = rigs({ to });
    const empty = udpFrame({ ...v4, payload: Buffer.alloc(0) });
    const longer = Buffer.concat([empty, Buffer.alloc(4058, 'e')]);
    const last = udpFrame({ ...v4, payload: Buffer.from('last') });
    sendSuperPacket(a.link.interface.index, longer, empty.length, 4000);
    a.put(last);
    a.link.send(0);
    expect(await b.gather(2)).toEqual([longer, last].map((frame) => ({ frame, options: 0 })));
    expect(b.link.counters()).toMatchObject({ rx_frames: 2, rx_gro_packets: 0, rx_truncated: 0 });
  });

  test('an interface that takes no super-packets gets the same frames from the kernel', async () => {
    sh('ip link set lks0 gso_max_size 4000');
    const { a, b } = rigs({ to: LARGE_SLOTS });
    for (const [, fields] of FLOWS.slice(0, 2)) {
      const frames = burstOf(fields, payloads(20, 1040));
      a.putBurst(...frames);
      a.link.send(0);
      const arrived = (await b.gather(20)).map(({ frame }) => frame);
      // the kernel writes the UDP checksum, or leaves it to the interface
      const at = (fields.source.includes(':') ? 54 : 34) + 6;
      for (const frame of arrived) frame.writeUInt16BE(0, at);
      expect(arrived).toEqual(frames);
    }
    expect(b.link.counters()).toMatchObject({ rx_gro_packets: 0, rx_frames: 40 });
    sh('ip link set lks0 gso_max_size 65536');
  });

  test.each<[string, (link: Link) => Link]>([
    ['fault', (link) => faultLink(link, {})],
    ['pcap', (link) => pcapLink(link, '/dev/null')],
  ])('a %s link around it offers neither bursts nor super-packets, and gets single frames', async (_name, wrap) => {
    const { a, b } = rigs({ to: { ...LARGE_SLOTS, memoryBytes: 32 * 2 ** 20 }, wrap });
    expect(b.link.features).not.toHaveProperty('gso');
    expect(b.link.features).not.toHaveProperty('coalescedBytes');
    const frames = burstOf(v4, payloads(14, 4128));
    a.putBurst(...frames);
    a.link.send(0);
    expect((await b.gather(14)).map(({ frame }) => frame)).toEqual(frames);
  });

  test('a burst to its own address comes back frame by frame', () => {
    const { a } = rigs();
    const frames = burstOf({ ...v4, destMac: v4.srcMac }, payloads(5, 1040));
    a.putBurst(...frames);
    expect(a.link.send(0)).toBe(5);
    expect(a.take().map(({ frame }) => frame)).toEqual(frames);
  });

  testIf(programPrivilege('strace'), 'where the kernel refuses runs the frames leave one by one', async () => {
    const { b } = rigs();
    expect(sendWithGsoRefused('packet', '10.98.0.1', '10.98.0.2', mac)).toEqual({
      ...{ before: true, after: false, changes: 1 },
      ...{ taken: 8, tx_frames: 8, tx_gso_bursts: 0, tx_gso_refused: 1, tx_errors: 0 },
    });
    expect((await b.gather(8)).map(({ frame }) => frame.readUInt16BE(18))).toEqual([0, 1, 2, 3, 4, 0, 1, 2]);
  });

  test('udp: packets that do not fit the interface are too long in bursts, too, and do not stop other bursts', () => {
    const link = UdpLink.open({ interface: 'lks0', addresses: ['10.98.0.1'] });
    keep(link);
    const rig = new Rig(link, { slotBytes: 10_000 });
    rig.putBurst(...burstOf({ ...v4, destination: '10.98.0.77' }, payloads(3, 9000)));
    rig.putBurst(...burstOf({ ...v4, destination: '10.98.0.77' }, payloads(3, 8000)));
    expect(link.send(0)).toBe(6);
    expect(link.counters()).toMatchObject({ tx_too_long: 3, tx_gso_bursts: 1, tx_gso_frames: 3, tx_gso_refused: 0 });
    expect(link.features.gso).toBeDefined();
  });

  test('a packet that does not belong to a burst ends it', async () => {
    const { a, b } = rigs();
    const parts = payloads(8, 1040).map((part) => Buffer.alloc(1040, part));
    const frames = burstOf(v4, parts);
    const [cancelled, longer, outside] = [1, 3, 6];
    frames[longer] = udpFrame({ ...v4, id: longer, payload: Buffer.alloc(2000) });
    a.putBurst(...frames);
    a.tx.describe(a.tx.consumer + cancelled, 0, 0);
    a.tx.describe(a.tx.consumer + outside, 0xffffffff, a.tx.options(a.tx.consumer + outside));
    expect(a.link.send(0)).toBe(8);
    const rest = frames.filter((_, k) => k !== cancelled && k !== outside);
    expect((await b.gather(6)).map(({ frame }) => frame)).toEqual(rest);
    expect(a.link.counters()).toMatchObject({ tx_gso_bursts: 1, tx_gso_frames: 2, tx_frames: 6, tx_invalid: 1 });
  });
});

describeIf(privilege, 'over the loopback interface, udp', () => {
  const [A4, B4] = ['10.99.0.1', '10.99.0.2'];
  const [A6, B6] = ['fd00:99:0:0:0:0:0:1', 'fd00:99:0:0:0:0:0:2'];
  const open: Link[] = [];
  const addresses = [`${A4}/32`, `${B4}/32`, 'fd00:99::1/128', 'fd00:99::2/128'];

  beforeAll(() => addToLoopback(addresses));
  afterAll(() => removeFromLoopback(addresses));
  afterEach(() => {
    for (const link of open.splice(0)) link.close();
  });

  const FLOWS: [string, FrameFields][] = [
    ['IPv4', { source: A4, destination: B4, trafficClass: 0x6a, ttl: 3 }],
    ['IPv6', { source: A6, destination: B6, trafficClass: 0x6a, ttl: 3 }],
  ];
  /** Header fields that a UDP socket cannot see. */
  const unseen = { destMac: [0, 0, 0, 0, 0, 0], srcMac: [0, 0, 0, 0, 0, 0], sourcePort: 4791 };

  function rigs(to = {}) {
    const a = UdpLink.open({ addresses: [A4, A6] });
    const b = UdpLink.open({ addresses: [B4, B6] });
    open.push(a, b);
    return { a: new Rig(a), b: new Rig(b, to) };
  }

  test.each(FLOWS)('%s: a burst leaves as one super-packet and arrives as one', async (_name, fields) => {
    const { a, b } = rigs(LARGE_SLOTS);
    expect(a.link.features).toMatchObject({ gso: { packets: 64, bytes: 65469 }, coalescedBytes: 65600 });
    const parts = payloads(62, 1040);
    a.putBurst(...burstOf(fields, parts));
    expect(a.link.send(0)).toBe(62);
    const [one] = await b.gather(1);
    const isIpv6 = fields.source.includes(':');
    expect(one?.options).toBe(1040 * 2 ** RX_SEGMENT_SHIFT + (isIpv6 ? 0 : RX_IP_ID_UNKNOWN));
    expect(payloadsOf(one as NonNullable<typeof one>)).toEqual(parts);
    const whole = udpFrame({ ...fields, ...unseen, payload: Buffer.concat(parts) });
    expect(one?.frame).toEqual(whole);
    expect(b.link.counters()).toMatchObject({ rx_gro_packets: 1, rx_gro_frames: 62, rx_frames: 62 });
    expect(a.link.counters()).toMatchObject({ tx_gso_bursts: 1, tx_gso_frames: 62, tx_frames: 62, tx_gso_refused: 0 });
  });

  test.each(FLOWS)('%s: for small slots the kernel segments it', async (_name, fields) => {
    const { a, b } = rigs();
    const parts = payloads(14, 4128);
    a.putBurst(...burstOf(fields, parts));
    a.link.send(0);
    expect((await b.gather(14)).map(({ frame }) => frame)).toEqual(
      parts.map((payload) => udpFrame({ ...fields, ...unseen, payload })),
    );
    expect(b.link.counters()).toMatchObject({ rx_gro_packets: 0, rx_frames: 14 });
  });

  test('the identifications of a burst count from 0 on the wire, each time', async () => {
    const { a, b } = rigs();
    const tap = PacketLink.open({ interface: 'lo', addresses: [A4] });
    open.push(tap);
    const wire = new Rig(tap, { sources: [A4] });
    const fields = FLOWS[0]?.[1] as FrameFields;
    for (const count of [5, 3]) a.putBurst(...burstOf(fields, payloads(count, 1040)));
    a.put(udpFrame(fields));
    a.link.send(0);
    const seen = (await wire.gather(9)).map(({ frame }) => [frame.readUInt16BE(18), frame.readUInt16BE(20)]);
    expect(seen).toEqual([0, 1, 2, 3, 4, 0, 1, 2, 0].map((id) => [id, 0x4000]));
    await b.gather(9);
  });

  testIf(programPrivilege('strace'), 'where the kernel refuses runs what has identification 0 leaves', async () => {
    const b = UdpLink.open({ addresses: [B4] });
    open.push(b);
    expect(sendWithGsoRefused('udp', A4, B4)).toEqual({
      ...{ before: true, after: false, changes: 1 },
      ...{ taken: 8, tx_frames: 2, tx_gso_bursts: 0, tx_gso_refused: 1, tx_errors: 6 },
    });
    expect((await new Rig(b).gather(2)).map(({ frame }) => frame[42])).toEqual([0, 0]);
  });

  test.each(FLOWS)('%s: a packet link and a udp link exchange super-packets', async (_name, fields) => {
    const a = PacketLink.open({ interface: 'lo', addresses: [A4, A6] });
    const b = UdpLink.open({ addresses: [B4, B6] });
    open.push(a, b);
    const [packet, udp] = [new Rig(a, { ...LARGE_SLOTS, sources: [B4, B6] }), new Rig(b, LARGE_SLOTS)];
    // the kernel does not recognize frames of a packet socket on lo as the host's own
    sh('echo 1 > /proc/sys/net/ipv4/conf/lo/accept_local');
    const loopback = { destMac: [0, 0, 0, 0, 0, 0], srcMac: [0, 0, 0, 0, 0, 0] };
    const parts = payloads(20, 3000);
    packet.putBurst(...burstOf({ ...fields, ...loopback }, parts));
    packet.link.send(0);
    const [there] = await udp.gather(1);
    expect(payloadsOf(there as NonNullable<typeof there>)).toEqual(parts);
    while (packet.link.receive(0) > 0) packet.take();
    const back = { ...fields, source: fields.destination, destination: fields.source };
    udp.putBurst(...burstOf(back, parts));
    udp.link.send(0);
    const [here] = await packet.gather(1);
    expect(payloadsOf(here as NonNullable<typeof here>)).toEqual(parts);
    expect(here?.options).toBe(3000 * 2 ** RX_SEGMENT_SHIFT);
  });
});
