// rdma_cm and connections on network interfaces: every link, with the card on the application's thread and on a worker.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Connection, type Device, openDevice, type Server } from '../../src/index.js';
import { all, describeIf, netPrivilege, programPrivilege, xdpPrivilege } from '../kit/privileges.js';
import { sh } from '../link/netns.js';
import { pattern } from '../verbs/pair.js';
import '../link/ownsockets.js';

const PORT = 7471;
const WAIT = { timeout: 20_000 };

async function accepted(server: Server): Promise<Connection> {
  for await (const request of server) return request.accept();
  throw new Error('nobody came');
}

async function converse(a: Device, b: Device): Promise<void> {
  const server = await b.listen({ port: PORT });
  const [client, served] = await Promise.all([
    a.connect({ host: b.gids[0]?.address as string, port: PORT, ...WAIT }),
    accepted(server),
  ]);
  const bytes = pattern(10_000);
  for (const [from, to] of [
    [client, served],
    [served, client],
  ] as const) {
    await from.send(bytes, WAIT);
    expect((await to.receive(WAIT))?.data.equals(bytes)).toBe(true);
  }
  const mr = await served.share(4096);
  await client.write(mr.remote, bytes.subarray(0, 4096), WAIT);
  expect(mr.buffer.equals(bytes.subarray(0, 4096))).toBe(true);
  await client.close();
  expect(await served.receive(WAIT)).toBeUndefined();
  await server.close();
}

describeIf(all(netPrivilege(), programPrivilege('ip')), 'two interfaces', () => {
  beforeAll(() => {
    sh(
      'ip link add cmv0 type veth peer name cmv1; ip link set cmv0 addrgenmode none; ip link set cmv1 addrgenmode none; ' +
        'ip link set cmv0 up; ip link set cmv1 up; ' +
        'ip addr add 10.97.0.1/24 dev cmv0; ip addr add 10.97.0.2/24 dev cmv1; ' +
        // both are addresses of this host, from which packets are not accepted by default
        'echo 1 > /proc/sys/net/ipv4/conf/cmv0/accept_local; echo 1 > /proc/sys/net/ipv4/conf/cmv1/accept_local',
    );
  });
  afterAll(() => {
    sh('ip link del cmv0');
  });

  const rows = (['packet', 'udp', 'xdp'] as const).flatMap((link) =>
    (['inline', 'worker'] as const).map((mode) => [link, mode] as const),
  );
  for (const [link, mode] of rows)
    describeIf(link === 'xdp' ? xdpPrivilege() : { ok: true, reason: '' }, `link ${link}, ${mode}`, () => {
      test('two ids connect, exchange messages and memory, and disconnect', async () => {
        const open = (name: string) => openDevice({ link, mode, interface: name, memoryBytes: 2 ** 24 });
        await using a = await open('cmv0');
        await using b = await open('cmv1');
        await converse(a, b);
      });
    });
});
