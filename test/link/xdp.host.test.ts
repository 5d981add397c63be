// The xdp link over veth pairs: which packets it receives, which go to the kernel, and which failures it survives.
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { PacketLink } from '../../src/link/packet.js';
import { attachedProgram } from '../../src/link/xdp/features.js';
import { XdpLink, type XdpLinkOptions } from '../../src/link/xdp/link.js';
import { native } from '../../src/native.js';
import { all, describeIf, programPrivilege, xdpPrivilege } from '../kit/privileges.js';
import { openFds } from '../kit/processes.js';
import { PeerNamespace, sh, vethPair } from './netns.js';
import { type Arrived, Rig, udpFrame } from './rig.js';

const A4 = '10.191.0.1';
const B4 = '10.191.0.2';
const A6 = 'fd00:191:0:0:0:0:0:1';
const B6 = 'fd00:191:0:0:0:0:0:2';
/** Bytes that the echo appends: 62 bytes as received, 4 bytes of options. */
const SEEN = 66;
/** The kernel takes about 20 ms to release a queue. */
const OPEN_CLOSE_CYCLES = 10;

const privilege = all(xdpPrivilege(), programPrivilege('nsenter'), programPrivilege('ip'));
const settle = (ms = 20) => new Promise((resolve) => setTimeout(resolve, ms));

describeIf(privilege, 'over a veth pair, xdp here', () => {
  let far: PeerNamespace;
  let rig: Rig;
  let destMac: number[];
  let srcMac: number[];

  const open = (options: XdpLinkOptions = {}) => XdpLink.open({ interface: far.near, ...options });

  beforeAll(async () => {
    far = await PeerNamespace.open('lkx', 191);
    sh(`ip addr add 10.191.0.50/24 dev ${far.near}`);
    rig = new Rig(open({ addresses: [A4, 'fd00:191::1'] }));
    destMac = [...(await rig.link.resolve(B4, A4)).destMac];
    srcMac = [...rig.link.interface.mac];
  });

  afterAll(() => {
    rig?.link.close();
    far?.close();
  });

  const v4 = (fields = {}) => udpFrame({ source: A4, destination: B4, destMac, srcMac, id: 0x1234, ...fields });
  const v6 = (fields = {}) => udpFrame({ source: A6, destination: B6, destMac, srcMac, ...fields });

  test('the link reads its interface’s attributes, and how the kernel moves its frames', () => {
    expect(rig.link.interface).toMatchObject({ name: far.near, mtu: 1500, up: true });
    expect(rig.link.features).toEqual({
      maxFrame: 1514,
      ipHeaderVisible: true,
      sourcePort: 0,
      ipIdentification: 'as written',
      ...(native().crcMethods().length > 0 && { icrcOffload: true }),
    });
    expect(rig.link.notes).toEqual(['XDP in native mode; copy mode; queue 0; need-wakeup']);
    expect(attachedProgram(rig.link.interface.index)).toMatchObject({ mode: 'native' });
  });

  test.each(['packet', 'xdp'])('frames go to a %s link and come back, as they were written', async (kind) => {
    const peer = await far.linkPeer('echo', kind, far.far, B4, 'fd00:191::2');
    const frames = [v4(), v4({ trafficClass: 0x89 }), v6({ trafficClass: 0x8a }), v4({ vlan: 5 }), v6({ vlan: 4094 })];
    const answers = await rig.exchange(...frames);
    expect(answers).toHaveLength(frames.length);
    answers.forEach(({ frame, options }, i) => {
      expect(options).toBe(0);
      const sent = frames[i] as Buffer;
      expect(frame.subarray(-SEEN).subarray(0, Math.min(62, sent.length))).toEqual(sent.subarray(0, 62));
    });
    await peer.stop();
  });

  test('a udp link at the far end exchanges frames with it', async () => {
    const peer = await far.linkPeer('echo', 'udp', far.far, B4, 'fd00:191::2');
    const answers = await rig.exchange(v4({ trafficClass: 0x8a, ttl: 9 }), v6({ trafficClass: 0x8b, ttl: 9 }));
    expect(answers.map(({ frame }) => frame.subarray(-SEEN)[22])).toContain(9);
    expect(answers).toHaveLength(2);
    await peer.stop();
  });

  test('other addresses, other ports and fragments go on to the kernel', async () => {
    expect((await far.linkPeer('knock', A4)).first).toBe('quiet');
    expect((await far.linkPeer('knock', 'fd00:191::1')).first).toBe('quiet');
    expect((await far.linkPeer('knock', '10.191.0.50')).first).toBe('refused');
    // Longer than the MTU: the kernel reassembles the fragments and finds no socket at the port.
    expect((await far.linkPeer('knock', A4, '3000')).first).toBe('refused');
    const other = createSocket('udp4').bind(4792, A4);
    await once(other, 'listening');
    const received = once(other, 'message');
    far.sh(`${process.execPath} -e "require('dgram').createSocket('udp4').send('x', 4792, '${A4}', process.exit)"`);
    expect(String((await received)[0])).toBe('x');
    other.close();
  });

  test('ARP, neighbour discovery and TCP work in the kernel as before', async () => {
    far.sh(`ip neigh flush dev ${far.far}`);
    const server = createServer((socket) => socket.end('hello')).listen(7001, '::');
    await once(server, 'listening');
    for (const address of [A4, 'fd00:191::1']) {
      const program = `require('net').connect(7001, '${address}').on('connect', () => { console.log('there'); process.exit(); })`;
      expect(far.sh(`${process.execPath} -e "${program}"`)).toBe('there\n');
    }
    server.close();
    expect(far.sh(`ip neigh show dev ${far.far} ${A4}`)).toContain('lladdr');
    sh(`ip neigh flush dev ${far.near}`);
    expect([...(await rig.link.resolve(B4, A4)).destMac]).toEqual(destMac);
  });

  test('an address that is added is served, and one that is removed is the kernel’s again', async () => {
    rig.link.close();
    const whole = new Rig(open());
    let changes = 0;
    whole.link.watchInterface?.(() => changes++);
    const knock = async (address: string) => (await far.linkPeer('knock', address)).first;
    expect(await knock('10.191.0.50')).toBe('quiet');
    sh(`ip addr add 10.191.0.60/24 dev ${far.near}; ip addr del 10.191.0.50/24 dev ${far.near}`);
    while (whole.link.interface.addresses.includes('10.191.0.50')) await settle(5);
    expect(changes).toBeGreaterThan(0);
    expect(await knock('10.191.0.60')).toBe('quiet');
    sh(`ip addr add 10.191.0.50/24 dev ${far.near}; ip addr del 10.191.0.60/24 dev ${far.near}`);
    while (whole.link.interface.addresses.includes('10.191.0.60')) await settle(5);
    expect(await whole.gather(2)).toHaveLength(2);
    whole.link.close();
    expect(await knock('10.191.0.50')).toBe('refused');
    rig = new Rig(open({ addresses: [A4, 'fd00:191::1'] }));
  });

  test('random frames are carried or counted, and the next good frame passes', async () => {
    const peer = await far.linkPeer('echo', 'packet', far.far, B4);
    const before = rig.link.counters();
    let put = 0;
    for (let length = 1; length < 1500; length += 53, put++) {
      const frame = Buffer.alloc(length, length);
      frame.set(destMac.slice(0, length));
      rig.put(frame);
      rig.link.send(0);
    }
    rig.put(v4({ payload: Buffer.alloc(3000) }), v4(), v4());
    // A descriptor longer than its slot, and one that points outside the UMEM.
    rig.tx.describe(rig.tx.producer - 2, 0xffffffff, 0);
    const stray = rig.tx.producer - 1;
    const addr = rig.tx.addr(stray);
    rig.tx.setAddr(stray, 0xfffff000);
    expect(rig.link.send(0)).toBe(3);
    rig.tx.setAddr(stray, addr);
    const after = rig.link.counters();
    const difference = (name: string) => (after[name] ?? 0) - (before[name] ?? 0);
    expect(difference('tx_invalid')).toBe(3); // one byte, and the descriptors
    expect(difference('tx_too_long')).toBe(1);
    expect(difference('tx_frames')).toBe(put - 1);
    expect(await rig.exchange(v4())).toHaveLength(1);
    await peer.stop();
  });

  test('frames to other MAC addresses stay with the kernel, also after the interface gets another one', async () => {
    vethPair(['lkxm', 'lkxn'], 182, 1500);
    onTestFinished(() => void sh('ip link del lkxm'));
    const near = new Rig(XdpLink.open({ interface: 'lkxm' }));
    const away = new Rig(PacketLink.open({ interface: 'lkxn' }));
    near.link.watchInterface?.(() => {});
    const [own, another, all] = [[...near.link.interface.mac], [2, 0, 0, 0, 0x19, 2], Array(6).fill(255)];
    const hears = async (...macs: number[][]) => {
      const fields = { source: '10.182.0.2', destination: '10.182.0.1' };
      away.put(...macs.map((mac) => udpFrame({ ...fields, destMac: mac, payload: Buffer.from(mac) })));
      away.link.send(0);
      return (await near.gather(1)).map(({ frame }) => [...frame.subarray(42, 48)]);
    };
    expect(await hears(another, all, [1, 0, 0x5e, 0, 0, 1], own)).toEqual([own]);
    sh(`ip link set lkxm address ${another.map((byte) => byte.toString(16)).join(':')}`);
    while (!Buffer.from(near.link.interface.mac).equals(Uint8Array.from(another))) await settle(5);
    expect(await hears(own, all, another)).toEqual([another]);
    near.link.close();
    away.link.close();
  });

  test('frames to the link’s own address come back', () => {
    rig.put(v4({ destMac: srcMac }));
    expect(rig.link.send(0)).toBe(1);
    expect(rig.take().map(({ frame }) => frame)).toEqual([v4({ destMac: srcMac })]);
  });

  test('more frames than the rings hold: none is lost, and none comes twice', async () => {
    const peer = await far.linkPeer('echo', 'packet', far.far, B4);
    const got: number[] = [];
    for (let i = 0; i < 40 * 64; i += 64) {
      const numbers = Array.from({ length: 64 }, (_, k) => Buffer.from(Uint32Array.of(i + k).buffer));
      got.push(
        ...(await rig.exchange(...numbers.map((payload) => v4({ payload })))).map(({ frame }) =>
          frame.readUInt32LE(42),
        ),
      );
    }
    expect(got).toEqual(Array.from({ length: 40 * 64 }, (_, i) => i));
    expect(rig.link.counters()).toMatchObject({ rx_dropped: 0, rx_truncated: 0, rx_errors: 0, tx_errors: 0 });
    await peer.stop();
  });

  test('a link survives that its interface goes down', async () => {
    const peer = await far.linkPeer('echo', 'packet', far.far, B4);
    sh(`ip link set ${far.near} down`);
    rig.put(v4());
    expect(rig.link.send(0)).toBe(1);
    rig.put(v4());
    expect(rig.link.send(0)).toBe(1);
    rig.link.receive(0);
    expect(rig.link.counters().tx_errors).toBeGreaterThan(0);
    sh(`ip link set ${far.near} up`);
    await settle();
    await rig.exchange(v4());
    // Frames that were sent before may return only now.
    const again = Buffer.from('up again');
    const isAgain = (arrived: Arrived) => arrived.frame.includes(again);
    const arrived = await rig.exchange(v4({ payload: again }));
    if (!arrived.some(isAgain)) arrived.push(...(await rig.gather(1)));
    expect(arrived.filter(isAgain)).toHaveLength(1);
    await peer.stop();
  });

  test('opened and closed again and again, it leaks nothing and leaves the memory to the card', async () => {
    rig.link.close();
    await settle();
    const before = openFds();
    for (let i = 0; i < OPEN_CLOSE_CYCLES; i++) {
      const one = new Rig(open());
      one.put(v4());
      one.link.send(0);
      one.link.wait(0, false, () => {});
      one.link.close();
      one.link.close();
      expect(one.link.send(0) + one.link.receive(0)).toBe(0);
      one.memory.fill(i);
      expect(one.memory.every((byte) => byte === i)).toBe(true);
    }
    await settle();
    expect(openFds()).toBeLessThanOrEqual(before);
    expect(attachedProgram(rig.link.interface.index)).toBeUndefined();
    rig = new Rig(open());
  });
});
