/** What most interop files begin with: a network, a guest on it, and the reason where there can be none. */
import { format } from 'node:util';
import { afterAll, beforeAll, describe } from 'vitest';
import { describeIf, xdpPrivilege } from '../kit/privileges.js';
import type { LinkKind } from './card.js';
import { Guest, guestUnavailable } from './guest/guest.js';
import { addressesOf, CARD, GUEST, InteropNetwork, networkUnavailable } from './guest/network.js';
import type { Family } from './pair.js';

export interface World {
  /** Only inside tests and hooks. */
  readonly guest: Guest;
}

export const LINKS: readonly LinkKind[] = ['packet', 'udp'];
export const FAMILY_NAMES: readonly Family[] = ['IPv4', 'IPv6'];

/** Both links with both families, and the other parts given, as rows for describe.each and test.each. */
export function matrix<T>(others: readonly T[]): [LinkKind, Family, T][] {
  return LINKS.flatMap((link) => FAMILY_NAMES.flatMap((family) => others.map((other) => row(link, family, other))));
}

/** Some rows of the xdp link, which differs from the others below the frames only. */
export function xdpRows<T>(first: T, second: T): [LinkKind, Family, T][] {
  return [row('xdp', 'IPv4', first), row('xdp', 'IPv6', second)];
}

/** `describe` for each row; skipped, with the reason, where its link cannot be had. @param name with a place for each part */
export function describeLinks<Row extends readonly [LinkKind, Family, ...unknown[]]>(
  rows: readonly Row[],
  name: string,
  body: (row: Row) => void,
): void {
  for (const row of rows) {
    const privilege = row[0] === 'xdp' ? xdpPrivilege() : { ok: true, reason: '' };
    describeIf(privilege, format(name, ...row), () => body(row));
  }
}

function row<T>(link: LinkKind, family: Family, other: T): [LinkKind, Family, T] {
  return [link, family, other];
}

/** `describe` with one guest for all its tests. @param mtu of the interfaces; 9000 carries a path MTU of 4096 */
export function describeWithRxe(name: string, mtu: number, body: (world: World) => void): void {
  const reason = guestUnavailable() ?? networkUnavailable();
  describe.skipIf(reason)(reason ? `${name} [skipped: ${reason}]` : name, () => {
    let network: InteropNetwork | undefined;
    let guest: Guest | undefined;

    beforeAll(async () => {
      network = new InteropNetwork(mtu);
      guest = await Guest.start({ tap: GUEST.tap, mtu, addresses: addressesOf(GUEST) });
      // From now on both know each other's MAC. rxe gives the search for it only a second, which a busy host may need.
      for (const address of [CARD.ipv4, CARD.ipv6])
        await guest.run(['busybox', 'ping', '-c', '1', '-W', '10', address], { timeout: 20_000 });
    }, 120_000);

    afterAll(async () => {
      await guest?.stop();
      network?.close();
    });

    body({
      get guest() {
        if (!guest) throw new Error('the guest exists only inside tests');
        return guest;
      },
    });
  });
}
