import { describe, expect, test } from 'vitest';
import { ack, CNP, decode, encodeFrame, nak, Op, type Packet, request } from '../../src/probe/packet/packets.js';
import { type Conversation, datagrams, PING, type RcOptions, rc, send, TARGET_VA } from '../kit/conversation.js';
import { createAh, QKEY } from '../kit/datagrams.js';
import { Rig } from '../kit/rig.js';

/** A CNP as in annex 17.9: BECN, nothing else, sixteen reserved bytes. */
const cnp: Packet = {
  bth: { opcode: CNP, psn: 0, ackReq: false, solicited: false, migReq: false, becn: true },
  payload: new Uint8Array(16),
};
/** Congestion experienced: a switch has marked this packet. */
const MARKED = { trafficClass: 3 };

/** The packets of the card at `us`, as opcodes with their traffic class. */
function said(c: Conversation): { opcode: number; trafficClass: number }[] {
  return c.take().map((bytes) => {
    const { bth, ip } = decode(bytes);
    return { opcode: bth.opcode, trafficClass: ip.version === 4 ? ip.tos : ip.trafficClass };
  });
}

describe('a marked packet', () => {
  test('is answered with a CNP in a class of its own, and counted', async () => {
    const c = await rc({ receives: 1 });
    c.frames(0, encodeFrame({ ...c.there, ...MARKED }, send({ psn: 100 })));
    const [first, second] = c.take();
    expect(decode(first as Uint8Array)).toMatchObject({
      ip: { tos: (48 << 2) | 2 },
      bth: { opcode: CNP, psn: 0, ackReq: false, solicited: false, migReq: false, becn: true, destQp: c.there.srcQp },
      payload: new Uint8Array(16),
      icrcOk: true,
    });
    expect(decode(second as Uint8Array)).toMatchObject(ack({ psn: 100, msn: 1 }));
    c.wc({ wrId: 1 }).counts({ np_ecn_marked_roce_packets: 1, np_cnp_sent: 1 });
  });

  test.each([
    ['a tag: the CNP has the priority of CNPs in it', (2 << 13) | 5, (6 << 13) | 5],
    ['no tag: it has none', undefined, undefined],
  ])('comes by a path with %s', async (_, vlan, tci) => {
    const c = await rc({ receives: 1, ...(vlan !== undefined && { vlan, flow: { vlan } }) });
    c.frames(0, encodeFrame({ ...c.there, ...MARKED }, send({ psn: 100 })));
    const [first, second] = c.take().map((bytes) => decode(bytes).eth.vlan);
    expect([first, second]).toEqual([tci, vlan]);
    c.wc({ wrId: 1 });
  });

  test('is not answered again within 50 us', async () => {
    const c = await rc({ receives: 3 });
    const marked = (psn: number) => encodeFrame({ ...c.there, ...MARKED }, send({ psn, ackReq: false }));
    c.frames(0, marked(100));
    expect(said(c)).toHaveLength(1);
    c.wc({ wrId: 1 }).frames(49, marked(101)).silent().wc({ wrId: 2 }).frames(50, marked(102));
    expect(said(c)).toHaveLength(1);
    c.wc({ wrId: 3 }).counts({ np_ecn_marked_roce_packets: 3, np_cnp_sent: 2 });
  });

  test('is only counted when congestion control is switched off', async () => {
    const c = await rc({ receives: 1 });
    c.rig.x.setCongestion(c.rig.x.CongestionParameter.ENABLED, 0);
    c.frames(0, encodeFrame({ ...c.there, ...MARKED }, send({ psn: 100 })))
      .out(ack({ psn: 100, msn: 1 }))
      .wc({ wrId: 1 })
      .counts({ np_ecn_marked_roce_packets: 1, np_cnp_sent: 0 });
  });
});

/** A packet that a switch can have marked. */
const inFlight = (c: Conversation, us = 0): Conversation => {
  c.post(us, { opcode: 'SEND', inline: PING }).take();
  return c;
};

describe('a CNP', () => {
  /**
   * Posts many requests and returns the number of packets that are sent in the next `us` microseconds, each
   * acknowledged at once.
   */
  function sentIn(c: Conversation, from: number, us: number): number {
    let count = 0;
    for (let at = from; at < from + us; at++) {
      c.at(at);
      const frames = c.take();
      count += frames.length;
      const last = frames.at(-1);
      if (last) c.frames(at, encodeFrame(c.there, ack({ psn: decode(last).bth.psn, msn: 0 })));
    }
    return count + c.take().length;
  }

  test('halves the line rate at first, and lowers the rate with every further one', async () => {
    const c = await rc({ sendWr: 4 });
    c.rig.x.setCongestion(c.rig.x.CongestionParameter.LINE_RATE, 1e9);
    inFlight(c).in(0, cnp).silent();
    const big = { opcode: 'SEND', pieces: [c.buffer.piece(0, 60_000)], signaled: false };
    for (let i = 0; i < 3; i++) c.qp.send(big);
    // 500 Mbit/s are 0.06 packets of 1082 bytes per microsecond; 20 us may be sent ahead
    expect(sentIn(c, 1, 50)).toBeGreaterThanOrEqual(3);
    expect(sentIn(c, 51, 1)).toBeLessThanOrEqual(1);
    inFlight(c, 52).in(52, cnp);
    const slower = sentIn(c, 53, 50);
    expect(slower).toBeLessThanOrEqual(3);
    c.counts({ rp_cnp_handled: 2 });
    c.qp.poll();
  });

  test('loses its effect with time: the rate grows until there is no limit', async () => {
    const c = await rc();
    inFlight(c).in(0, cnp).silent();
    expect(c.qp.attribute('RATE')).toBeGreaterThan(0);
    c.in(1, ack({ psn: 1000, msn: 1 }));
    for (let at = 10; at < 500_000; at += 10) c.at(at);
    expect([c.rig.x.nextDeadline(), c.qp.attribute('RATE')]).toEqual([0, 0]);
    c.qp.poll();
  });

  test('is ignored without a packet in flight that a switch could have marked', async () => {
    const c = await rc();
    c.in(0, cnp).silent().counts({ rp_cnp_ignored: 1, rp_cnp_handled: 0 });
    inFlight(c)
      .in(1, ack({ psn: 1000, msn: 1 }))
      .in(2, cnp)
      .counts({ rp_cnp_ignored: 2, rp_cnp_handled: 0 });
    expect(c.qp.attribute('RATE')).toBe(0);
    c.qp.poll();
  });

  test('cuts the rate once in 50 us, however many arrive', async () => {
    const c = await rc();
    c.rig.x.setCongestion(c.rig.x.CongestionParameter.LEAST_RATE, 1e6);
    inFlight(c);
    // alpha stays 1 while CNPs arrive
    for (let us = 0; us < 150; us += 4) {
      c.in(us, cnp);
      expect(c.qp.attribute('RATE')).toBe([5e6, 2.5e6, 1.25e6][Math.floor(us / 52)]);
    }
    c.counts({ rp_cnp_handled: 38 });
    c.qp.poll();
  });

  test('soon after another keeps the target: the rate returns to that before the first', async () => {
    const c = await rc();
    c.rig.x.setCongestion(c.rig.x.CongestionParameter.LEAST_RATE, 1e6);
    inFlight(c);
    for (const us of [0, 50, 100]) c.in(us, cnp);
    expect(c.qp.attribute('RATE')).toBe(1.25e6);
    c.in(101, ack({ psn: 1000, msn: 1 })).at(175);
    expect(c.qp.attribute('RATE')).toBe((1.25e6 + 10e6) / 2);
    c.qp.poll();
  });

  test('at the lowest rate shrinks the window, in which an ACK stays requested', async () => {
    const c = await rc({ sendWr: 4, mtu: 256 });
    for (let us = 0; us < 8; us++) {
      const big = { opcode: 'RDMA_WRITE', pieces: [c.buffer.piece(0, 64 * 256)], remote: { va: 0n, rkey: 7 } };
      c.post(us, { ...big, signaled: false });
      while (c.qp.attribute('SQ_PENDING') > 0) {
        const last = c.take().at(-1) as Uint8Array;
        c.frames(us, encodeFrame(c.there, ack({ psn: decode(last).bth.psn, msn: us })));
      }
    }
    const at = c.qp.attribute('WINDOW');
    expect(at).toBeGreaterThan(64);
    inFlight(c, 10);
    for (let us = 1000; us < 2000; us += 50) c.in(us, cnp);
    expect(c.qp.attribute('WINDOW')).toBe(16);
    c.qp.poll();
  });

  test('is ignored, and counted, when congestion control is switched off', async () => {
    const c = await rc();
    c.rig.x.setCongestion(c.rig.x.CongestionParameter.ENABLED, 0);
    c.in(0, cnp).silent().counts({ rp_cnp_ignored: 1, rcvd_pkts: 1 });
  });

  test('for no queue pair, or with a wrong ICRC, has no effect', async () => {
    const c = await rc();
    c.frames(0, encodeFrame({ ...c.there, destQp: 0x123456 }, cnp), encodeFrame(c.there, cnp, { icrc: 1 }))
      .silent()
      .cardCounts({ drop_qpn: 1, drop_icrc: 1, rp_cnp_handled: 0 });
  });
});

describe('ECT(0)', () => {
  /** A connection whose packets may be marked. */
  async function markable(options: RcOptions = {}): Promise<Conversation> {
    const rig = await Rig.create();
    rig.x.setCongestion(rig.x.CongestionParameter.ECT, 1);
    return rc({ ...options, rig });
  }
  const codes = (c: Conversation) => said(c).map(({ opcode, trafficClass }) => `${Op[opcode]} ${trafficClass}`);

  test.each([
    ['IPv4', {}],
    ['IPv6', { localIp: [0xfd, ...Array(14).fill(0), 1], remoteIp: [0xfd, ...Array(14).fill(0), 2] }],
  ])('is in every packet of a connection, %s, and a marked packet is not dropped', async (_, ips) => {
    const flow = 'localIp' in ips ? { srcIp: 'fd00::2', dstIp: 'fd00::1' } : {};
    const c = await markable({ ...ips, flow, receives: 1 });
    const [piece, remote] = [c.buffer.piece(0, 8), { va: 0n, rkey: 7 }];
    const opcodes = ['SEND', 'RDMA_WRITE', 'RDMA_READ', 'ATOMIC_FETCH_AND_ADD', 'ATOMIC_WRITE', 'FLUSH'];
    for (const opcode of opcodes)
      c.qp.send({
        opcode,
        pieces: opcode === 'FLUSH' ? [] : [piece],
        remote,
        flush: { length: 8, what: 1 },
        imm: 0x21,
      });
    c.at(0);
    expect(codes(c)).toEqual(
      ['SEND_ONLY', 'RDMA_WRITE_ONLY', 'RDMA_READ_REQUEST', 'FETCH_ADD', 'ATOMIC_WRITE', 'FLUSH'].map(
        (name) => `${name} 2`,
      ),
    );
    const at = { va: TARGET_VA, rkey: c.target.rkey };
    c.in(1, request.read({ psn: 100, ...at, length: 2000 }), request.fetchAdd({ psn: 102, ...at, add: 1n }));
    expect(codes(c)).toEqual(['RDMA_READ_RESPONSE_FIRST 2', 'RDMA_READ_RESPONSE_LAST 2', 'ATOMIC_ACKNOWLEDGE 2']);
    c.in(2, send({ psn: 103 }));
    expect(codes(c)).toEqual(['ACKNOWLEDGE 2']);
    c.in(3, send({ psn: 110 }));
    expect(codes(c)).toEqual(['ACKNOWLEDGE 2']);
    c.qp.poll();
  });

  test('is not in datagrams, which have no congestion control', async () => {
    const rig = await Rig.create();
    rig.x.setCongestion(rig.x.CongestionParameter.ECT, 1);
    const c = await datagrams({ rig });
    c.post(0, { opcode: 'SEND', inline: PING, to: { ah: createAh(c.qp), qpn: 5, qkey: QKEY } });
    expect(said(c)).toEqual([{ opcode: 0x64, trafficClass: 0 }]);
    c.wc({});
  });

  test.each([
    [0x68, 0x6a],
    [0x69, 0x69],
    [0x6b, 0x6b],
  ])('leaves the user’s bits of the traffic class: %i becomes %i', async (trafficClass, expected) => {
    const c = await markable({ trafficClass });
    c.post(0, { opcode: 'SEND', inline: PING });
    expect(said(c)).toEqual([{ opcode: Op.SEND_ONLY, trafficClass: expected }]);
  });

  test.each([
    ['an ACK', ack({ psn: 1000, msn: 1 })],
    ['a NAK', nak.sequence({ psn: 1000 })],
  ])('%s that was marked is answered with a CNP like data', async (_, packet) => {
    const c = await rc();
    c.post(0, { opcode: 'SEND', inline: PING }).take();
    c.frames(1, encodeFrame({ ...c.there, ...MARKED }, packet));
    expect(said(c)[0]?.opcode).toBe(CNP);
    c.qp.poll();
  });

  test('a marked CNP slows down, and is not answered', async () => {
    const c = await rc();
    inFlight(c)
      .frames(0, encodeFrame({ ...c.there, ...MARKED }, cnp))
      .silent()
      .counts({ rp_cnp_handled: 1, np_ecn_marked_roce_packets: 0 });
    c.qp.poll();
  });
});

describe('a queue pair that is connected again', () => {
  const anew = (c: Conversation) => {
    c.qp.modify({ STATE: 0 });
    c.qp.connect({ destQpn: c.there.srcQp, sqPsn: 1000, rqPsn: 100 });
  };

  test('is not slowed down by CNPs of the last peer', async () => {
    const c = await rc();
    inFlight(c)
      .in(0, ...Array.from({ length: 30 }, () => cnp))
      .at(1, () => anew(c));
    c.post(2, { wrId: 1, opcode: 'SEND', inline: PING }).take();
    // the ACK timer expires, and all earlier deadlines with it
    c.at(70_000).take();
    expect(c.qp.attribute('RATE')).toBe(0);
    c.qp.poll();
  });

  test.each([0, 6])('sends no CNP for packets of the last peer, nor does one in state %i', async (state) => {
    const c = await rc({ receives: 1 });
    c.at(1, () => {
      c.rig.put(encodeFrame({ ...c.there, ...MARKED }, send({ psn: 100, ackReq: false })));
      c.rig.x.rx(1000, 1);
      if (state === 0) anew(c);
      else c.qp.modify({ STATE: state });
    }).silent();
    c.qp.poll();
  });
});
