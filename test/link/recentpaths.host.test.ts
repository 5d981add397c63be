/** Paths of the last moment: they cost no look-up, and none is used after a change in the kernel's tables. */
import { readdirSync } from 'node:fs';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import type { Resolved } from '../../src/link/link.js';
import { RecentPaths } from '../../src/link/recentpaths.js';
import { native } from '../../src/native.js';
import { describeIf, netPrivilege } from '../kit/privileges.js';
import { sh } from './netns.js';

const NAME = 'rpa0';
const SOURCE = '10.185.0.1';

describeIf(netPrivilege(), 'paths of the last moment', () => {
  let paths: RecentPaths;
  let lookUps: string[];

  beforeAll(() => {
    sh(`ip link add ${NAME} type veth peer name rpb0; ip link set ${NAME} up; ip link set rpb0 up`);
    sh(`ip addr add ${SOURCE}/24 dev ${NAME}`);
    // The kernel notifies of its own work on the new interfaces.
    sh('sleep 0.1');
  });
  afterAll(() => void sh(`ip link del ${NAME}`));

  function open(): void {
    paths = new RecentPaths();
    lookUps = [];
  }

  const resolve = (destination: string, during = async () => {}): Promise<Resolved> =>
    paths.resolve(destination, SOURCE, async () => {
      lookUps.push(destination);
      await during();
      return { destMac: Uint8Array.of(2, 0, 0, 0, 0, lookUps.length) };
    });

  test.each([
    ['a neighbour', `ip neigh replace 10.185.0.2 lladdr 02:00:00:00:00:05 dev ${NAME} nud permanent`],
    ['an IPv6 neighbour', `ip neigh replace fd00:185::2 lladdr 02:00:00:00:00:05 dev ${NAME} nud permanent`],
    ['a route', `ip route add 203.0.113.0/24 via 10.185.0.2; ip route del 203.0.113.0/24`],
    ['an IPv6 route', `ip route add 2001:db8::/32 dev ${NAME}; ip route del 2001:db8::/32`],
    ['a rule', 'ip rule add pref 17 lookup main; ip rule del pref 17'],
    ['an IPv6 rule', 'ip -6 rule add pref 17 lookup main; ip -6 rule del pref 17'],
    ['an address', `ip addr add 10.185.0.3/32 dev ${NAME}; ip addr del 10.185.0.3/32 dev ${NAME}`],
    ['an interface', `ip link set ${NAME} mtu 1400; ip link set ${NAME} mtu 1500`],
  ])('a path is looked up again after %s that changes', async (_what, change) => {
    open();
    for (let i = 0; i < 3; i++) await resolve('10.185.0.2');
    expect(lookUps).toHaveLength(1);
    sh(change);
    expect((await resolve('10.185.0.2')).destMac[5]).toBe(2);
    paths.close();
  });

  test('a change during a look-up counts, even if another call has read it', async () => {
    open();
    let onChanged = () => {};
    const changed = new Promise<void>((resolve) => {
      onChanged = resolve;
    });
    const change = async () =>
      void sh(`ip neigh replace 10.185.0.2 lladdr 02:00:00:00:00:06 dev ${NAME} nud permanent`);
    const slow = resolve('10.185.0.4', () => changed);
    await resolve('10.185.0.2', change);
    onChanged();
    await slow;
    for (let i = 0; i < 2; i++) for (const destination of ['10.185.0.2', '10.185.0.4']) await resolve(destination);
    expect(lookUps).toHaveLength(4);
    paths.close();
  });

  test('each destination has its own entry, as far as there is room', async () => {
    open();
    for (let host = 1; host <= 257; host++) await resolve(`10.186.${host >> 8}.${host & 255}`);
    await resolve('10.186.1.1');
    await resolve('10.186.0.1');
    expect(lookUps).toHaveLength(258);
    paths.close();
  });

  test('a look-up that fails is tried again', async () => {
    open();
    const fail = async () => {
      throw new Error('no route');
    };
    await expect(resolve('10.185.0.9', fail)).rejects.toThrow('no route');
    await resolve('10.185.0.9');
    expect(lookUps).toHaveLength(2);
    paths.close();
  });

  test('nothing is kept after close, nor where the kernel refuses notifications', async () => {
    const fds = () => readdirSync('/proc/self/fd').length;
    const before = fds();
    open();
    expect(fds()).toBe(before + 1);
    await resolve('10.185.0.2');
    paths.close();
    paths.close();
    for (let i = 0; i < 2; i++) await resolve('10.185.0.2');
    expect([lookUps.length, fds()]).toEqual([3, before]);
    const refused = vi.spyOn(native(), 'netlinkListen').mockReturnValue(-1);
    open();
    for (let i = 0; i < 2; i++) await resolve('10.185.0.2');
    refused.mockRestore();
    expect(lookUps).toHaveLength(2);
  });
});
