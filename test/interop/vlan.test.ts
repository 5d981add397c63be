// A VLAN between our card and rxe, for which the guest's kernel has an interface. Our kernel may not support VLANs, so
// the test resolves the route to the guest in its place.
import { execFileSync } from 'node:child_process';
import { networkInterfaces } from 'node:os';
import { basename } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { gidToHex } from '../../src/base/gid.js';
import { MULTICAST_QPN, readGrh } from '../../src/index.js';
import { CardEnd, OurDevice } from './card.js';
import { describeWithRxe, FAMILY_NAMES } from './environment.js';
import { CARD } from './guest/network.js';
import { Peer } from './guest/peer.js';
import type { Family } from './pair.js';
import { RxeEnd } from './rxe.js';
import { exchange, TRAFFIC_SIZE } from './traffic.js';

const VLAN = 5;
/** Tag control information of our frames: priority and VLAN. */
const TCI = (3 << 13) | VLAN;
const GUEST_MAC = '52:54:00:77:00:03';
const ADDRESSES: Readonly<Record<Family, { card: string; guest: string; bits: number }>> = {
  IPv4: { card: '10.78.0.2', guest: '10.78.0.3', bits: 24 },
  IPv6: { card: 'fd78::2', guest: 'fd78::3', bits: 64 },
};
const GROUP = { address: '239.78.0.1', gid: '00000000000000000000ffffef4e0001' };
const QKEY = 0x1234567;
const GRH = 40;
const SLOT = 2048;
const WAIT = { timeout: 20_000 };

const tagged = async () => ({ destMac: Buffer.from(GUEST_MAC.replaceAll(':', ''), 'hex'), vlanTci: TCI });

describeWithRxe('a VLAN with rxe', 9000, (environment) => {
  /** GID indexes of rxe on the VLAN. */
  const gids = {} as Record<Family, number>;

  beforeAll(async () => {
    const ours = networkInterfaces()[CARD.interface]?.[0]?.mac as string;
    const steps = [`ip link add link eth0 name eth0.${VLAN} type vlan id ${VLAN}`, `ip link set eth0.${VLAN} up`];
    for (const family of FAMILY_NAMES) {
      const { card, guest, bits } = ADDRESSES[family];
      execFileSync('ip', ['address', 'add', `${card}/${bits}`, 'dev', CARD.interface]);
      const nodad = family === 'IPv6' ? 'nodad' : '';
      steps.push(`ip address add ${guest}/${bits} dev eth0.${VLAN} ${nodad}`);
      // nobody at our end answers neighbour discovery on the VLAN
      steps.push(`ip neigh replace ${card} lladdr ${ours} dev eth0.${VLAN}`);
    }
    steps.push(`ip route replace ${GROUP.address} dev eth0.${VLAN}`);
    await environment.guest.run(steps.join(' && '));
    for (const family of FAMILY_NAMES) gids[family] = await gidIndex(ADDRESSES[family].guest);
  });

  afterAll(() => {
    for (const { card, bits } of Object.values(ADDRESSES))
      execFileSync('ip', ['address', 'del', `${card}/${bits}`, 'dev', CARD.interface]);
  });

  /** Returns rxe's GID index of an address. rxe adds a new address slightly later than the kernel. */
  async function gidIndex(address: string): Promise<number> {
    const hex = gidToHex(address).replace(/....(?=.)/g, '$&:');
    const found = `grep -lx ${hex} /sys/class/infiniband/rxe0/ports/1/gids/* 2>/dev/null`;
    return Number(basename((await environment.guest.run(`until ${found}; do sleep 0.05; done`)).trim()));
  }

  test.each(FAMILY_NAMES)('%s: all operations both ways at once, and every frame has its tag', async (family) => {
    await using ours = await OurDevice.open('packet', { resolve: tagged, tap: true });
    await using peer = await Peer.start(environment.guest, gids[family]);
    const options = { size: TRAFFIC_SIZE, mtu: 4096 };
    await using card = await CardEnd.create(ours.device, ADDRESSES[family].guest, options);
    await using rxe = await RxeEnd.create(peer, options);
    await card.connect(rxe.introduction);
    await rxe.connect(card.introduction);
    await exchange([
      [card, rxe],
      [rxe, card],
    ]);
    const frames = ours.tap?.frames() ?? [];
    const tags = (way: string) =>
      new Set(frames.filter(({ direction }) => direction === way).map(({ eth }) => eth.vlan));
    expect(tags('out')).toEqual(new Set([TCI]));
    expect(tags('in')).toEqual(new Set([VLAN]));
    expect(ours.device.counters().drop_icrc).toBe(0);
  });

  test('a datagram each way, and one to a group on it', async () => {
    await using ours = await OurDevice.open('packet', { resolve: tagged, tap: true });
    await using peer = await Peer.start(environment.guest, gids.IPv4);
    const pd = await ours.device.allocPd();
    const cq = await ours.device.createCq();
    const mr = await pd.regMr(4 * SLOT);
    const qp = await pd.createQp({ type: 'UD', sendCq: cq });
    await qp.activate({ qkey: QKEY });
    const [theirMr, theirs] = [await peer.reg(4 * SLOT), await peer.qp({ type: 'ud', qkey: QKEY })];
    await theirs.activate();

    await theirs.postRecv([{ mr: theirMr, off: 0, len: SLOT }], 1);
    const ah = await pd.createAh({ grh: { dgid: peer.gid } });
    qp.postSend({ opcode: 'SEND', sgList: Buffer.from('there'), ah, remoteQpn: theirs.qpn, remoteQkey: QKEY });
    expect(await cq.next(WAIT)).toMatchObject({ ok: true, opcodeName: 'SEND' });
    expect(await theirs.poll(1)).toMatchObject([{ id: 1, status: 0, byteLen: GRH + 5, srcQp: qp.qpNum }]);
    expect(`${await peer.read(theirMr, GRH, 5)}`).toBe('there');

    await qp.attachMcast(GROUP.address);
    await peer.write(theirMr, SLOT, Buffer.from('back and to all'));
    const { gid } = qp.endpoint(ADDRESSES.IPv4.guest);
    for (const [to, dqpn, length] of [
      [gidToHex(gid), qp.qpNum, 4],
      [GROUP.gid, MULTICAST_QPN, 15],
    ] as const) {
      qp.postRecv({ wrId: length, sgList: mr.sge(0, SLOT) });
      const sge = [{ mr: theirMr, off: SLOT, len: length }];
      await theirs.postSend({ op: 'send', id: 2, ah: await peer.ah(to), dqpn, qkey: QKEY, sge });
      const wc = await cq.next(WAIT);
      expect(wc).toMatchObject({ ok: true, wrId: length, byteLen: GRH + length, srcQp: theirs.qpn });
      expect(mr.buffer.toString('latin1', GRH, GRH + length)).toBe('back and to all'.slice(0, length));
      expect(readGrh(mr.buffer.subarray(0, GRH)).source).toBe(ADDRESSES.IPv4.guest);
    }
    expect(ours.tap?.frames().map(({ direction, eth }) => [direction, eth.vlan])).toEqual([
      ['out', TCI],
      ['in', VLAN],
      ['in', VLAN],
    ]);
  });
});
