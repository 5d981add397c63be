// Changes of an interface: its addresses and its name.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openDevice } from '../../src/index.js';
import { PacketLink } from '../../src/link/packet.js';
import { UdpLink } from '../../src/link/udp.js';
import { eventually } from '../kit/eventually.js';
import { describeIf, netPrivilege } from '../kit/privileges.js';
import { sh, vethPair } from './netns.js';
import './ownsockets.js';

const NET = 193;
const MEMORY_BYTES = 16 * 2 ** 20;
const links = { packet: PacketLink, udp: UdpLink };

describeIf(netPrivilege(), 'changes of an interface', () => {
  beforeAll(() => vethPair(['chg0', 'chg1'], NET, 1500));
  afterAll(() => void sh('ip link del chg0'));

  describe.each(['packet', 'udp'] as const)('link %s', (kind) => {
    test('a device has an address that came between the opening of its link and its own', async () => {
      const link = links[kind].open({ interface: 'chg0' });
      sh(`ip addr add 10.${NET}.0.9/24 dev chg0`);
      await using device = await openDevice({ link, memoryBytes: MEMORY_BYTES });
      expect(device.gids.map(({ address }) => address)).toContain(`10.${NET}.0.9`);
      sh(`ip addr del 10.${NET}.0.9/24 dev chg0`);
      await eventually(() => expect(device.gids.map(({ address }) => address)).not.toContain(`10.${NET}.0.9`));
    });
  });

  test('the udp link serves an address as soon as the kernel knows that no other host has it', async () => {
    await using device = await openDevice({ interface: 'chg0', link: 'udp', memoryBytes: MEMORY_BYTES });
    const address = `fd00:${NET}::77`;
    sh(`echo 1 > /proc/sys/net/ipv6/conf/chg0/accept_dad; ip addr add ${address}/64 dev chg0`);
    const addresses = () => device.gids.map((gid) => gid.address);
    expect(addresses()).not.toContain(address);
    await eventually(() => expect(addresses()).toContain(address));
    expect(() => UdpLink.open({ addresses: [address] })).toThrow('EADDRINUSE');
  });

  test('cards find each other’s names after the interface has got another name', () => {
    const before = UdpLink.open({ addresses: [`10.${NET}.0.1`] });
    const release = before.names.bind('port');
    sh('ip link set chg0 name chg9 || { ip link set chg0 down; ip link set chg0 name chg9; ip link set chg9 up; }');
    const after = UdpLink.open({ interface: 'chg9', addresses: [`fd00:${NET}::1`] });
    expect(after.names.bind('port')).toBeUndefined();
    release?.();
    after.close();
    before.close();
    sh('ip link set chg9 down; ip link set chg9 name chg0; ip link set chg0 up');
  });
});
