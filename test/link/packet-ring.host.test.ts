// The ring that the kernel writes single frames into, in the card's memory. Larger frames come by the socket's queue.
import { expect, test } from 'vitest';
import { RX_ICRC_FOLDED, RX_SEGMENT_SHIFT } from '../../src/link/frames.js';
import { PacketLink } from '../../src/link/packet.js';
import { eventually } from '../kit/eventually.js';
import { all, describeIf, netPrivilege, programPrivilege } from '../kit/privileges.js';
import { sh } from './netns.js';
import { packetPair } from './packetpair.js';
import { type Arrived, payloadsOf, udpFrame } from './rig.js';

const privilege = all(netPrivilege(), programPrivilege('ip'));

/** Bytes of rings: some, and the fewest. */
const [LARGE, SMALL] = [2 ** 18, 2 ** 16];
/** The frames of the smallest ring, at the largest path MTU. */
const FRAMES = 14;

describeIf(privilege, 'a packet link with a ring', () => {
  const { ringRigs, v4, v6, keep } = packetPair('lkr', 97);
  const single = (id: number, bytes = 100) => udpFrame({ ...v4, id, payload: Buffer.alloc(bytes, id) });
  const frames = (arrived: readonly Arrived[]) => arrived.map(({ frame }) => frame);
  const ringOf = ({ link }: { link: { notes?: readonly string[] } }) =>
    Number(/a ring of (\d+) bytes/.exec(link.notes?.join() ?? '')?.[1] ?? 0);

  test('single frames arrive as they were written, many times around the ring', async () => {
    const { a, b } = await ringRigs(SMALL);
    for (let sent = 0; sent < 3 * FRAMES; sent += 10) {
      const some = Array.from({ length: 10 }, (_, i) => single(sent + i, 4 + 417 * i));
      a.put(...some);
      a.link.send(0);
      expect(frames(await b.gather(10))).toEqual(some);
      // gives the frames back, as a card does by its last turn
      expect(b.link.receive(0)).toBe(0);
    }
    expect(b.link.counters()).toMatchObject({ rx_truncated: 0, rx_dropped: 0, rx_gro_packets: 0 });
  });

  test('super-packets and single frames stay in order', async () => {
    const { a, b } = await ringRigs(SMALL);
    const parts = Array.from({ length: 14 }, (_, k) => Buffer.alloc(k === 13 ? 1000 : 4128, k));
    const short = [Buffer.alloc(60, 1), Buffer.alloc(20, 2)];
    for (let round = 0; round < 3 * FRAMES; round += 6) {
      a.put(single(1), single(2));
      a.putBurst(...parts.map((payload, id) => udpFrame({ ...v4, id, payload })));
      a.put(single(3));
      a.putBurst(...short.map((payload) => udpFrame({ ...v6, payload })));
      a.put(single(4));
      expect(a.link.send(0)).toBe(20);
      const arrived = await b.gather(6);
      expect(frames(arrived.filter(({ options }) => options === 0))).toEqual([1, 2, 3, 4].map((id) => single(id)));
      const [long, little] = [arrived[2], arrived[4]] as [Arrived, Arrived];
      expect(long.options).toBe(4128 * 2 ** RX_SEGMENT_SHIFT);
      expect(payloadsOf(long)).toEqual(parts);
      expect(little.options).toBe(60 * 2 ** RX_SEGMENT_SHIFT);
      expect(payloadsOf(little)).toEqual(short);
    }
  });

  test('a frame that is larger than those of the ring arrives whole', async () => {
    const { a, b } = await ringRigs(LARGE);
    const large = udpFrame({ ...v4, payload: Buffer.alloc(4500, 7) });
    a.put(single(1), large, single(2));
    a.link.send(0);
    expect(frames(await b.gather(3))).toEqual([single(1), large, single(2)]);
  });

  test.each([
    ['IPv4', { ...v4, vlan: 0x6005 }],
    ['IPv6', { ...v6, vlan: 5 }],
  ])('%s: the tag, which the kernel keeps beside the frame, is put back', async (_name, fields) => {
    const { a, b } = await ringRigs(LARGE);
    const tagged = [1, 2, 3].map((id) => udpFrame({ ...fields, id, payload: Buffer.alloc(4128, id) }));
    a.put(...tagged);
    a.link.send(0);
    expect(frames(await b.gather(3))).toEqual(tagged);
  });

  test('the link folds the ICRC span of received frames', async () => {
    const { a, b } = await ringRigs(LARGE, { icrcOffload: true });
    a.put(single(1, 2000));
    a.link.send(0);
    expect((await b.gather(1))[0]?.options).toBe(RX_ICRC_FOLDED);
  });

  test('the card keeps frames that it has not passed, and the link counts those that find the ring full', async () => {
    const { a, b } = await ringRigs(SMALL);
    const sent = Array.from({ length: 20 }, (_, id) => single(id));
    a.put(...sent.slice(0, 4));
    a.link.send(0);
    for (const end = performance.now() + 2000; b.rx.filled < 4 && performance.now() < end; ) b.link.receive(0);
    a.put(...sent.slice(4));
    a.link.send(0);
    // the frames of the first turn are still the card's
    expect(b.link.receive(0)).toBe(FRAMES - 4);
    expect(frames(b.take())).toEqual(sent.slice(0, FRAMES));
    expect(b.link.receive(0)).toBe(0);
    expect(b.link.counters()).toMatchObject({ rx_frames: FRAMES, rx_dropped: 20 - FRAMES });
    a.put(single(99));
    a.link.send(0);
    expect(frames(await b.gather(1))).toEqual([single(99)]);
  });

  test('frames to the own address use slots between frames of the ring', async () => {
    const { a, b } = await ringRigs(SMALL);
    const own = udpFrame({ ...v4, destMac: [2, 0, 0, 0, 97, 2], srcMac: [2, 0, 0, 0, 97, 2] });
    for (let round = 0; round < 3 * FRAMES; round++) {
      a.put(single(round));
      a.link.send(0);
      for (const end = performance.now() + 2000; b.rx.filled < 1 && performance.now() < end; ) b.link.receive(0);
      b.put(own);
      b.link.send(0);
      expect(frames(b.take())).toEqual([single(round), own]);
    }
  });

  test('a link that goes down and comes up again does not keep the event loop busy', async () => {
    const { a, b } = await ringRigs(SMALL);
    sh('ip link set lkr1 down');
    const wakes = async (ms: number) => {
      const end = performance.now() + ms;
      let count = 0;
      for (; performance.now() < end; count++) {
        b.link.receive(0);
        await new Promise<void>((resolve) => b.link.wait(end * 1e6, true, resolve));
      }
      return count;
    };
    expect(await wakes(100)).toBeGreaterThan(1);
    expect(await wakes(50)).toBeLessThan(3);
    expect(b.link.counters()).toMatchObject({ rx_errors: 1 });
    sh('ip link set lkr1 up');
    // The kernel drops what is sent before it has activated the peer of an interface that comes up, some time later.
    await eventually(() => {
      a.put(single(1));
      a.link.send(0);
      b.link.receive(0);
      expect(frames(b.take())).toContainEqual(single(1));
    });
  });

  test('the memory stays mapped after the link has been closed', async () => {
    const { a, b } = await ringRigs(SMALL);
    a.put(single(1));
    a.link.send(0);
    for (const end = performance.now() + 2000; b.rx.filled < 1 && performance.now() < end; ) b.link.receive(0);
    b.link.close();
    expect(b.take()).toHaveLength(1);
    b.memory.fill(1);
  });

  test('an attach without a way to allocate memory is refused', async () => {
    const link = PacketLink.open({ interface: 'lkr1' });
    keep(link);
    await link.prepare({ slotBytes: 65600, memoryBytes: 2 ** 20 });
    const { b } = await ringRigs(SMALL);
    const { allocate: _, ...frames } = b.frames;
    expect(() => link.attach(frames)).toThrow('the packet link needs Frames.allocate');
  });

  test('there is no ring in a small memory, with a small buffer or small slots', async () => {
    const ringWith = async (bufferBytes: number, slotBytes: number, memoryBytes: number) => {
      const link = PacketLink.open({ interface: 'lkr1', bufferBytes });
      keep(link);
      await link.prepare({ slotBytes, memoryBytes });
      return ringOf({ link });
    };
    expect(await ringWith(2 ** 20, 65600, 2 ** 20)).toBe(SMALL);
    expect(await ringWith(2 ** 17, 65600, 2 ** 26)).toBe(SMALL);
    expect(await ringWith(2 ** 20, 65600, 2 ** 20 - 1)).toBe(0);
    expect(await ringWith(2 ** 17 - 1, 65600, 2 ** 26)).toBe(0);
    expect(await ringWith(2 ** 20, 65599, 2 ** 26)).toBe(0);
  });
});
