// Multicast groups on the kernel's interfaces: the kernel lists a member, which receives from the group and sends to
// it.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { multicastMac } from '../../src/base/address.js';
import { type Device, MULTICAST_QPN, openDevice, readGrh } from '../../src/index.js';
import { PacketLink } from '../../src/link/packet.js';
import { UdpLink } from '../../src/link/udp.js';
import { all, describeIf, netPrivilege, programPrivilege } from '../kit/privileges.js';
import { sh, vethPair } from './netns.js';
import { Rig, udpFrame } from './rig.js';
import './ownsockets.js';

const GROUP4 = '239.200.1.2';
const GROUP6 = 'ff15:0:0:0:0:0:beef:1';
const A4 = '10.95.0.1';
const A6 = 'fd00:95:0:0:0:0:0:1';
const WAIT = { timeout: 20_000 };

test('a group’s MAC follows from its address', () => {
  expect([...multicastMac(Uint8Array.of(239, 200, 1, 2))]).toEqual([1, 0, 0x5e, 0x48, 1, 2]);
  expect([...multicastMac(Uint8Array.of(0xff, 0x15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xbe, 0xef, 0, 1))]).toEqual([
    0x33, 0x33, 0xbe, 0xef, 0, 1,
  ]);
});

describeIf(all(netPrivilege(), programPrivilege('ip')), 'on a veth pair', () => {
  beforeAll(() => {
    vethPair(['lkm0', 'lkm1'], 95, 4500);
  });
  afterAll(() => void sh('ip link del lkm0'));

  /** Returns the groups that the kernel lists for an interface. */
  const listed = (dev: string) => sh(`ip maddr show dev ${dev}`);
  const to = (group: string, mac: number[], payload: string) =>
    udpFrame({
      source: group.includes(':') ? A6 : A4,
      destination: group,
      destMac: mac,
      payload: Buffer.from(payload),
    });
  const MAC4 = [1, 0, 0x5e, 0x48, 1, 2];
  const MAC6 = [0x33, 0x33, 0xbe, 0xef, 0, 1];

  test('packet: the kernel joins and leaves groups, with the right MACs', () => {
    const link = PacketLink.open({ interface: 'lkm0' });
    const before = listed('lkm0');
    link.joinGroup(GROUP4);
    link.joinGroup(GROUP6);
    const joined = listed('lkm0');
    for (const text of [GROUP4, 'ff15::beef:1', '01:00:5e:48:01:02', '33:33:be:ef:00:01']) {
      expect(before).not.toContain(text);
      expect(joined).toContain(text);
    }
    link.leaveGroup(GROUP4);
    link.leaveGroup(GROUP4);
    expect(listed('lkm0')).not.toContain(GROUP4);
    link.close();
    expect(listed('lkm0')).toBe(before);
  });

  test('packet: frames to a group pass, and come back to a sender that is a member itself', async () => {
    const a = new Rig(PacketLink.open({ interface: 'lkm0' }));
    const b = new Rig(PacketLink.open({ interface: 'lkm1' }));
    b.link.joinGroup?.(GROUP4);
    const frames = [to(GROUP4, MAC4, 'one'), to(GROUP4, MAC4, 'two')];
    a.put(...frames);
    expect(a.link.send(0)).toBe(2);
    expect((await b.gather(2)).map(({ frame }) => frame)).toEqual(frames);
    expect(a.take()).toEqual([]);
    a.link.joinGroup?.(GROUP6);
    a.put(to(GROUP6, MAC6, 'six'), to(GROUP4, MAC4, 'three'));
    a.link.send(0);
    expect((await a.gather(1)).map(({ frame }) => frame)).toEqual([to(GROUP6, MAC6, 'six')]);
    a.link.close();
    b.link.close();
  });

  test.each([
    ['IPv4', GROUP4, MAC4],
    ['IPv6', GROUP6, MAC6],
  ])(
    'udp, %s: datagrams leave by the link’s own interface, and arrive at a socket of the group',
    async (_version, group, mac) => {
      const udp = new Rig(UdpLink.open({ interface: 'lkm0', addresses: [A4, 'fd00:95::1'] }));
      const far = new Rig(PacketLink.open({ interface: 'lkm1', addresses: ['10.95.0.2'] }));
      const frame = to(group, mac, 'hello');
      udp.put(frame);
      expect(udp.link.send(0)).toBe(1);
      const [heard] = await far.gather(1);
      expect([...(heard?.frame.subarray(0, 6) ?? [])]).toEqual(mac);
      expect(heard?.frame.subarray(-5).toString()).toBe('hello');
      udp.link.joinGroup?.(group);
      expect(listed('lkm0')).toContain(group.includes(':') ? 'ff15::beef:1' : group);
      udp.put(frame);
      udp.link.send(0);
      const [back] = await udp.gather(1);
      const addressesAt = group.includes(':') ? 22 : 26;
      const bytes = group.includes(':') ? 32 : 8;
      expect(back?.frame.subarray(addressesAt, addressesAt + bytes)).toEqual(
        frame.subarray(addressesAt, addressesAt + bytes),
      );
      expect(back?.frame.subarray(-5).toString()).toBe('hello');
      udp.link.leaveGroup?.(group);
      udp.put(frame);
      udp.link.send(0);
      expect(await udp.gather(1, 50)).toEqual([]);
      udp.link.close();
      far.link.close();
    },
  );

  test('udp: several links of one host may be members', () => {
    const [a, b] = ['10.95.0.1', 'fd00:95::1'].map((address) =>
      UdpLink.open({ interface: 'lkm0', addresses: [address] }),
    );
    for (const link of [a, b]) link?.joinGroup(GROUP4);
    for (const link of [a, b]) link?.close();
    expect(listed('lkm0')).not.toContain(GROUP4);
  });

  test.each(['239.200.1.2', 'ff15::beef:1'])('datagrams to %s pass from device to device', async (group) => {
    const open = (dev: string) => openDevice({ interface: dev, link: 'packet', memoryBytes: 16 * 2 ** 20 });
    const member = async (device: Device) => {
      const pd = await device.allocPd();
      const cq = await device.createCq();
      const qp = await pd.createQp({ type: 'UD', sendCq: cq });
      const mr = await pd.regMr(4096);
      await qp.activate({ qkey: 5 });
      return { device, pd, cq, qp, mr };
    };
    const [a, b] = [await member(await open('lkm0')), await member(await open('lkm1'))];
    await b.qp.attachMcast(group);
    expect(listed('lkm1')).toContain(group);
    b.qp.postRecv({ sgList: b.mr.sge(0, 2048) });
    const sgidIndex = a.device.gids.findIndex(({ address }) => address === (group.includes(':') ? 'fd00:95::1' : A4));
    const ah = await a.pd.createAh({ grh: { dgid: group, sgidIndex } });
    a.qp.postSend({ opcode: 'SEND', sgList: Buffer.from('all'), ah, remoteQpn: MULTICAST_QPN, remoteQkey: 5 });
    const wc = await b.cq.next(WAIT);
    expect(wc).toMatchObject({ ok: true, byteLen: 43, srcQp: a.qp.qpNum });
    expect(readGrh(b.mr.buffer)).toMatchObject({ destination: group, hopLimit: 64 });
    for (const { device } of [a, b]) await device.close({ force: true });
    expect(listed('lkm1')).not.toContain(group);
  });
});
