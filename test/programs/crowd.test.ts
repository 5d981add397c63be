// Programs of many kinds at once, which share the addresses of two hosts.
import { afterAll, beforeAll, test } from 'vitest';
import { describeIf } from '../kit/privileges.js';
import { Hosts, present, wayOf } from './hosts.js';

const WAYS = [
  ['rping', '1,000 times'],
  ['rping', 'IPv6'],
  ['ucmatose', '10 connections'],
  ['udaddy', 'plain'],
  ['rstream', '`-T v` (verifies)'],
  ['ib_write_bw', '`-R`'],
  ['ib_write_bw', '`-q 64`'],
  ['ib_read_lat', 'RC'],
  ['ib_send_bw', 'UD'],
  ['ib_send_bw', '`--use-srq`'],
  ['ib_atomic_bw', 'RC'],
  ['ucx_perftest (UCX)', 'UCP messages'],
  ['fi_pingpong (libfabric)', 'RDM by ofi_rxd'],
  ['fio, engine rdma', '`verb=write`'],
  ['MPICH', 'UCX'],
  ['Valkey (valkey-server, valkey-benchmark)', 'RDMA'],
] as const;

describeIf(present, 'programs of many kinds at once on one address', () => {
  let hosts: Hosts;
  beforeAll(async () => {
    hosts = await Hosts.open('prm', 206);
  });
  afterAll(() => hosts.close());

  test('sixteen programs and their peers complete', async () => {
    await Promise.all(WAYS.map(([program, name]) => hosts.run(wayOf(program, name))));
  });
});
