// Two devices in two network namespaces: data that is written and read back is the same, and went in GSO bursts and
// super-packets.
import { fileURLToPath } from 'node:url';
import { afterEach, expect, test } from 'vitest';
import { type Counters, type Device, type OpenOptions, openDevice } from '../../src/index.js';
import { all, describeIf, netPrivilege, programPrivilege, testIf } from '../kit/privileges.js';
import { ALL, pattern } from '../verbs/pair.js';
import { type ChildProgram, PeerNamespace } from './netns.js';

const PROGRAM = fileURLToPath(new URL('peerdevice.ts', import.meta.url));
const SIZE = 256 * 1024;
/** Enough memory for receive slots that hold super-packets. */
const MEMORY = 32 * 2 ** 20;
/** Retransmits after a second only, so that a busy machine does not count as loss. */
const PATIENT = { timeout: 18, adaptiveRetransmission: false } as const;
const privilege = all(netPrivilege(), programPrivilege('nsenter'), programPrivilege('ip'));

/** Counters that are 0 if nothing is lost. */
const LOSSES = ['retransmits', 'rcvd_seq_err', 'drop_icrc', 'link.rx_truncated', 'link.tx_gso_refused'] as const;
const losses = (counted: Counters) => Object.fromEntries(LOSSES.map((name) => [name, counted[name]]));
const NONE = Object.fromEntries(LOSSES.map((name) => [name, 0]));

interface Ends {
  near: Device;
  far: ChildProgram;
}

describeIf(privilege, 'two devices at both ends of a cable', () => {
  const closing: (() => unknown)[] = [];
  let net = 100;

  afterEach(async () => {
    for (const close of closing.splice(0).reverse()) await close();
  });

  async function cable(mtu: number): Promise<PeerNamespace> {
    const far = await PeerNamespace.open(`lkr${net}`, net++, mtu);
    closing.push(() => far.close());
    return far;
  }

  async function nearDevice(cable: PeerNamespace, options: OpenOptions): Promise<Device> {
    const device = await openDevice({ interface: cable.near, memoryBytes: MEMORY, ...options });
    closing.push(() => device.close({ force: true }));
    return device;
  }

  async function farDevice(cable: PeerNamespace, options: OpenOptions, wrap?: string[]): Promise<ChildProgram> {
    const argument = JSON.stringify({ interface: cable.far, memoryBytes: MEMORY, ...options });
    const program = cable.start(PROGRAM, [argument], wrap);
    expect(await program.line()).toBe('ready');
    return program;
  }

  const writeAndRead = (ends: Ends, peer: string, pathMtu: number) =>
    transfer(ends, peer, pathMtu, ['RDMA_WRITE', 'RDMA_READ']);

  /** Moves SIZE bytes by each operation on a new connection. A READ after a WRITE must return the same data. */
  async function transfer(
    { near, far }: Ends,
    peer: string,
    pathMtu: number,
    operations: ('RDMA_WRITE' | 'RDMA_READ')[],
  ): Promise<void> {
    const pd = await near.allocPd();
    const cq = await near.createCq();
    const mr = await pd.regMr(2 * SIZE, { access: ALL });
    const qp = await pd.createQp({ sendCq: cq });
    const own = qp.endpoint(peer);
    const { endpoint, memory } = JSON.parse(await far.request(JSON.stringify([own, pathMtu])));
    await qp.connect(endpoint, { pathMtu, ...PATIENT });
    const data = pattern(SIZE, pathMtu);
    data.copy(mr.buffer);
    const there = { remoteAddr: memory.addr, rkey: memory.rkey };
    for (const opcode of operations) {
      const sgList = opcode === 'RDMA_WRITE' ? mr.sge(0, SIZE) : mr.sge(SIZE, SIZE);
      qp.postSend({ opcode, sgList, ...there });
      expect(await cq.next({ timeout: 20_000 })).toMatchObject({ ok: true });
    }
    if (operations.length > 1) expect(mr.buffer.subarray(SIZE).equals(data)).toBe(true);
  }

  async function counters({ near, far }: Ends): Promise<[Counters, Counters]> {
    return [near.counters(), JSON.parse(await far.request('counters'))];
  }

  for (const mtu of [1500, 9000])
    test.each([
      ['packet', 'packet'],
      ['udp', 'udp'],
      ['packet', 'udp'],
    ] as const)(`MTU ${mtu}: %s to %s, IPv4 and IPv6, all path MTUs, in bursts both ways`, async (here, there) => {
      const wire = await cable(mtu);
      const ends = { near: await nearDevice(wire, { link: here }), far: await farDevice(wire, { link: there }) };
      const pathMtus = mtu === 1500 ? [512, 1024] : [1024, 4096];
      for (const pathMtu of pathMtus) for (const peer of wire.farAddresses) await writeAndRead(ends, peer, pathMtu);
      const packets = pathMtus.reduce((sum, pathMtu) => sum + (2 * SIZE) / pathMtu, 0);
      for (const counted of await counters(ends)) {
        expect(losses(counted)).toEqual(NONE);
        // almost all frames, many in each
        for (const [frameCounter, batchCounter] of [
          ['tx_gso_frames', 'tx_gso_bursts'],
          ['rx_gro_frames', 'rx_gro_packets'],
        ]) {
          const frames = counted[`link.${frameCounter}`] as number;
          expect(frames).toBeGreaterThan(0.95 * packets);
          expect(frames / (counted[`link.${batchCounter}`] as number)).toBeGreaterThan(10);
        }
      }
    });

  test.each<[string, 'packet' | 'udp', OpenOptions]>([
    ['pcap', 'packet', { pcap: '/dev/null' }],
    ['pcap', 'udp', { pcap: '/dev/null' }],
    ['fault', 'packet', { fault: { both: {} } }],
    ['fault', 'udp', { fault: { both: {} } }],
  ])('a %s link around %s at one end: bursts towards it, single frames back', async (_name, link, wrapped) => {
    const wire = await cable(9000);
    const ends = { near: await nearDevice(wire, { link: 'packet' }), far: await farDevice(wire, { link, ...wrapped }) };
    for (const peer of wire.farAddresses) await writeAndRead(ends, peer, 1024);
    const [near, far] = await counters(ends);
    for (const counted of [near, far]) expect(losses(counted)).toEqual(NONE);
    expect(near['link.tx_gso_frames']).toBeGreaterThan((0.95 * 2 * SIZE) / 1024);
    expect(far['link.tx_gso_bursts']).toBe(0);
    expect(near['link.rx_gro_packets']).toBe(0);
  });

  test.each(['packet', 'udp'] as const)(
    '%s: the kernel segments for an interface that takes no super-packets',
    async (link) => {
      const wire = await cable(9000);
      wire.sh(`ip link set ${wire.far} gso_max_size 400`);
      const ends = { near: await nearDevice(wire, { link }), far: await farDevice(wire, { link }) };
      for (const peer of wire.farAddresses) await writeAndRead(ends, peer, 1024);
      const [near, far] = await counters(ends);
      for (const counted of [near, far]) expect(losses(counted)).toEqual(NONE);
      expect(far['link.tx_gso_frames']).toBeGreaterThan((0.95 * 2 * SIZE) / 1024);
      expect(near['link.rx_gro_packets']).toBe(0);
    },
  );

  testIf(
    programPrivilege('strace'),
    'a kernel that refuses runs is asked once: the packet link loses nothing by it, the udp link repeats',
    async () => {
      const wire = await cable(9000);
      // the first message that it sends is the response to a READ
      const strace = ['strace', '-f', '-qq', '-o', '/dev/null', '-e', 'trace=sendmmsg'];
      const wrap = [...strace, '-e', 'inject=sendmmsg:error=EIO:when=1'];
      for (const link of ['packet', 'udp'] as const) {
        const ends = { near: await nearDevice(wire, { link }), far: await farDevice(wire, { link }, wrap) };
        const [peer] = wire.farAddresses;
        await transfer(ends, peer, 1024, ['RDMA_READ']);
        await transfer(ends, peer, 1024, ['RDMA_WRITE', 'RDMA_READ']);
        const [near, far] = await counters(ends);
        expect(far).toMatchObject({ 'link.tx_gso_bursts': 0, 'link.tx_gso_refused': 1, drop_icrc: 0 });
        expect(near).toMatchObject({ 'link.rx_gro_packets': 0, drop_icrc: 0 });
        if (link === 'packet') expect(near.retransmits).toBe(0);
        else expect(far['link.tx_errors']).toBeGreaterThan(0);
        await ends.near.close({ force: true });
        await ends.far.stop();
      }
    },
  );

  test('a killed device leaves nothing behind', async () => {
    const wire = await cable(9000);
    const open = () => wire.sh('cat /proc/net/packet; grep -h :12B7 /proc/net/udp /proc/net/udp6 || true');
    const before = open();
    for (const link of ['packet', 'udp'] as const) {
      const far = await farDevice(wire, { link });
      expect(open()).not.toBe(before);
      await far.kill();
      expect(open()).toBe(before);
    }
  });
});
