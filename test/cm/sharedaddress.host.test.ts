/** Devices of one host with the same address: each receives the messages for the others, and ignores them. */
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { SharedAddress } from '../../src/cm/sharedaddress.js';
import { type Device, openDevice, type Server } from '../../src/index.js';
import type { HostNames } from '../../src/link/link.js';
import { eventually } from '../kit/eventually.js';
import { all, describeIf, netPrivilege, programPrivilege } from '../kit/privileges.js';
import { sh } from '../link/netns.js';
import '../link/ownsockets.js';

const HERE = '10.94.0.1';
const THERE = '10.94.0.2';
const ROUNDS = 5;

test('each card has a first byte of its communication ids that no other card has', () => {
  const bound = new Set<string>();
  const names: HostNames = {
    bind: (name) => {
      if (bound.has(name)) return undefined;
      bound.add(name);
      return () => void bound.delete(name);
    },
    isBound: (name) => bound.has(name),
  };
  const cards = [77, 255, 255].map((start) => new SharedAddress({ names }, [], start));
  expect(cards.map(({ commIdPrefix }) => commIdPrefix)).toEqual([77, 255, 0]);
  expect(cards[0]?.ownsCommId(0xff00_0001)).toBe(true);
  cards[1]?.close();
  expect(cards[0]?.ownsCommId(0xff00_0001)).toBe(false);
});

describeIf(all(netPrivilege(), programPrivilege('ip')), 'two devices of one address, and a peer', () => {
  let one: Device;
  let other: Device;
  let peer: Device;

  beforeAll(async () => {
    sh(
      'ip link add near0 type veth peer name near1; ip link set near0 up; ip link set near1 up; ' +
        `ip addr add ${HERE}/24 dev near0; ip addr add ${THERE}/24 dev near1`,
    );
    const open = (name: string) => openDevice({ interface: name, link: 'packet', memoryBytes: 2 ** 25 });
    [one, other, peer] = [await open('near0'), await open('near0'), await open('near1')];
  });

  afterAll(async () => {
    for (const device of [one, other, peer]) await device.close({ force: true });
    sh('ip link del near0');
  });

  const servers: Server[] = [];
  afterEach(async () => {
    for (const server of servers.splice(0)) await server.close();
  });

  /** Accepts all connections, and sends its name on each. */
  async function serve(device: Device, port: number, name: string): Promise<void> {
    const server = await device.listen({ port });
    servers.push(server);
    void (async () => {
      for await (const request of server) {
        const connection = await request.accept();
        await connection.send(Buffer.from(name));
        await connection.close();
      }
    })();
  }

  /** Returns the name of the server at an address and port. */
  async function whoIs(from: Device, host: string, port: number): Promise<string> {
    await using connection = await from.connect({ host, port });
    return String((await connection.receive())?.data);
  }

  test('each card serves its own ports, and one of them refuses requests for ports without a listener', async () => {
    await serve(one, 7001, 'one');
    await serve(other, 7002, 'other');
    for (let round = 0; round < ROUNDS; round++) {
      expect(await whoIs(peer, HERE, 7001)).toBe('one');
      expect(await whoIs(peer, HERE, 7002)).toBe('other');
    }
    await expect(whoIs(peer, HERE, 7003)).rejects.toThrow(/ECONNREFUSED: .*no listener on that port/);
  });

  test('both cards connect, and neither refuses the peer’s answers to the other', async () => {
    await serve(peer, 7004, 'peer');
    for (let round = 0; round < ROUNDS; round++)
      expect(await Promise.all([one, other].map((device) => whoIs(device, THERE, 7004)))).toEqual(['peer', 'peer']);
    expect(peer.counters()['cm_rx_msgs.rej'] ?? 0).toBe(0);
  });

  test('a port belongs to one card until that card releases it', async () => {
    await serve(one, 7005, 'one');
    await expect(other.listen({ port: 7005 })).rejects.toThrow(
      /^EADDRINUSE: rdma_cm port 7005 \(TCP\) of .* has a listener already, of another device on this host$/,
    );
    await servers.pop()?.close();
    await serve(other, 7005, 'other');
    expect(await whoIs(peer, HERE, 7005)).toBe('other');
  });

  test('an address that is added later is served too', async () => {
    await serve(one, 7006, 'one');
    sh('ip addr add 10.94.0.3/24 dev near0');
    await eventually(() => expect(one.gids.some(({ address }) => address === '10.94.0.3')).toBe(true));
    await eventually(() => expect(other.gids.some(({ address }) => address === '10.94.0.3')).toBe(true));
    for (let round = 0; round < ROUNDS; round++) expect(await whoIs(peer, '10.94.0.3', 7006)).toBe('one');
    await expect(other.listen({ port: 7006, host: '10.94.0.3' })).rejects.toThrow(/EADDRINUSE/);
  });
});
