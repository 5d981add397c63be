/** Packet links at both ends of a veth pair in this namespace, with rigs in place of cards. */
import { afterAll, afterEach, beforeAll } from 'vitest';
import { macText } from '../../src/base/address.js';
import type { Link } from '../../src/link/link.js';
import { PacketLink } from '../../src/link/packet.js';
import { sh, vethPair } from './netns.js';
import { type FrameFields, LARGE_SLOTS, Rig, type RigOptions } from './rig.js';

export interface PacketPair {
  /** Header fields of frames from the first end to the second. */
  readonly v4: FrameFields;
  readonly v6: FrameFields;
  /** MAC address of the second end. */
  readonly mac: string;
  /** Closes a link after the test. */
  keep(link: Link): void;
  /** Opens a link at each end for the test. @param wrap wraps the second link */
  rigs(options?: { from?: RigOptions; to?: RigOptions; wrap?: (link: Link) => Link }): { a: Rig; b: Rig };
  /** As `rigs`, with a receive ring of 64 KiB or more in the second link. */
  ringRigs(ringBytes: number, to?: RigOptions): Promise<{ a: Rig; b: Rig }>;
}

/** Creates the veth pair; call it in `describe`. The ends are `name`0 and `name`1, hosts 1 and 2 of `net`, MTU 9000. */
export function packetPair(name: string, net: number): PacketPair {
  const [near, far] = [`${name}0`, `${name}1`];
  const [srcMac, destMac] = [1, 2].map((n) => [2, 0, 0, 0, net, n]) as [number[], number[]];
  const text = (mac: number[]) => macText(Uint8Array.from(mac));
  const open: Link[] = [];

  beforeAll(() => {
    vethPair([near, far], net, 9000);
    sh(`ip link set ${near} address ${text(srcMac)}; ip link set ${far} address ${text(destMac)}`);
  });
  afterAll(() => void sh(`ip link del ${near}`));
  afterEach(() => {
    for (const link of open.splice(0)) link.close();
  });

  const macs = { srcMac, destMac };
  return {
    mac: text(destMac),
    v4: { source: `10.${net}.0.1`, destination: `10.${net}.0.2`, ...macs },
    v6: { source: `fd00:${net}:0:0:0:0:0:1`, destination: `fd00:${net}:0:0:0:0:0:2`, ...macs },
    keep: (link) => void open.push(link),
    rigs({ from = {}, to = {}, wrap = (link: Link) => link } = {}) {
      const [a, b] = [PacketLink.open({ interface: near }), wrap(PacketLink.open({ interface: far }))];
      open.push(a, b);
      return { a: new Rig(a, from), b: new Rig(b, to) };
    },
    async ringRigs(ringBytes, to = {}) {
      const [a, b] = [PacketLink.open({ interface: near }), PacketLink.open({ interface: far })];
      open.push(a, b);
      await b.prepare({ ...LARGE_SLOTS, memoryBytes: 16 * ringBytes });
      return { a: new Rig(a), b: new Rig(b, { ...LARGE_SLOTS, slots: 32, memoryBytes: 2 ** 23, ...to }) };
    },
  };
}
