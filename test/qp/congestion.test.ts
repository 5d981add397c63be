import { describe, expect, test } from 'vitest';
import { type Conversation, rc, send } from '../kit/conversation.js';
import { ack, CNP, decode, frame, type Packet } from '../kit/packets.js';

/** A CNP as annex 17.9 has it: BECN, nothing else, sixteen reserved bytes. */
const cnp: Packet = {
  bth: { opcode: CNP, psn: 0, ackReq: false, solicited: false, migReq: false, becn: true },
  payload: new Uint8Array(16),
};
/** CE: a switch was about to drop this packet. */
const MARKED = { trafficClass: 3 };

/** What the card says at `us`, as opcodes with their traffic class. */
function said(c: Conversation): { opcode: number; trafficClass: number }[] {
  return c.take().map((bytes) => {
    const { bth, ip } = decode(bytes);
    return { opcode: bth.opcode, trafficClass: ip.version === 4 ? ip.tos : ip.trafficClass };
  });
}

describe('a marked packet', () => {
  test('is answered with a CNP in a class of its own, and counted', async () => {
    const c = await rc({ receives: 1 });
    c.frames(0, frame({ ...c.there, ...MARKED }, send({ psn: 100 })));
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

  test('is not answered again within 50 us', async () => {
    const c = await rc({ receives: 3 });
    const marked = (psn: number) => frame({ ...c.there, ...MARKED }, send({ psn, ackReq: false }));
    c.frames(0, marked(100));
    expect(said(c)).toHaveLength(1);
    c.wc({ wrId: 1 }).frames(49, marked(101)).silent().wc({ wrId: 2 }).frames(50, marked(102));
    expect(said(c)).toHaveLength(1);
    c.wc({ wrId: 3 }).counts({ np_ecn_marked_roce_packets: 3, np_cnp_sent: 2 });
  });

  test('is only counted when congestion control is switched off', async () => {
    const c = await rc({ receives: 1 });
    c.rig.x.setCongestion(c.rig.x.CongestionParameter.ENABLED, 0);
    c.frames(0, frame({ ...c.there, ...MARKED }, send({ psn: 100 })))
      .out(ack({ psn: 100, msn: 1 }))
      .wc({ wrId: 1 })
      .counts({ np_ecn_marked_roce_packets: 1, np_cnp_sent: 0 });
  });
});

describe('a CNP', () => {
  /** Posts much, and answers how many packets leave in the next `us` microseconds, each acknowledged at once. */
  function sentIn(c: Conversation, from: number, us: number): number {
    let count = 0;
    for (let at = from; at < from + us; at++) {
      c.at(at);
      const frames = c.take();
      count += frames.length;
      const last = frames.at(-1);
      if (last) c.frames(at, frame(c.there, ack({ psn: decode(last).bth.psn, msn: 0 })));
    }
    return count + c.take().length;
  }

  test('slows its queue pair down: to half the line rate at first, and less with every further one', async () => {
    const c = await rc({ sendWr: 4 });
    c.rig.x.setCongestion(c.rig.x.CongestionParameter.LINE_RATE, 1e9);
    c.in(0, cnp).silent();
    const big = { opcode: 'SEND', pieces: [c.buffer.piece(0, 60_000)], signaled: false };
    for (let i = 0; i < 4; i++) c.qp.send(big);
    // 500 Mbit/s are 0.06 packets of 1082 bytes each microsecond; 20 us may be sent ahead
    expect(sentIn(c, 1, 50)).toBeGreaterThanOrEqual(3);
    expect(sentIn(c, 51, 1)).toBeLessThanOrEqual(1);
    c.in(52, cnp);
    const slower = sentIn(c, 53, 50);
    expect(slower).toBeLessThanOrEqual(3);
    c.counts({ rp_cnp_handled: 2 });
  });

  test('is forgotten with time: the rate grows back until there is none', async () => {
    const c = await rc();
    c.in(0, cnp).silent();
    for (let at = 10; at < 200_000; at += 10) c.at(at);
    expect(c.rig.x.nextDeadline()).toBe(0);
  });

  test('is ignored, and counted, when congestion control is switched off', async () => {
    const c = await rc();
    c.rig.x.setCongestion(c.rig.x.CongestionParameter.ENABLED, 0);
    c.in(0, cnp).silent().counts({ rp_cnp_ignored: 1, rcvd_pkts: 1 });
  });

  test('for nobody, or with a wrong ICRC, does nothing', async () => {
    const c = await rc();
    c.frames(0, frame({ ...c.there, destQp: 0x123456 }, cnp), frame(c.there, cnp, { icrc: 1 }))
      .silent()
      .cardCounts({ drop_qpn: 1, drop_icrc: 1, rp_cnp_handled: 0 });
  });
});

test('packets carry ECT(0) when they may be marked, unless the user chose a code of his own', async () => {
  const c = await rc({ until: 'INIT' });
  c.rig.x.setCongestion(c.rig.x.CongestionParameter.ECT, 1);
  const fresh = await rc({ rig: c.rig });
  fresh.post(0, { opcode: 'SEND', pieces: [fresh.buffer.piece(0, 4)] });
  expect(said(fresh)).toEqual([{ opcode: 4, trafficClass: 2 }]);
});
