// Programs that others wrote, over a network that loses 1 % of the frames in each direction.
import { execFileSync } from 'node:child_process';
import { afterAll, beforeAll, test } from 'vitest';
import { all, describeIf, programPrivilege, xdpPrivilege } from '../kit/privileges.js';
import { compileLoss } from './compiled.js';
import { Hosts, present, wayOf } from './hosts.js';

/**
 * Ways over reliable connections: a datagram that is lost is the program's own matter. On any adapter, two kinds of
 * programs do not bear lost frames, and are left out. The pingpongs end without waiting for each other, so that nobody
 * repeats a last ACK that was lost. `ib_send_lat -e` takes the event of a receive for that of its send, when an ACK was
 * lost, leaves the completion in its queue of one, and the next overruns it.
 */
const WAYS = [
  ['rping', '`-P`'],
  ['rdma_server, rdma_client', 'plain'],
  ['ucmatose', '10 connections'],
  ['rstream', '`-T v` (verifies)'],
  ['riostream', 'plain'],
  ['rcopy', 'plain'],
  ['ib_write_bw', 'RC'],
  ['ib_write_bw', '`-q 64`'],
  ['ib_read_bw', 'RC'],
  ['ib_send_bw', '`--use-srq`'],
  ['ib_atomic_bw', 'RC'],
  ['qperf', 'atomics by `-cm 1`'],
  ['ucx_perftest (UCX)', 'UCP messages'],
  ['ucx_perftest (UCX)', 'UCP GET'],
  ['fi_pingpong (libfabric)', 'MSG'],
  ['fi_pingpong (libfabric)', 'RDM by ofi_rxm'],
  ['fio, engine rdma', '`verb=write`'],
  ['Valkey (valkey-server, valkey-benchmark)', 'RDMA'],
  ["curl, Python's http.server (`librspreload.so`)", 'HTTP'],
] as const;

describeIf(all(present, xdpPrivilege(), programPrivilege('clang')), 'with 1 % of the frames lost', () => {
  let hosts: Hosts;
  beforeAll(async () => {
    hosts = await Hosts.open('prl', 203);
    const program = compileLoss(hosts.folder);
    for (const { interface: dev, enter } of [hosts.near, hosts.far])
      execFileSync('/usr/bin/env', [...enter, 'ip', 'link', 'set', 'dev', dev, 'xdp', 'obj', program, 'sec', 'xdp']);
  });
  afterAll(() => hosts.close());

  test.each(WAYS)('%s completes: %s', async (program, name) => {
    await hosts.run(wayOf(program, name));
  });
});
