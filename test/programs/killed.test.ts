// Programs that are killed in the middle of their traffic: the other end ends, and the next programs find nothing in
// their way.
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { DeviceStat } from '../../src/index.js';
import { start } from '../cli/run.js';
import { eventually } from '../kit/eventually.js';
import { describeIf } from '../kit/privileges.js';
import { programOf } from './ends.js';
import { type Ends, Hosts, present, wayOf } from './hosts.js';

/** Ways that go on for longer than a test. A server that stays serves the next client. */
const WAYS = [
  { name: 'ib_write_bw', client: 'ib_write_bw -F -x GID -p PORT -D 60' },
  { name: 'ib_send_lat', client: 'ib_send_lat -F -x GID -p PORT -D 60' },
  { name: 'ib_read_bw -q 64', client: 'ib_read_bw -F -x GID -p PORT -q 64 -D 60' },
  { name: 'ib_send_bw -c UD', client: 'ib_send_bw -F -x GID -p PORT -c UD -s 1024 -D 60' },
  { name: 'ucx_perftest', client: 'ucx_perftest -d wroce0:1 -x rc_verbs -t am_lat -n 100000000 -p PORT' },
].map(({ name, client }) => ({ name, server: client, client: `${client} IPV4` }));
const BY_CM = [
  { name: 'rping', server: 'rping -s -a ADDRESS -p PORT', client: 'rping -c -a ADDRESS -p PORT -C 100000000' },
  // without `-T a` it goes on when rrecv returns 0, if errno is EAGAIN of an earlier call
  {
    name: 'rstream -T a',
    server: 'rstream -b ADDRESS -p PORT -T a -S 4096 -I 100000000',
    client: 'rstream -s ADDRESS -p PORT -T a -S 4096 -I 100000000',
  },
].map((way) => ({ ...way, cm: true as const }));
const ALL = [...WAYS, ...BY_CM];

describeIf(present, 'a program that is killed in the middle of its traffic', () => {
  let hosts: Hosts;
  beforeAll(async () => {
    hosts = await Hosts.open('prk', 205);
  });
  afterAll(() => hosts.close());

  /** Returns the state of the programs' devices on the far host: the broker's, which has the CM, is of Node. */
  async function stats(): Promise<DeviceStat[]> {
    const { stdout } = await start(['stat', '--json'], { prefix: hosts.far.enter }).ended;
    return (JSON.parse(stdout) as DeviceStat[]).filter(({ device }) => device === 'wroce0');
  }

  /** Starts both ends, and waits until their traffic flows. */
  async function flowing(way: (typeof ALL)[number]): Promise<Ends> {
    const ends = await hosts.start(way);
    await eventually(async () => {
      const [device, ...others] = await stats();
      expect(others).toEqual([]);
      expect(device?.counters.rcvd_pkts ?? 0).toBeGreaterThan(500);
    });
    return ends;
  }

  /** The programs that go on find no rest of the killed one: its slot is free, and its folder goes with the next. */
  async function nextOnes(): Promise<void> {
    await eventually(async () => expect(await stats()).toEqual([]));
    await hosts.run(wayOf('ib_write_bw', 'RC'));
    await hosts.run(wayOf('rdma_server, rdma_client', 'plain'));
  }

  test.each(ALL.map((way) => [way.name, way] as const))(
    '%s: the client ends when its server is killed',
    async (_, way) => {
      const { server, client } = await flowing(way);
      process.kill(programOf(server), 'SIGKILL');
      expect(await server.ended).toMatchObject({ status: null });
      await client.ended;
      await nextOnes();
    },
  );

  test.each(ALL.map((way) => [way.name, way] as const))(
    '%s: the server ends when its client is killed',
    async (_, way) => {
      const { server, client } = await flowing(way);
      process.kill(programOf(client), 'SIGKILL');
      await client.ended;
      await server.ended;
      await nextOnes();
    },
  );
});
