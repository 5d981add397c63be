import { execFileSync } from 'node:child_process';
import { constants } from 'node:os';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { RX_IP_ID_UNKNOWN } from '../../src/link/frames.js';
import { PacketLink } from '../../src/link/packet.js';
import { UdpLink } from '../../src/link/udp.js';
import { native } from '../../src/native.js';
import { all, describeIf, netPrivilege, programPrivilege, testIf } from '../kit/privileges.js';
import { openFds } from '../kit/processes.js';
import { PeerNamespace, sh, vethPair } from './netns.js';
import { ipChecksum, Rig, udpFrame } from './rig.js';

const A4 = '10.91.0.1';
const B4 = '10.91.0.2';
const A6 = 'fd00:91:0:0:0:0:0:1';
const B6 = 'fd00:91:0:0:0:0:0:2';
const SEEN = 66;
/** The kernel takes about 10 ms to close a packet socket, so only every tenth link of these is a packet link. */
const OPEN_CLOSE_CYCLES = 2000;

const privilege = all(netPrivilege(), programPrivilege('nsenter'), programPrivilege('ip'));

const settle = () => new Promise((resolve) => setTimeout(resolve, 20));

testIf(all(netPrivilege(), programPrivilege('setpriv')), 'without CAP_NET_RAW it says what to do', () => {
  const module = new URL('../../src/link/packet.ts', import.meta.url).href;
  const program = `const { PacketLink } = await import('${module}');
    try { PacketLink.open({ interface: 'lo' }); } catch (error) { console.log(error.message); }`;
  const without = ['--bounding-set=-net_raw', '--inh-caps=-net_raw'];
  const node = [process.execPath, '--import', 'tsx', '--input-type=module', '-e', program];
  expect(execFileSync('setpriv', [...without, ...node], { encoding: 'utf8' })).toMatch(
    /^EPERM: a packet socket on lo needs the capability CAP_NET_RAW: .*udp link/,
  );
});

describeIf(privilege, 'two packet links of one process, at both ends of a cable', () => {
  test('each link finds the other by its MAC, and all frames pass, in order', async () => {
    sh(
      'ip link add lkp0 mtu 4500 type veth peer name lkp1; ip link set lkp1 mtu 4500; ip link set lkp0 up; ip link set lkp1 up',
    );
    sh('ip addr add 10.94.0.1/24 dev lkp0; ip addr add 10.94.0.2/24 dev lkp1');
    const a = new Rig(PacketLink.open({ interface: 'lkp0' }));
    const b = new Rig(PacketLink.open({ interface: 'lkp1' }));
    const destMac = [...(await a.link.resolve('10.94.0.2', '10.94.0.1')).destMac];
    expect(destMac).toEqual([...b.link.interface.mac]);
    const got: number[] = [];
    for (let round = 0; round < 20; round++) {
      for (let i = 0; i < 64; i++) {
        const payload = Buffer.alloc(4152);
        payload.writeUInt32BE(round * 64 + i);
        a.put(udpFrame({ source: '10.94.0.1', destination: '10.94.0.2', destMac, payload }));
      }
      expect(a.link.send(0)).toBe(64);
      got.push(...(await b.gather(64)).map(({ frame }) => frame.readUInt32BE(42)));
    }
    expect(got).toEqual(Array.from({ length: 20 * 64 }, (_, i) => i));
    expect(b.link.counters()).toMatchObject({ rx_frames: 20 * 64, rx_dropped: 0, rx_truncated: 0, rx_errors: 0 });
    a.link.close();
    b.link.close();
    sh('ip link del lkp0');
  });
});

describeIf(privilege, 'an interface that drops each frame above a length', () => {
  const [ours, theirs] = ['10.95.0.1', '10.95.0.2'];
  let near: Rig;
  let away: Rig;
  let frame: (bytes: number) => Uint8Array;
  beforeAll(async () => {
    // veth drops frames that are longer than the MTU of its far end, and says that it has no room for them
    sh('ip link add lkl0 mtu 4000 type veth peer name lkl1; ip link set lkl1 mtu 600');
    sh(
      'ip link set lkl0 up; ip link set lkl1 up; ip addr add 10.95.0.1/24 dev lkl0; ip addr add 10.95.0.2/24 dev lkl1',
    );
    near = new Rig(PacketLink.open({ interface: 'lkl0' }));
    away = new Rig(PacketLink.open({ interface: 'lkl1' }));
    const destMac = [...(await near.link.resolve(theirs, ours)).destMac];
    frame = (bytes) => udpFrame({ source: ours, destination: theirs, destMac, payload: Buffer.alloc(bytes) });
  });
  afterAll(() => {
    near.link.close();
    away.link.close();
    sh('ip link del lkl0');
  });

  /** Sends the frames of the ring until it is empty. @returns the number of calls of `send` */
  async function sendAll(): Promise<number> {
    const end = performance.now() + 3000;
    for (let asked = 1; performance.now() < end; asked++) {
      near.link.send(0);
      if (near.tx.filled === 0) return asked;
      await new Promise(setImmediate);
    }
    throw new Error(`${near.tx.filled} frames are still in the ring`);
  }

  test('a frame that finds no room for long is lost, and those behind it pass', async () => {
    near.put(frame(1024), frame(100));
    expect(await sendAll()).toBeGreaterThan(1);
    expect(await away.gather(1)).toHaveLength(1);
    const { tx_errors, tx_last_errno, tx_busy } = near.link.counters();
    expect([tx_errors, tx_last_errno, Number(tx_busy) > 0]).toEqual([1, constants.errno.ENOBUFS, true]);
  });

  test('further frames of that length are lost at once', async () => {
    near.put(frame(1024), frame(100), frame(2000), frame(200), frame(1024));
    expect(await sendAll()).toBeLessThan(5);
    expect(await away.gather(2)).toHaveLength(2);
    expect(near.link.counters().tx_errors).toBe(4);
  });

  test('when one of them passes, the next one that finds no room waits again', async () => {
    sh('ip link set lkl1 mtu 3000');
    near.put(frame(1024), frame(3500));
    const busy = Number(near.link.counters().tx_busy);
    expect(await sendAll()).toBeGreaterThan(1);
    expect(near.link.counters()).toMatchObject({ tx_errors: 5 });
    expect(Number(near.link.counters().tx_busy)).toBeGreaterThan(busy);
  });
});

describeIf(privilege, 'over a veth pair, packet here', () => {
  let far: PeerNamespace;
  let rig: Rig;
  let destMac: number[];
  let srcMac: number[];

  beforeAll(async () => {
    far = await PeerNamespace.open('lkp', 91);
    rig = new Rig(PacketLink.open({ interface: far.near }));
    destMac = [...(await rig.link.resolve(B4, A4)).destMac];
    srcMac = [...rig.link.interface.mac];
    vethPair(['lkma', 'lkmb'], 181, 1500);
    // a promiscuous interface takes frames to all MAC addresses, as a sniffer beside the card makes it do
    sh('ip link set lkma promisc on');
  });

  afterAll(() => {
    sh('ip link del lkma');
    rig?.link.close();
    far?.close();
  });

  const v4 = (fields = {}) => udpFrame({ source: A4, destination: B4, destMac, srcMac, id: 0x1234, ...fields });
  const v6 = (fields = {}) => udpFrame({ source: A6, destination: B6, destMac, srcMac, ...fields });

  test('the link reads its interface’s attributes', () => {
    expect(rig.link.interface).toMatchObject({ name: far.near, mtu: 1500, up: true });
    expect(rig.link.interface.addresses).toEqual(expect.arrayContaining([A4, 'fd00:91::1']));
    expect(rig.link.features).toEqual({
      maxFrame: 1514,
      ipHeaderVisible: true,
      sourcePort: 0,
      ipIdentification: 'as written',
      gso: { packets: 64, bytes: 65469 },
      coalescedBytes: 65600,
      ...(native().crcMethods().length > 0 && { icrcOffload: true }),
    });
  });

  test('a neighbour is found by ARP and by neighbour discovery', async () => {
    const bytes = destMac.map((byte) => byte.toString(16).padStart(2, '0')).join(':');
    expect(far.sh(`ip -o link show ${far.far}`)).toContain(bytes);
    expect([...(await rig.link.resolve('fd00:91::2', 'fd00:91::1')).destMac]).toEqual(destMac);
    expect([...(await rig.link.resolve(A4, A4)).destMac]).toEqual(srcMac);
  });

  test('an unreachable host is refused with the reason', async () => {
    const quick = PacketLink.open({ interface: far.near, neighbourTimeoutMs: 100 });
    await expect(quick.resolve('10.91.0.77', A4)).rejects.toThrow(
      /EHOSTUNREACH: 10\.91\.0\.77 did not reply to ARP.*100 ms/,
    );
    await expect(quick.resolve('fd00:91::77', 'fd00:91::1')).rejects.toThrow(/did not reply to neighbour discovery/);
    await expect(quick.resolve('203.0.113.1', A4)).rejects.toThrow(/EHOSTUNREACH: there is no route.*203\.0\.113\.1/);
    sh(`ip route add 203.0.113.0/25 via ${B4}; ip route add 203.0.113.128/25 dev lo`);
    expect([...(await quick.resolve('203.0.113.1', A4)).destMac]).toEqual(destMac);
    await expect(quick.resolve('203.0.113.200', A4)).rejects.toThrow(/leaves by lo.*on lkpa/);
    sh(
      'ip route del 203.0.113.0/25; ip route del 203.0.113.128/25; ip route add 203.0.113.0/24 mtu 1400 hoplimit 7 via 10.91.0.88',
    );
    await expect(quick.resolve('203.0.113.1', A4)).rejects.toThrow(/10\.91\.0\.88, the next hop to 203\.0\.113\.1/);
    sh(`ip route change 203.0.113.0/24 mtu 1400 hoplimit 7 via ${B4}`);
    expect(await quick.resolve('203.0.113.1', A4)).toMatchObject({ pathMtu: 1400, hopLimit: 7 });
    quick.close();
  });

  test('close ends all look-ups', async () => {
    const link = PacketLink.open({ interface: far.near, neighbourTimeoutMs: 3000 });
    const unanswered = link.resolve('10.91.0.79', A4);
    link.close();
    await expect(unanswered).rejects.toThrow('ECANCELED: the link was closed');
  });

  test('frames to other MAC addresses are not received, nor those to a group that are no group packets', async () => {
    const near = new Rig(PacketLink.open({ interface: 'lkma', addresses: ['10.181.0.1'] }));
    const away = new Rig(PacketLink.open({ interface: 'lkmb', addresses: ['10.181.0.2'] }));
    near.link.joinGroup?.('239.1.2.3');
    near.link.joinGroup?.('ff15::98');
    const group6 = 'ff15:0:0:0:0:0:0:98';
    const own = [...near.link.interface.mac];
    const put = (destMac: number[], destination = '10.181.0.1', payload = Buffer.from('for others')) =>
      away.put(udpFrame({ source: destination.includes(':') ? B6 : '10.181.0.2', destination, destMac, payload }));
    put([2, 0, 0, 0, 0, 9]);
    put([255, 255, 255, 255, 255, 255]);
    put([1, 0, 0x5e, 1, 2, 3]);
    put([255, 255, 255, 255, 255, 255], '239.1.2.3');
    put([1, 0, 0x5e, 1, 2, 4], '239.1.2.3');
    put([0x33, 0x33, 0, 0, 0, 0x99], group6);
    put([0x33, 0x33, 0, 0, 0, 0x98], A6);
    put([1, 0, 0x5e, 1, 2, 3], '239.1.2.3', Buffer.from('to the group'));
    put([0x33, 0x33, 0, 0, 0, 0x98], group6, Buffer.from('to the group of IPv6'));
    put(own, '10.181.0.1', Buffer.from('to us'));
    away.link.send(0);
    const heard = (await near.gather(3)).map(({ frame }) => frame.toString('latin1'));
    expect(heard.map((text) => text.slice(text.indexOf('to ')))).toEqual([
      'to the group',
      'to the group of IPv6',
      'to us',
    ]);
    near.link.close();
    away.link.close();
  });

  test('the kernel answers RoCE by ICMP, unless a packet link holds the port', async () => {
    expect((await far.linkPeer('knock', A4)).first).toBe('quiet');
    expect((await far.linkPeer('knock', 'fd00:91::1')).first).toBe('quiet');
    sh(`ip addr add 10.91.0.50/24 dev ${far.near}`);
    expect((await far.linkPeer('knock', '10.91.0.50')).first).toBe('refused');
    expect(rig.link.counters().port_not_held).toBe(0);
  });

  test('frames arrive as they were written, with their tag, and nothing but RoCE arrives', async () => {
    const peer = await far.linkPeer('echo', 'packet', far.far, B4, 'fd00:91::2');
    const frames = [v4(), v4({ trafficClass: 0x89 }), v6({ trafficClass: 0x8a }), v4({ vlan: 5 })];
    const answers = await rig.exchange(...frames);
    expect(answers).toHaveLength(4);
    answers.forEach(({ frame, options }, i) => {
      expect(options).toBe(0);
      const sent = frames[i] as Buffer;
      const seen = frame.subarray(-SEEN);
      expect(seen.subarray(0, Math.min(62, sent.length))).toEqual(sent.subarray(0, 62));
      if (i !== 2) expect(frame.readUInt16BE(18)).toBe(4242);
    });
    rig.put(v4({ destinationPort: 4792 }), v4({ payload: Buffer.from('last') }));
    rig.link.send(0);
    expect((await rig.gather(2, 300)).map(({ frame }) => frame.subarray(42, 46).toString())).toEqual(['last']);
    await peer.stop();
  });

  test('frames of a udp link have identification 0 and DF, and keep traffic class and hop limit', async () => {
    const peer = await far.linkPeer('echo', 'udp', far.far, B4, 'fd00:91::2');
    const answers = await rig.exchange(
      v4({ trafficClass: 0x8a, ttl: 9 }),
      v4(),
      v4(),
      v6({ trafficClass: 0x8b, ttl: 9 }),
    );
    expect(answers).toHaveLength(4);
    const byFamily = (type: number) =>
      answers.filter(({ frame }) => frame.readUInt16BE(12) === type).map((a) => a.frame);
    const [four, six] = [byFamily(0x0800), byFamily(0x86dd)];
    expect(four.map((frame) => frame.readUInt16BE(18))).toEqual([0, 0, 0]);
    expect(four.map((frame) => frame.readUInt16BE(20))).toEqual([0x4000, 0x4000, 0x4000]);
    const [first] = four as [Buffer];
    expect([first[15], first[22]]).toEqual([0x8a, 33]);
    expect([first.readUInt16BE(34), first.readUInt16BE(36)]).toEqual([4791, 4791]);
    // The headers as the udp link wrote them.
    const seen = first.subarray(-SEEN);
    expect(seen.readUInt32LE(62)).toBe(RX_IP_ID_UNKNOWN);
    expect(seen.subarray(14, 34)).toEqual(v4({ trafficClass: 0x8a, ttl: 9, id: 0 }).subarray(14, 34));
    expect(ipChecksum(seen.subarray(14, 34))).toBe(0);
    expect(seen.subarray(34, 42)).toEqual(v4().subarray(34, 42));
    expect(six).toHaveLength(1);
    const [only] = six as [Buffer];
    expect((only.readUInt16BE(14) >> 4) & 0xff).toBe(0x8b);
    expect([only[20], only[21]]).toEqual([17, 33]);
    expect(only.subarray(-SEEN).readUInt32LE(62)).toBe(0);
    expect(only.subarray(-SEEN).subarray(14, 62)).toEqual(v6({ trafficClass: 0x8b, ttl: 9 }).subarray(14, 62));
    await peer.stop();
  });

  test('random frames are carried or counted, and the next good frame passes', async () => {
    const peer = await far.linkPeer('echo', 'packet', far.far, B4);
    const before = rig.link.counters();
    let put = 0;
    for (let length = 1; length < 1600; length += 53, put++) {
      const frame = Buffer.alloc(length, length);
      frame.set(destMac.slice(0, length));
      rig.put(frame);
      rig.link.send(0);
    }
    rig.put(v4({ payload: Buffer.alloc(3000) }));
    // A descriptor beyond the end of the memory.
    rig.put(v4());
    rig.tx.describe(rig.tx.producer - 1, 0xffffffff, 0);
    expect(rig.link.send(0)).toBe(2);
    const after = rig.link.counters();
    const difference = (name: string) => (after[name] ?? 0) - (before[name] ?? 0);
    expect(difference('tx_invalid')).toBe(2); // one byte, and the descriptor
    expect(difference('tx_frames') + difference('tx_too_long') + difference('tx_errors') + 2).toBe(put + 2);
    expect(await rig.exchange(v4())).toHaveLength(1);
    await peer.stop();
  });

  test('frames to the link’s own address come back', () => {
    rig.put(v4({ destMac: srcMac }));
    expect(rig.link.send(0)).toBe(1);
    expect(rig.take().map(({ frame }) => frame)).toEqual([v4({ destMac: srcMac })]);
  });

  test('a frame larger than a slot is counted, and does not disturb its neighbours', async () => {
    const small = new Rig(PacketLink.open({ interface: far.near }), { slotBytes: 256 });
    const peer = await far.linkPeer('echo', 'packet', far.far, B4);
    small.put(v4());
    const big = v4({ payload: Buffer.alloc(160) });
    small.put(big, v4({ payload: Buffer.from('after') }));
    small.link.send(0);
    const answers = await small.gather(2);
    expect(answers.map(({ frame }) => frame.subarray(42, 47).toString())).toEqual(['hello', 'after']);
    expect(small.link.counters().rx_truncated).toBe(1);
    small.link.close();
    rig.link.receive(0);
    rig.take();
    await peer.stop();
  });

  test('a link survives that its interface goes down', async () => {
    const peer = await far.linkPeer('echo', 'packet', far.far, B4);
    sh(`ip link set ${far.near} down`);
    rig.put(v4());
    expect(rig.link.send(0)).toBe(1);
    rig.link.receive(0);
    expect(rig.link.counters().tx_errors).toBeGreaterThan(0);
    sh(`ip link set ${far.near} up`);
    await settle();
    expect(await rig.exchange(v4())).toHaveLength(1);
    await peer.stop();
  });

  test('opening and closing, with frames in the ring and a wait running, leaks nothing', async () => {
    await settle();
    const before = openFds();
    for (let i = 0; i < OPEN_CLOSE_CYCLES; i++) {
      const isUdp = i % 10 !== 0;
      const link = isUdp
        ? UdpLink.open({ addresses: ['10.91.0.50'] })
        : PacketLink.open({ interface: far.near, bufferBytes: 65536 });
      if (i % 10 < 3) {
        const one = new Rig(link, { slots: 4, slotBytes: 2048, memoryBytes: 65536 });
        one.put(v4());
        one.link.wait(0, false, () => {});
      }
      link.close();
      link.close();
      if (i % 100 === 99) await settle();
    }
    await settle();
    expect(openFds()).toBeLessThanOrEqual(before);
  });
});
