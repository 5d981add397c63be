/**
 * Unreliable datagrams: to any queue pair, one packet each, with a GRH of 40 bytes in front. Our addresses are 10.0.0.1
 * and fd00::1, the port's MTU is 1024, our Q_Key is QKEY; our PSNs start at 1000.
 */
import { describe, expect, test } from 'vitest';
import { type Base, datagram, encodeFrame, type Flow, request } from '../../src/probe/packet/packets.js';
import { type Conversation, datagrams, PING, pattern } from '../kit/conversation.js';
import { attach, createAh, detach, MULTICAST_QPN, QKEY } from '../kit/datagrams.js';
import { RigQp } from '../kit/rig.js';

const GRH = 40;
const SRC = 0x22;
const hello = (o: Partial<Base> & { qkey?: number; srcQp?: number } = {}) =>
  datagram.sendOnly({ psn: 100, qkey: QKEY, srcQp: SRC, payload: PING, ...o });
const V6: Partial<Flow> = { srcIp: 'fd00::2', dstIp: 'fd00::1', trafficClass: 0x68, flowLabel: 0x12345, hopLimit: 7 };
const GROUP = '239.77.0.1';
const GROUP6 = 'ff15::77:1';
const TO_GROUP: Partial<Flow> = { destQp: MULTICAST_QPN, dstIp: GROUP, dstMac: '01:00:5e:4d:00:01' };

describe('a UD queue pair receives', () => {
  test('over IPv4: 20 unused bytes, the IPv4 header as it came, the payload', async () => {
    const c = await datagrams({ receives: 1, flow: { trafficClass: 0x20, ipId: 0xabcd, hopLimit: 9 } });
    const header = encodeFrame(c.there, hello()).slice(14, 34);
    c.buffer.bytes.fill(0xee);
    c.in(0, hello())
      .silent()
      .wc({ wrId: 1, opcode: 'RECV', byteLen: GRH + 4, flags: 1, srcQpn: SRC, imm: 0 })
      .holds(c.buffer, 0, new Uint8Array(20))
      .holds(c.buffer, 20, header)
      .holds(c.buffer, GRH, Uint8Array.of(...PING, 0xee));
  });

  test('over IPv6: its header, the payload, and the flag of IPv6', async () => {
    const c = await datagrams({ receives: 1, flow: V6 });
    const header = encodeFrame(c.there, hello()).slice(14, 54);
    c.in(0, hello())
      .wc({ wrId: 1, byteLen: GRH + 4, flags: 129, srcQpn: SRC })
      .holds(c.buffer, 0, header)
      .holds(c.buffer, GRH, PING);
  });

  test('immediate data, a padded and an empty message', async () => {
    const c = await datagrams({ receives: 3 });
    c.in(0, datagram.sendOnlyImm({ psn: 1, qkey: QKEY, srcQp: 0xabcdef, payload: pattern(5), imm: 0x11223344 }))
      .wc({ byteLen: GRH + 5, flags: 3, imm: 0x44332211, srcQpn: 0xabcdef })
      .holds(c.buffer, GRH, pattern(5))
      .in(1, hello({ payload: new Uint8Array(0) }))
      .wc({ byteLen: GRH, flags: 1 })
      .in(2, hello({ payload: pattern(1024) }))
      .wc({ byteLen: GRH + 1024 });
  });

  test('any PSN, and ignores AckReq', async () => {
    const c = await datagrams({ receives: 3 });
    c.in(0, hello({ psn: 7 }), hello({ psn: 7, ackReq: true }), hello({ psn: 3 }))
      .silent()
      .wc({ wrId: 1 }, { wrId: 2 }, { wrId: 3 });
  });

  test('from any sender', async () => {
    const c = await datagrams({ receives: 2 });
    const from = (srcIp: string) => encodeFrame({ ...c.there, srcIp, srcMac: '02:00:00:00:00:77' }, hello());
    c.frames(0, from('10.0.0.9'), from('192.168.1.1')).wc({ wrId: 1 }, { wrId: 2 });
  });

  test('into several SGEs, one after the other, the 40 bytes too', async () => {
    const c = await datagrams();
    expect(c.qp.recv(1, [c.buffer.piece(0, 30), c.buffer.piece(1000, 12), c.buffer.piece(2000, 100)])).toBe('OK');
    const header = encodeFrame(c.there, hello()).slice(14, 34);
    c.in(0, hello())
      .wc({ wrId: 1, byteLen: GRH + 4 })
      .holds(c.buffer, 20, header.slice(0, 10))
      .holds(c.buffer, 1000, Uint8Array.of(...header.slice(10), ...PING.slice(0, 2)))
      .holds(c.buffer, 2000, PING.slice(2));
  });

  test.each<[string, string, (c: Conversation) => Uint8Array]>([
    ['a wrong Q_Key', 'drop_qkey', (c) => encodeFrame(c.there, hello({ qkey: QKEY + 1 }))],
    [
      'a Q_Key that differs in its high bit',
      'drop_qkey',
      (c) => encodeFrame(c.there, hello({ qkey: (QKEY | 0x80000000) >>> 0 })),
    ],
    [
      'another address than ours',
      'drop_destination_address',
      (c) => encodeFrame({ ...c.there, dstIp: '10.0.0.3' }, hello()),
    ],
    [
      'another IPv6 address than ours',
      'drop_destination_address',
      (c) => encodeFrame({ ...c.there, ...V6, dstIp: 'fd00::3' }, hello()),
    ],
    ['a VLAN into which no path leads', 'drop_vlan', (c) => encodeFrame({ ...c.there, vlan: 7 }, hello())],
    [
      'a group, though not as one',
      'drop_destination_address',
      (c) => encodeFrame({ ...c.there, dstIp: GROUP }, hello()),
    ],
    ['another partition', 'drop_pkey', (c) => encodeFrame({ ...c.there, pkey: 0x8001 }, hello())],
    ['a packet of RC', 'drop_qp_type', (c) => encodeFrame(c.there, request.sendOnly({ psn: 100, payload: PING }))],
    ['a wrong ICRC', 'drop_icrc', (c) => encodeFrame(c.there, hello(), { icrc: 1 })],
    ['more than fits the receive', 'drop_receive_length', (c) => encodeFrame(c.there, hello({ payload: pattern(61) }))],
  ])('nothing from %s: it is dropped without a completion', async (_what, counter, make) => {
    const c = await datagrams();
    c.recv(1, 0, GRH + 60)
      .frames(0, make(c))
      .silent()
      .wc()
      .counts({ [counter]: 1, rcvd_pkts: 0 })
      .in(1, hello({ payload: pattern(60) }))
      .wc({ wrId: 1, byteLen: GRH + 60 })
      .state('RTS');
  });

  test('nothing without a receive: the datagram is dropped', async () => {
    const c = await datagrams();
    c.in(0, hello()).silent().counts({ drop_no_receive: 1 }).recv(1, 0, 100).in(1, hello()).wc({ wrId: 1 });
  });

  test('nothing without a receive, before the ICRC is computed, so that a flood costs little', async () => {
    const c = await datagrams();
    c.frames(0, encodeFrame(c.there, hello(), { icrc: 0 }))
      .silent()
      .counts({ drop_no_receive: 1, drop_icrc: 0 });
  });

  test('nothing into a receive with less room than the 40 bytes', async () => {
    const c = await datagrams();
    c.recv(1, 0, 39)
      .in(0, hello({ payload: new Uint8Array(0) }))
      .wc()
      .counts({ drop_receive_length: 1 });
  });

  test('into memory that is closed: the queue pair fails', async () => {
    const c = await datagrams({ receives: 2 });
    c.rig.x.mrDereg(c.buffer.mr);
    c.in(0, hello()).wc({ wrId: 1, status: 'LOC_PROT_ERR' }, { wrId: 2, status: 'WR_FLUSH_ERR' }).state('ERR');
  });

  test('in RTR, without an event, and not in INIT and ERR', async () => {
    const c = await datagrams({ receives: 2, until: 'INIT' });
    c.in(0, hello()).counts({ drop_qp_state: 1 });
    expect(c.qp.modify({ STATE: 2 })).toBe('OK');
    c.in(1, hello()).wc({ wrId: 1 }).events();
    expect(c.qp.modify({ STATE: 6 })).toBe('OK');
    c.in(2, hello()).wc({ wrId: 2, status: 'WR_FLUSH_ERR' }).counts({ drop_qp_state: 2 });
  });
});

describe('a UD queue pair sends', () => {
  const to = (c: Conversation, change = {}) => ({ ah: createAh(c.qp), qpn: SRC, qkey: 0x77, ...change });

  test('one packet, which is complete when it has left', async () => {
    const c = await datagrams();
    const payload = c.buffer.bytes.slice(0, 5);
    c.post(0, { wrId: 1, opcode: 'SEND', pieces: [c.buffer.piece(0, 5)], to: to(c), solicited: true })
      .out(datagram.sendOnly({ psn: 1000, qkey: 0x77, srcQp: c.qp.qpn, payload, solicited: true }))
      .wc({ wrId: 1, opcode: 'SEND', byteLen: 5 })
      .post(1, { wrId: 2, opcode: 'SEND_WITH_IMM', inline: PING, to: to(c), imm: 0x01000000 })
      .out(datagram.sendOnlyImm({ psn: 1001, qkey: 0x77, srcQp: c.qp.qpn, payload: PING, imm: 1 }))
      .wc({ wrId: 2, byteLen: 4 })
      .post(2, { opcode: 'SEND', to: to(c) })
      .out(datagram.sendOnly({ psn: 1002, qkey: 0x77, srcQp: c.qp.qpn }))
      .wc({ byteLen: 0 });
  });

  test('each datagram to its own peer, by its own path', async () => {
    const c = await datagrams();
    const ip = (text: number[]) => createAh(c.qp, { remoteIp: text, remoteMac: [2, 0, 0, 0, 0, text[3] as number] });
    const far = [ip([10, 0, 0, 8]), ip([10, 0, 0, 9])];
    c.post(0, ...far.map((ah, i) => ({ wrId: i, opcode: 'SEND', to: { ah, qpn: 0x80 + i, qkey: i } })));
    const sent = c.take();
    const flows = [8, 9].map((n, i) => ({
      ...c.back,
      dstIp: `10.0.0.${n}`,
      dstMac: `02:00:00:00:00:0${n}`,
      destQp: 0x80 + i,
    }));
    expect(sent).toEqual(
      flows.map((flow, i) => encodeFrame(flow, datagram.sendOnly({ psn: 1000 + i, qkey: i, srcQp: c.qp.qpn }))),
    );
    c.wc({ wrId: 0 }, { wrId: 1 });
  });

  test('a burst for one program of a host: neither for two of them, nor to queue pair 1', async () => {
    const c = await datagrams();
    c.rig.x.setLink(0, 0, 64, 65000);
    const ah = createAh(c.qp);
    const qpns = [0x20011, 0x20011, 0x2ffff, 0x30011, 0x30012, 1, 1, 0x11];
    for (const qpn of qpns) c.qp.send({ opcode: 'SEND', to: { ah, qpn, qkey: QKEY } });
    const continues = c.rig.sent(0).map(({ options }) => (options & c.rig.x.TxOption.CONTINUES_BURST) !== 0);
    expect(continues).toEqual([false, true, true, false, true, false, false, false]);
    c.wc(...qpns.map(() => ({})));
  });

  test('its own Q_Key for one with the high bit', async () => {
    const c = await datagrams();
    c.post(0, { opcode: 'SEND', to: to(c, { qkey: 0x80010000 }) })
      .out(datagram.sendOnly({ psn: 1000, qkey: QKEY, srcQp: c.qp.qpn }))
      .wc({});
  });

  test('no more than the MTU of the port: posting is refused', async () => {
    const c = await datagrams();
    const wr = (length: number) => ({ opcode: 'SEND', pieces: [c.buffer.piece(0, length)], to: to(c) });
    expect(c.qp.send(wr(1025))).toBe('EMSGSIZE');
    c.at(0).silent().wc().post(1, wr(1024));
    expect(c.take()).toHaveLength(1);
    c.wc({ byteLen: 1024 });
  });

  test('nothing without an address handle, or with that of another domain', async () => {
    const c = await datagrams();
    expect(c.qp.send({ opcode: 'SEND' })).toBe('EINVAL');
    const ah = createAh(c.qp, {}, c.rig.x.pdAlloc());
    expect(c.qp.send({ opcode: 'SEND', to: to(c, { ah }) })).toBe('EINVAL');
  });

  test.each([
    'SEND_WITH_INV',
    'RDMA_WRITE',
    'RDMA_WRITE_WITH_IMM',
    'RDMA_READ',
    'ATOMIC_CMP_AND_SWP',
    'ATOMIC_FETCH_AND_ADD',
    'ATOMIC_WRITE',
    'FLUSH',
    'LOCAL_INV',
    'REG_MR',
    'BIND_MW',
  ])('no %s', async (opcode) => {
    const c = await datagrams();
    expect(c.qp.send({ opcode, to: to(c) })).toBe('EOPNOTSUPP');
    expect(c.qp.attribute('SQ_PENDING')).toBe(0);
  });

  test('from wrong memory: it is in SQE, and modify leads back', async () => {
    const c = await datagrams({ receives: 1 });
    const bad = { ptr: c.buffer.ptr, length: 4, lkey: c.buffer.lkey ^ 1 };
    c.post(0, { wrId: 1, opcode: 'SEND', pieces: [bad], to: to(c) }, { wrId: 2, opcode: 'SEND', to: to(c) })
      .silent()
      .wc({ wrId: 1, status: 'LOC_PROT_ERR' }, { wrId: 2, status: 'WR_FLUSH_ERR' })
      .state('SQE')
      .in(1, hello())
      .wc({ wrId: 1, opcode: 'RECV' });
    expect(c.qp.modify({ STATE: 3, CUR_STATE: 5, QKEY: 9 })).toBe('OK');
    c.post(2, { opcode: 'SEND', to: to(c, { qkey: 0xffffffff }) })
      .out(datagram.sendOnly({ psn: 1000, qkey: 9, srcQp: c.qp.qpn }))
      .wc({});
  });

  test('nothing new in SQD', async () => {
    const c = await datagrams();
    expect(c.qp.modify({ STATE: 4, EN_SQD_ASYNC_NOTIFY: 1 })).toBe('OK');
    c.events('SQ_DRAINED')
      .post(0, { opcode: 'SEND', to: to(c) })
      .silent()
      .wc();
    expect(c.qp.modify({ STATE: 4, QKEY: 5, PKEY_INDEX: 0 })).toBe('OK');
    expect(c.qp.modify({ STATE: 3 })).toBe('OK');
    c.at(1)
      .out(datagram.sendOnly({ psn: 1000, qkey: 0x77, srcQp: c.qp.qpn }))
      .wc({});
  });

  test('an address handle is in use as long as a request that names it waits', async () => {
    const c = await datagrams();
    const { x } = c.rig;
    const ah = createAh(c.qp);
    expect(c.qp.modify({ STATE: 4 })).toBe('OK');
    c.post(0, { opcode: 'SEND', to: to(c, { ah }) });
    expect(x.ahDestroy(ah)).toBe(x.Errno.EBUSY);
    expect(c.qp.modify({ STATE: 0 })).toBe('OK');
    expect(x.ahDestroy(ah)).toBe(x.Errno.OK);
  });

  test('a domain is in use as long as it has address handles', async () => {
    const c = await datagrams();
    const { x } = c.rig;
    const pd = x.pdAlloc();
    const ah = createAh(c.qp, {}, pd);
    expect(x.pdFree(pd)).toBe(x.Errno.EBUSY);
    expect(x.ahDestroy(ah)).toBe(x.Errno.OK);
    expect(x.pdFree(pd)).toBe(x.Errno.OK);
  });
});

describe('groups', () => {
  const listener = (c: Conversation, qkey = QKEY) => {
    const qp = new RigQp(c.rig, { type: 'UD', cq: c.qp.cq });
    qp.connect({ qkey, destQpn: 0, sqPsn: 0, rqPsn: 0 });
    expect(qp.recv(qp.qpn, [c.buffer.piece(8192, 2048)])).toBe('OK');
    return qp;
  };

  test('deliver a datagram to every member with its Q_Key, with the group as destination', async () => {
    const c = await datagrams({ receives: 1, flow: TO_GROUP });
    const [second, other, foreign] = [listener(c), listener(c), listener(c, QKEY + 1)];
    for (const qp of [c.qp, second, foreign]) expect(attach(qp, GROUP)).toBe('OK');
    const header = encodeFrame(c.there, hello()).slice(14, 34);
    c.in(0, hello()).silent();
    const taken = c.qp.poll();
    expect(new Set(taken.map(({ qpn }) => qpn))).toEqual(new Set([c.qp.qpn, second.qpn]));
    expect(taken[0]).toMatchObject({ byteLen: GRH + 4, flags: 1, srcQpn: SRC });
    c.holds(c.buffer, 20, header).holds(c.buffer, GRH, PING).cardCounts({ rcvd_pkts: 1 });
    expect(other.counters()).toEqual({});
    expect(foreign.counters()).toEqual({ drop_qkey: 1 });
  });

  test('IPv6 groups', async () => {
    const c = await datagrams({ receives: 2, flow: { ...V6, destQp: MULTICAST_QPN, dstIp: GROUP6 } });
    expect(attach(c.qp, GROUP6)).toBe('OK');
    c.in(0, hello())
      .wc({ byteLen: GRH + 4 })
      .frames(1, encodeFrame({ ...c.there, dstIp: 'ff15::77:2' }, hello()))
      .wc()
      .cardCounts({ drop_multicast: 1 });
  });

  test('deliver to the other members when one has no receive', async () => {
    const c = await datagrams({ flow: TO_GROUP });
    const second = listener(c);
    for (const qp of [c.qp, second]) expect(attach(qp, GROUP)).toBe('OK');
    c.in(0, hello()).wc({ qpn: second.qpn }).counts({ drop_no_receive: 1 }).cardCounts({ rcvd_pkts: 1 });
  });

  test('deliver no damaged datagram', async () => {
    const c = await datagrams({ receives: 1, flow: TO_GROUP });
    for (const qp of [c.qp, listener(c)]) expect(attach(qp, GROUP)).toBe('OK');
    c.frames(0, encodeFrame(c.there, hello(), { icrc: 5 }))
      .wc()
      .cardCounts({ drop_icrc: 1, rcvd_pkts: 0 });
  });

  test('without members, and for another class, drop', async () => {
    const c = await datagrams({ receives: 1, flow: TO_GROUP });
    c.in(0, hello()).wc().cardCounts({ drop_multicast: 1 });
    expect(attach(c.qp, GROUP)).toBe('OK');
    c.in(1, request.sendOnly({ psn: 1, payload: PING }))
      .wc()
      .cardCounts({ drop_qp_type: 1 });
  });

  test('joining twice, leaving twice, and joining with a connection are refused', async () => {
    const c = await datagrams({ receives: 1, flow: TO_GROUP });
    expect(attach(c.qp, GROUP)).toBe('OK');
    expect(attach(c.qp, GROUP)).toBe('EINVAL');
    expect(attach(c.qp, GROUP6)).toBe('OK');
    expect(detach(c.qp, GROUP)).toBe('OK');
    expect(detach(c.qp, GROUP)).toBe('ENOENT');
    expect(attach(new RigQp(c.rig, {}), GROUP)).toBe('EINVAL');
    expect(attach(new RigQp(c.rig, { type: 'UC' }), GROUP)).toBe('EINVAL');
    c.in(0, hello()).wc().cardCounts({ drop_multicast: 1 });
  });

  test('a queue pair that is destroyed leaves all its groups', async () => {
    const c = await datagrams({ receives: 1, flow: TO_GROUP });
    const { x } = c.rig;
    const before = x.memAvailable();
    const second = new RigQp(c.rig, { type: 'UD', cq: c.qp.cq });
    for (const group of [GROUP, '239.77.0.2', GROUP6]) expect(attach(second, group)).toBe('OK');
    expect(attach(c.qp, GROUP)).toBe('OK');
    x.qpDestroy(second.handle);
    expect(detach(c.qp, GROUP)).toBe('OK');
    expect(x.memAvailable()).toBe(before);
  });

  test('a datagram of a VLAN is for the members once a path leads into the VLAN', async () => {
    const c = await datagrams({ receives: 1, flow: { ...TO_GROUP, vlan: 0x6005 } });
    expect(attach(c.qp, GROUP)).toBe('OK');
    c.in(0, hello()).wc().cardCounts({ drop_vlan: 1 });
    createAh(c.qp, { vlan: 0x2005 });
    c.in(0, hello())
      .wc({ byteLen: GRH + 4, srcQpn: SRC })
      .holds(c.buffer, GRH, PING);
  });

  test.each([{}, { vlan: 0x6005 }])('sent to a group, %o', async (tag) => {
    const c = await datagrams();
    const ah = createAh(c.qp, { remoteIp: [239, 77, 0, 1], remoteMac: [1, 0, 0x5e, 77, 0, 1], ...tag });
    c.post(0, { opcode: 'SEND', inline: PING, to: { ah, qpn: MULTICAST_QPN, qkey: QKEY } });
    const flow = { ...c.back, ...tag, dstIp: GROUP, dstMac: '01:00:5e:4d:00:01', destQp: MULTICAST_QPN };
    expect(c.take()).toEqual([
      encodeFrame(flow, datagram.sendOnly({ psn: 1000, qkey: QKEY, srcQp: c.qp.qpn, payload: PING })),
    ]);
    c.wc({});
  });
});
