// A VLAN on the link's interface: frames to peers in the VLAN leave with its tag.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { listInterfaces } from '../../src/link/interfaces.js';
import { PacketLink } from '../../src/link/packet.js';
import { all, describeIf, netPrivilege, type Privilege, programPrivilege } from '../kit/privileges.js';
import { sh, vethPair } from './netns.js';
import { Rig, udpFrame } from './rig.js';

const GROUP = '239.200.1.2';
const GROUND = all(netPrivilege(), programPrivilege('ip'));

/** Whether the kernel can create VLANs. */
function vlanPrivilege(): Privilege {
  if (!GROUND.ok) return GROUND;
  try {
    sh('ip link add lkvp type veth peer name lkvq');
    sh('ip link add link lkvp name lkvp.9 type vlan id 9');
    return { ok: true, reason: '' };
  } catch {
    return { ok: false, reason: 'the kernel knows no VLANs (module 8021q)' };
  } finally {
    sh('ip link del lkvp || true');
  }
}

describeIf(vlanPrivilege(), 'a VLAN of the interface', () => {
  const FAR_MAC = '02:00:00:00:99:05';

  beforeAll(() => {
    vethPair(['lkv0', 'lkv1'], 99, 1500);
    for (const [dev, id, net] of [
      ['lkv0', 5, 100],
      ['lkv1', 5, 102],
      ['lkv1', 6, 101],
    ])
      sh(
        `ip link add link ${dev} name ${dev}.${id} type vlan id ${id}; ip link set ${dev}.${id} up; ` +
          `ip addr add 10.${net}.0.1/24 dev ${dev}.${id}; ip neigh add 10.${net}.0.2 lladdr ${FAR_MAC} dev ${dev}.${id}`,
      );
  });
  afterAll(() => void sh('ip link del lkv0'));

  test('a VLAN is known with its number and its parent interface', () => {
    const of = (name: string) => listInterfaces().find((each) => each.name === name);
    expect(of('lkv0.5')?.vlan).toEqual({ id: 5, parent: of('lkv0')?.index });
    expect(of('lkv0')?.vlan).toBeUndefined();
  });

  test('a route by a VLAN of the link has its tag, and one by that of another interface is none', async () => {
    const link = PacketLink.open({ interface: 'lkv0', addresses: ['10.99.0.1'] });
    const destMac = Uint8Array.from(FAR_MAC.split(':'), (byte) => Number.parseInt(byte, 16));
    expect(await link.resolve('10.100.0.2', '10.99.0.1')).toEqual({ destMac, vlanTci: 5 });
    await expect(link.resolve('10.101.0.2', '10.99.0.1')).rejects.toThrow(
      'EHOSTUNREACH: the route to 10.101.0.2 leaves by lkv1.6, but the link is on lkv0',
    );
    link.close();
  });

  test('a card may be on a VLAN as on any other interface: the kernel sets the tag', () => {
    const link = PacketLink.open({ interface: 'lkv0.5' });
    expect(link.interface).toMatchObject({ name: 'lkv0.5', addresses: expect.arrayContaining(['10.100.0.1']) });
    link.close();
  });

  test('a group is received on the VLAN that its members have joined it on, and has the tag on the wire', async () => {
    const [near, far, other, wire] = ['lkv0.5', 'lkv1.5', 'lkv1.6', 'lkv1'].map(
      (dev) => new Rig(PacketLink.open({ interface: dev })),
    ) as [Rig, Rig, Rig, Rig];
    for (const { link } of [far, other, wire]) link.joinGroup?.(GROUP);
    const frame = udpFrame({
      ...{ source: '10.100.0.1', destination: GROUP, destMac: [1, 0, 0x5e, 0x48, 1, 2] },
      payload: Buffer.from('to all'),
    });
    near.put(frame);
    expect(near.link.send(0)).toBe(1);
    expect((await far.gather(1)).map((heard) => heard.frame)).toEqual([frame]);
    const [tagged] = await wire.gather(1);
    expect([...(tagged?.frame.subarray(12, 18) ?? [])]).toEqual([0x81, 0, 0, 5, 0x08, 0]);
    expect(await other.gather(1, 50)).toEqual([]);
    for (const { link } of [near, far, other, wire]) link.close();
  });
});
