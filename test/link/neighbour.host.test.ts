/** Neighbours: one search for all that wait, ended by the kernel's notification, and none right after a failure. */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { listInterfaces } from '../../src/link/interfaces.js';
import type { LinkInterface } from '../../src/link/link.js';
import { watchRoutes } from '../../src/link/monitor.js';
import { neighbourSearches, watchNextHops } from '../../src/link/neighbour.js';
import { resolveNeighbour } from '../../src/link/resolve.js';
import { native } from '../../src/native.js';
import { eventually } from '../kit/eventually.js';
import { describeIf, netPrivilege } from '../kit/privileges.js';
import { PeerNamespace, sh } from './netns.js';

const NAME = 'nbr0';
const MAC = '02:00:00:00:00:77';

describeIf(netPrivilege(), 'neighbours', () => {
  let iface: LinkInterface;

  beforeAll(() => {
    sh(
      `ip link add ${NAME} type veth peer name nbr1; ip link set ${NAME} up; ip link set nbr1 up; ` +
        `ip addr add 10.183.0.1/24 dev ${NAME}`,
    );
    iface = listInterfaces().find(({ name }) => name === NAME) as LinkInterface;
  });
  afterAll(() => void sh(`ip link del ${NAME}`));

  const resolve = (host: number, timeoutMs: number, closing = new AbortController().signal) =>
    resolveNeighbour(iface, `10.183.0.${host}`, '10.183.0.1', { closing, timeoutMs });
  const learn = (host: number) => sh(`ip neigh replace 10.183.0.${host} lladdr ${MAC} dev ${NAME} nud reachable`);

  test('all waits for one neighbour share a search, and the kernel tells them its end', async () => {
    const exchanges = vi.spyOn(native(), 'netlinkExchange');
    const waiting = Array.from({ length: 50 }, () => resolve(9, 5000));
    expect(neighbourSearches()).toBe(1);
    // route and state for each, one request to search and one look at the state behind it
    await eventually(() => expect(exchanges.mock.calls.length).toBe(2 * 50 + 2));
    learn(9);
    const macs = (await Promise.all(waiting)).map(({ destMac }) => Buffer.from(destMac).toString('hex'));
    expect(new Set(macs)).toEqual(new Set(['020000000077']));
    expect(exchanges.mock.calls.length).toBe(2 * 50 + 2);
    expect(neighbourSearches()).toBe(0);
    exchanges.mockRestore();
  });

  test('a neighbour that has not replied is not searched again at once, but found when the kernel knows it', async () => {
    await expect(resolve(10, 20)).rejects.toThrow('10.183.0.10 did not reply to ARP');
    const again = resolve(10, 5000);
    expect(neighbourSearches()).toBe(0);
    await expect(again).rejects.toMatchObject({ code: 'EHOSTUNREACH' });
    learn(10);
    expect(Buffer.from((await resolve(10, 20)).destMac).toString('hex')).toBe('020000000077');
  });

  test('an IPv6 neighbour is found from an interface without a link-local address', async () => {
    const far = await PeerNamespace.open('nll', 184);
    sh(`ip -6 addr flush dev ${far.near} scope link; ip -6 neigh flush dev ${far.near}`);
    const near = listInterfaces().find(({ name }) => name === far.near) as LinkInterface;
    const closing = new AbortController().signal;
    const { destMac } = await resolveNeighbour(near, 'fd00:184::2', 'fd00:184::1', { closing, timeoutMs: 2000 });
    expect(far.sh(`ip -o link show ${far.far}`).replaceAll(':', '')).toContain(Buffer.from(destMac).toString('hex'));
    far.close();
  });

  test('a wait that is given up leaves the search to the others', async () => {
    const closing = new AbortController();
    const [gone, other] = [resolve(11, 5000, closing.signal), resolve(11, 5000)];
    closing.abort(new Error('closed'));
    await expect(gone).rejects.toThrow('closed');
    expect(neighbourSearches()).toBe(1);
    learn(11);
    expect((await other).destMac).toHaveLength(6);
    expect(neighbourSearches()).toBe(0);
  });

  test('searches are polled together where the kernel refuses notifications', async () => {
    const refused = vi.spyOn(native(), 'netlinkListen').mockReturnValue(-1);
    const waiting = [resolve(12, 5000), resolve(12, 5000)];
    learn(12);
    expect((await Promise.all(waiting)).map(({ destMac }) => destMac.length)).toEqual([6, 6]);
    expect(neighbourSearches()).toBe(0);
    refused.mockRestore();
  });

  test('each watch calls back after a change of routes, or of the MAC address of a neighbour that was returned', async () => {
    learn(13);
    await resolve(13, 20);
    // any route of the host may change meanwhile, and each change calls back
    let routes = 0;
    const endRoutes = watchRoutes(() => routes++);
    const told = [0, 0];
    const ends = [0, 1].map((i) =>
      watchNextHops(() => {
        told[i] = (told[i] as number) + 1;
      }),
    );
    const moved = (host: number, mac: string, state: string) =>
      sh(`ip neigh replace 10.183.0.${host} lladdr ${mac} dev ${NAME} nud ${state}`);
    // another state, and a neighbour that nobody has asked for
    moved(13, MAC, 'stale');
    moved(14, '02:00:00:00:00:99', 'reachable');
    await sleep(50);
    expect(told).toEqual([routes, routes]);
    moved(13, '02:00:00:00:00:98', 'reachable');
    await eventually(() => expect(told).toEqual([routes + 1, routes + 1]));
    const before = Math.max(...told);
    sh(`ip route add 10.184.77.0/24 via 10.183.0.13 dev ${NAME}`);
    await eventually(() => expect(Math.min(...told)).toBeGreaterThan(before));
    ends[0]?.();
    const last = told[0];
    sh(`ip route del 10.184.77.0/24 dev ${NAME}`);
    await eventually(() => expect(told[1]).toBeGreaterThan(last as number));
    expect(told[0]).toBe(last);
    ends[1]?.();
    endRoutes();
  });
});
