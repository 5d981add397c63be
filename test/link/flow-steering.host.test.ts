// Flow steering: the kernel gives a packet link only the packets to its own share of the queue pair numbers.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type ConnectionRequest, type Device, openDevice, throwIfFailed } from '../../src/index.js';
import { PacketLink } from '../../src/link/packet.js';
import { all, describeIf, netPrivilege, programPrivilege } from '../kit/privileges.js';
import { ALL, endOn } from '../verbs/pair.js';
import { sh } from './netns.js';
import { packetPair } from './packetpair.js';
import { type FrameFields, Rig, udpFrame } from './rig.js';
import './ownsockets.js';

const privilege = all(netPrivilege(), programPrivilege('ip'));
const SHARES = 16;
const MULTICAST_QPN = 0xffffff;

/** A packet: BTH with the destination queue pair, and 4 bytes for the ICRC. */
function packet(fields: FrameFields, destQp: number, checksum = 0): Buffer {
  const bth = Buffer.alloc(16, 0x5a);
  bth.writeUInt32BE((0xc0000000 | destQp) >>> 0, 4);
  const frame = udpFrame({ ...fields, payload: bth });
  frame.writeUInt16BE(checksum, frame.length - bth.length - 2);
  return frame;
}

describeIf(privilege, 'a packet link with flow steering', () => {
  const { v4, v6, keep } = packetPair('lks', 85);
  const steered = () => {
    const link = PacketLink.open({ interface: 'lks1', flowSteering: true });
    keep(link);
    return link;
  };
  const shareOf = ({ features }: PacketLink) => {
    expect(features.flowSteering?.mask).toBe(SHARES - 1);
    return features.flowSteering?.value as number;
  };

  test.each([
    ['IPv4', v4],
    ['IPv4, tagged', { ...v4, vlan: 5 }],
    ['IPv6', v6],
    ['IPv6, tagged', { ...v6, vlan: 5 }],
  ])('%s: a link receives its own packets, and those that name no queue pair', async (_name, fields) => {
    const link = steered();
    keep(PacketLink.open({ interface: 'lks0' }));
    const from = PacketLink.open({ interface: 'lks0' });
    keep(from);
    const [a, b] = [new Rig(from), new Rig(link)];
    const [own, other] = [0x123450 | shareOf(link), 0x123450 | (shareOf(link) ^ 1)];
    const heard = [
      packet(fields, own),
      packet(fields, 1),
      packet(fields, MULTICAST_QPN),
      // the kernel may have made it of packets to several queue pairs
      packet(fields, other, 0x1234),
      // the card counts what has no BTH
      udpFrame({ ...fields, payload: Buffer.alloc(7) }),
      packet(fields, own & 15),
    ];
    for (let at = 0; at < heard.length; at++) a.put(packet(fields, other), heard[at] as Buffer);
    a.link.send(0);
    expect((await b.gather(heard.length)).map(({ frame }) => frame)).toEqual(heard);
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(b.link.receive(0)).toBe(0);
  });

  test('each link has a share of the numbers, and the seventeenth is refused until one closes', () => {
    const links = Array.from({ length: SHARES }, steered);
    expect(new Set(links.map(shareOf)).size).toBe(SHARES);
    expect(steered).toThrow(
      'EADDRINUSE: other devices on lks1 have all 16 shares of the queue pair numbers: ' +
        'close one of them, or open this one without flowSteering',
    );
    const [, second] = links as [PacketLink, PacketLink];
    const share = shareOf(second);
    second.close();
    expect(shareOf(steered())).toBe(share);
  });
});

describe('a link without flow steering', () => {
  test.each(['udp', 'memory'] as const)('%s refuses the option', async (link) => {
    const opened = openDevice({ link, ...(link === 'udp' && { addresses: ['127.0.0.77'] }), flowSteering: true });
    await expect(opened).rejects.toThrow(`EOPNOTSUPP: the ${link} link has no flow steering: use the packet link`);
  });
});

describeIf(privilege, 'two devices of one address with flow steering, and a peer', () => {
  const devices: Device[] = [];

  beforeAll(async () => {
    sh(
      'ip link add steer0 type veth peer name steer1; ip link set steer0 up; ip link set steer1 up; ' +
        'ip addr add 10.86.0.1/24 dev steer0; ip addr add 10.86.0.2/24 dev steer1',
    );
    for (const [name, flowSteering, mode] of [
      ['steer0', true, 'inline'],
      ['steer0', true, 'worker'],
      ['steer1', false, 'inline'],
    ] as const)
      devices.push(await openDevice({ interface: name, link: 'packet', memoryBytes: 2 ** 25, flowSteering, mode }));
  });

  afterAll(async () => {
    for (const device of devices) await device.close({ force: true });
    sh('ip link del steer0');
  });

  test('neither link sees the packets of the other', async () => {
    const [one, other, peer] = devices as [Device, Device, Device];
    for (const device of [one, other]) {
      const [from, to] = [await endOn(peer), await endOn(device)];
      expect(to.qp.qpNum & (SHARES - 1)).toBe(device.query().link.features.flowSteering?.value);
      await from.qp.connect(to.qp.endpoint(), { access: ALL });
      await to.qp.connect(from.qp.endpoint(), { access: ALL });
      for (let i = 0; i < 10; i++) {
        from.mr.buffer.fill(i + 1, 0, 500);
        from.qp.postSend({
          opcode: 'RDMA_WRITE',
          sgList: from.mr.sge(0, 500),
          remoteAddr: to.mr.iova,
          rkey: to.mr.rkey,
        });
        throwIfFailed(await from.cq.next({ timeout: 10_000 }));
      }
      expect(to.mr.buffer.subarray(0, 500)).toEqual(Buffer.alloc(500, 10));
    }
    for (const device of [one, other]) expect(device.counters().drop_qpn).toBe(0);
    expect(one.counters()['link.rx_frames']).toBe(10);
  });

  test('rdma_cm finds both links', async () => {
    const [one, other, peer] = devices as [Device, Device, Device];
    for (const [i, device] of [one, other].entries()) {
      await using server = await device.listen({ port: 7100 + i });
      const connecting = peer.connect({ host: '10.86.0.1', port: 7100 + i });
      const request = await server.next();
      await using connection = await (request as ConnectionRequest).accept();
      await using client = await connecting;
      await client.send(Buffer.from('hello'));
      expect(String((await connection.receive())?.data)).toBe('hello');
    }
  });
});
