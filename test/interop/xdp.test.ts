// The xdp link directly on the guest's tap interface: the XDP of a driver other than veth, without a bridge.
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { all, describeIf, xdpPrivilege } from '../kit/privileges.js';
import { OurDevice } from './card.js';
import { FAMILY_NAMES } from './environment.js';
import { Guest, guestUnavailable } from './guest/guest.js';
import { addressesOf, CARD, GUEST, networkUnavailable } from './guest/network.js';
import { Peer } from './guest/peer.js';
import { connectPair, FAMILIES } from './pair.js';
import { exchange, TRAFFIC_SIZE } from './traffic.js';

const reason = guestUnavailable() ?? networkUnavailable();
const MTU = 9000;

describeIf(all(xdpPrivilege(), { ok: !reason, reason: reason ?? '' }), 'xdp on the tap of a guest with rxe', () => {
  const ip = (...commands: string[]) => {
    for (const command of commands) execFileSync('ip', command.split(' '));
  };
  let guest: Guest;

  beforeAll(async () => {
    for (const scope of ['all', 'default']) writeFileSync(`/proc/sys/net/ipv6/conf/${scope}/accept_dad`, '0');
    ip('link set lo up', `tuntap add dev ${CARD.interface} mode tap`, `link set ${CARD.interface} mtu ${MTU} up`);
    ip(...addressesOf(CARD).map((address) => `address add ${address} dev ${CARD.interface}`));
    guest = await Guest.start({ tap: CARD.interface, mtu: MTU, addresses: addressesOf(GUEST) });
    for (const address of [CARD.ipv4, CARD.ipv6])
      await guest.run(['busybox', 'ping', '-c', '1', '-W', '10', address], { timeout: 20_000 });
  }, 120_000);

  afterAll(async () => {
    await guest?.stop();
    ip(`link del ${CARD.interface}`);
  });

  test.each(FAMILY_NAMES.flatMap((family) => [1024, 4096].map((mtu) => [family, mtu] as const)))(
    '%s, path MTU %d: all operations both ways at once, no frame lost',
    async (family, mtu) => {
      await using ours = await OurDevice.open('xdp');
      await using peer = await Peer.start(guest, FAMILIES[family].gid);
      await using pair = await connectPair({ ours, peer, family }, { mtu, size: TRAFFIC_SIZE });
      await exchange([
        [pair.card, pair.rxe],
        [pair.rxe, pair.card],
      ]);
      expect(ours.device.notes.join()).toMatch(/XDP in native mode; copy mode/);
      expect(ours.device.counters()).toMatchObject({ drop_icrc: 0, 'link.rx_dropped': 0, 'link.tx_errors': 0 });
    },
  );
});
