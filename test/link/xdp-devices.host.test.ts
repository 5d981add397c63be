// Devices on the xdp link. They do every operation of the demo with devices on each kind of link in another network
// namespace, and compare every byte. They also work inside wrappers that have rings of their own.
import { rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Row, runActive } from '../../src/cli/demo/active.js';
import { callsTo } from '../../src/cli/demo/ipc.js';
import { TASKS } from '../../src/cli/demo/operation.js';
import type { Passive } from '../../src/cli/demo/passive.js';
import { openDevice, throwIfFailed } from '../../src/index.js';
import { XdpLink } from '../../src/link/xdp/link.js';
import { readCapture } from '../../src/probe/capture/read.js';
import { decode } from '../../src/probe/packet/decode.js';
import { all, describeIf, programPrivilege, xdpPrivilege } from '../kit/privileges.js';
import { ALL, endOn, pattern } from '../verbs/pair.js';
import { PeerNamespace, sh } from './netns.js';
import './ownsockets.js';

const MEMORY = 32 * 2 ** 20;

describeIf(all(xdpPrivilege(), programPrivilege('nsenter'), programPrivilege('ip')), 'all operations', () => {
  let far: PeerNamespace;
  beforeAll(async () => {
    far = await PeerNamespace.open('lkw', 195);
  });
  afterAll(() => far?.close());

  test.each([
    ['packet', 1500, 'inline'],
    ['udp', 9000, 'inline'],
    ['xdp', 9000, 'inline'],
    ['xdp', 9000, 'worker'],
  ] as const)(
    'a device on the %s link, MTU %d, mode %s: no byte is wrong, and no frame is lost',
    async (kind, mtu, mode) => {
      sh(`ip link set ${far.near} mtu ${mtu}`);
      far.sh(`ip link set ${far.far} mtu ${mtu}`);
      const child = await far.demoPeer(kind, mode);
      const link = XdpLink.open({ interface: far.near });
      const rows: Row[] = [];
      let lost = 0;
      const onRow = (row: Row) => {
        rows.push(row);
        lost = link.counters().rx_dropped ?? 0;
      };
      const peer = callsTo<Passive>(child, ['open', 'connect', 'begin', 'end', 'close']);
      await runActive({ link, mode, spinMs: 0, onBegin: () => {} }, peer, onRow);
      child.disconnect();
      expect(rows.map(({ link: kind, operation, size, wrong }) => ({ kind, operation, size, wrong }))).toEqual(
        TASKS.map(({ name, size }) => ({ kind: 'xdp', operation: name, size, wrong: '' })),
      );
      expect(lost).toBe(0);
    },
  );
});

describeIf(all(xdpPrivilege(), programPrivilege('ip')), 'with faults and a capture', () => {
  test('data arrives all the same, and the capture has the frames that were sent', async () => {
    sh('ip link add lkv0 mtu 4500 type veth peer name lkv1; ip link set lkv1 mtu 4500');
    for (const [dev, n] of [
      ['lkv0', 1],
      ['lkv1', 2],
    ])
      sh(`ip link set ${dev} addrgenmode none; ip link set ${dev} up; ip addr add 10.196.0.${n}/24 dev ${dev}`);
    const pcap = join(tmpdir(), `wasm-roce-xdp-${process.pid}.pcapng`);
    const both = { drop: 0.03, duplicate: 0.03, reorder: 0.03 };
    const open = { link: 'xdp', memoryBytes: MEMORY } as const;
    const a = await endOn(await openDevice({ ...open, interface: 'lkv0', fault: { seed: 5, both }, pcap }));
    const b = await endOn(await openDevice({ ...open, interface: 'lkv1' }));
    expect(a.device.notes.join()).toContain('XDP in native mode');
    await a.qp.connect(b.qp.endpoint(), { access: ALL, timeout: 10 });
    await b.qp.connect(a.qp.endpoint(), { access: ALL, timeout: 10 });
    for (let seed = 0; seed < 10; seed++) {
      pattern(60000, seed).copy(a.mr.buffer);
      a.qp.postSend({ opcode: 'RDMA_WRITE', sgList: a.mr.sge(0, 60000), remoteAddr: b.mr.iova, rkey: b.mr.rkey });
      throwIfFailed(await a.cq.next({ timeout: 10_000 }));
      expect(b.mr.buffer.subarray(0, 60000).equals(pattern(60000, seed))).toBe(true);
    }
    const counters = a.device.counters();
    for (const { device } of [a, b]) await device.close({ force: true });
    sh('ip link del lkv0');
    const { packets } = readCapture(pcap);
    rmSync(pcap);
    const sent = packets.filter(({ direction }) => direction === 2);
    expect(sent).toHaveLength((counters['link.tx_frames'] as number) ?? 0);
    // The ICRC is correct, so each packet is complete.
    for (const { data } of packets) expect(decode(data).icrcOk).toBe(true);
  });
});
