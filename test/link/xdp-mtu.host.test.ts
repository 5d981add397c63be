// The xdp link with frames that are longer than one chunk.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { PacketLink } from '../../src/link/packet.js';
import { XdpLink } from '../../src/link/xdp/link.js';
import { describeIf, xdpPrivilege } from '../kit/privileges.js';
import { sh, vethPair } from './netns.js';
import { Rig, udpFrame } from './rig.js';

const A4 = '10.192.0.1';
const B4 = '10.192.0.2';
const A6 = 'fd00:192:0:0:0:0:0:1';
const B6 = 'fd00:192:0:0:0:0:0:2';
const LAYOUT = { slots: 128, memoryBytes: 8 * 2 ** 20 };
/** Lengths around a chunk without the kernel's headroom, a chunk, and the longest frame of a path MTU of 4096. */
const LENGTHS = [60, 3839, 3840, 3841, 3842, 4095, 4096, 4097, 4098, 4170, 4201, 4600];

describeIf(xdpPrivilege(), 'a veth pair of MTU 9000', () => {
  beforeAll(() => {
    vethPair(['lky0', 'lky1'], 192, 9000);
  });
  afterAll(() => void sh('ip link del lky0'));

  /** Returns frames of all lengths and both IP versions, with and without tag, with different payloads. */
  function frames(destMac: number[]): Buffer[] {
    return LENGTHS.flatMap((length, i) =>
      [
        { source: A4, destination: B4 },
        { source: A6, destination: B6 },
        { source: A4, destination: B4, vlan: 7 },
      ].map((fields, k) => {
        const headers = udpFrame({ ...fields, payload: new Uint8Array(0) }).length;
        const payload = Uint8Array.from(
          { length: Math.max(length - headers, 0) },
          (_, n) => n * 7 + i * 3 + k + (n >> 8),
        );
        return udpFrame({ ...fields, destMac, payload });
      }),
    );
  }

  const both = { packet: PacketLink, xdp: XdpLink };
  test.each([
    ['xdp', 'xdp'],
    ['xdp', 'packet'],
    ['packet', 'xdp'],
  ] as const)('from %s to %s every byte arrives, in order, whatever the length', async (from, to) => {
    const a = new Rig(both[from].open({ interface: 'lky0' }), LAYOUT);
    const b = new Rig(both[to].open({ interface: 'lky1' }), LAYOUT);
    const sent = frames([...b.link.interface.mac]);
    // Often enough that all rings wrap.
    for (let round = 0; round < 20; round++) {
      a.put(...sent);
      expect(a.link.send(0)).toBe(sent.length);
      const got = await b.gather(sent.length);
      expect(got.map(({ frame }) => frame.length)).toEqual(sent.map(({ length }) => length));
      expect(got.every(({ frame }, i) => frame.equals(sent[i] as Buffer))).toBe(true);
    }
    expect(b.link.counters()).toMatchObject({ rx_dropped: 0, rx_truncated: 0, rx_errors: 0 });
    a.link.close();
    b.link.close();
  });

  test('a frame in pieces that is longer than a slot is counted, and does not disturb its neighbours', async () => {
    const a = new Rig(PacketLink.open({ interface: 'lky0' }), { ...LAYOUT, slotBytes: 8192 });
    const b = new Rig(XdpLink.open({ interface: 'lky1' }), LAYOUT);
    const destMac = [...b.link.interface.mac];
    const frame = (length: number) =>
      udpFrame({ source: A4, destination: B4, destMac, payload: Buffer.alloc(length, length) });
    a.put(frame(100), frame(8000), frame(4566), frame(200));
    a.link.send(0);
    expect((await b.gather(3)).map(({ frame: { length } }) => length - 42)).toEqual([100, 4566, 200]);
    expect(b.link.counters()).toMatchObject({ rx_frames: 3, rx_truncated: 1, rx_dropped: 0 });
    a.link.close();
    b.link.close();
  });

  test('a link opened at a small MTU keeps to frames in one piece, and says so', async () => {
    sh('ip link set lky0 mtu 1500; ip link set lky1 mtu 1500');
    const link = XdpLink.open({ interface: 'lky0' });
    const rig = new Rig(link, LAYOUT);
    link.watchInterface(() => {});
    expect(link.features.maxFrame).toBe(1514);
    sh('ip link set lky0 mtu 3000');
    while (link.interface.mtu !== 3000) await new Promise((resolve) => setTimeout(resolve, 5));
    expect(link.features.maxFrame).toBe(3014);
    link.close();
    expect(rig.memory.length).toBeGreaterThan(0);
    sh('ip link set lky0 mtu 9000; ip link set lky1 mtu 9000');
  });
});
