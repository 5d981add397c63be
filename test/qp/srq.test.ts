/** Shared receive queues: several queue pairs take receives from the same queue. */
import { describe, expect, test } from 'vitest';
import { ack, datagram, nak, request, uc } from '../../src/probe/packet/packets.js';
import { type Conversation, datagrams, PING, pattern, rc, send, unreliable } from '../kit/conversation.js';
import { QKEY, RigSrq } from '../kit/datagrams.js';
import { Rig, RigQp } from '../kit/rig.js';

const SECOND_PEER = 0x33;

interface Shared {
  readonly c: Conversation;
  readonly srq: RigSrq;
  /** Connected to another queue pair of the peer, with the completion queue of the first. */
  readonly second: RigQp;
}

async function shared(type: 'RC' | 'UC' = 'RC', wr = 8): Promise<Shared> {
  const rig = await Rig.create();
  const srq = new RigSrq(rig, wr);
  const c = await (type === 'RC' ? rc : unreliable)({ rig, srq: srq.handle });
  const second = new RigQp(rig, { type, srq: srq.handle, cq: c.qp.cq });
  second.connect({ destQpn: SECOND_PEER, sqPsn: 2000, rqPsn: 200 });
  return { c, srq, second };
}

/** Posts receives of 1000 bytes each. */
function post({ c, srq }: Shared, ...wrIds: number[]): void {
  for (const wrId of wrIds) expect(srq.recv(wrId, [c.buffer.piece(wrId * 1000, 1000)])).toBe('OK');
}

describe('receives of a shared queue are taken', () => {
  test('in the order of arrival, by any queue pair', async () => {
    const s = await shared();
    const { c, second } = s;
    post(s, 1, 2, 3);
    c.in(0, send({ psn: 100 }))
      .out(ack({ psn: 100, msn: 1 }))
      .wc({ wrId: 1, qpn: c.qp.qpn })
      .in(1, send({ psn: 200, bth: { destQp: second.qpn } }))
      .out(ack({ psn: 200, msn: 1, bth: { destQp: SECOND_PEER } }))
      .wc({ wrId: 2, qpn: second.qpn })
      .holds(c.buffer, 2000, PING)
      .in(2, send({ psn: 101 }))
      .out(ack({ psn: 101, msn: 2 }))
      .wc({ wrId: 3, qpn: c.qp.qpn });
    expect(s.srq.filled).toBe(0);
  });

  test('by interleaved messages without mixing them', async () => {
    const s = await shared();
    const { c, second } = s;
    expect(s.srq.recv(1, [c.buffer.piece(0, 2000)])).toBe('OK');
    expect(s.srq.recv(2, [c.buffer.piece(4000, 2000)])).toBe('OK');
    const to = { destQp: second.qpn };
    const [one, two] = [pattern(1500, 1), pattern(1500, 2)];
    c.in(
      0,
      request.sendFirst({ psn: 100, payload: one.slice(0, 1024) }),
      request.sendFirst({ psn: 200, payload: two.slice(0, 1024), bth: to }),
      request.sendLast({ psn: 201, payload: two.slice(1024), bth: to }),
      request.sendLast({ psn: 101, payload: one.slice(1024) }),
    )
      .wc({ wrId: 2, qpn: second.qpn, byteLen: 1500 }, { wrId: 1, qpn: c.qp.qpn, byteLen: 1500 })
      .holds(c.buffer, 0, one)
      .holds(c.buffer, 4000, two);
  });

  test('until it is empty: an RNR NAK, and the message is sent again', async () => {
    const s = await shared();
    const { c } = s;
    c.in(0, send({ psn: 100 }))
      .out(nak.rnr({ psn: 100, timer: 12 }))
      .wc();
    post(s, 1);
    c.in(700, send({ psn: 100 }))
      .out(ack({ psn: 100, msn: 1 }))
      .wc({ wrId: 1 });
  });

  test('in a domain other than the queue pair’s, with memory of the queue’s own', async () => {
    const rig = await Rig.create();
    const pd = rig.x.pdAlloc();
    const srq = new RigSrq(rig, 8, 4, pd);
    const c = await rc({ rig, srq: srq.handle });
    const theirs = rig.regionAt(rig.x.memAlloc(4096), 4096, 15, 0n, pd);
    expect(srq.recv(1, [theirs.piece(0, 100)])).toBe('OK');
    expect(srq.recv(2, [c.buffer.piece(0, 100)])).toBe('OK');
    c.in(0, send({ psn: 100 }))
      .out(ack({ psn: 100, msn: 1 }))
      .wc({ wrId: 1 })
      .holds(theirs, 0, PING)
      .in(1, send({ psn: 101 }))
      .out(nak.remoteOperational({ psn: 101, msn: 1 }))
      .wc({ wrId: 2, status: 'LOC_PROT_ERR' })
      .events('QP_LAST_WQE_REACHED');
  });

  test('by UC: a message that broke off keeps its receive for the next one of its queue pair', async () => {
    const s = await shared('UC');
    const { c, second } = s;
    post(s, 1, 2);
    const to = { destQp: second.qpn };
    c.in(0, uc(request.sendFirst({ psn: 100, payload: pattern(1000) })))
      .counts({ drop_unreliable_refused: 1 })
      .wc();
    expect(s.srq.filled).toBe(2);
    expect(s.srq.recv(3, [c.buffer.piece(8000, 4000)])).toBe('OK');
    c.in(1, uc(request.sendOnly({ psn: 200, payload: PING, bth: to })))
      .wc({ wrId: 1, qpn: second.qpn })
      .in(2, uc(request.sendOnly({ psn: 201, payload: PING, bth: to })))
      .wc({ wrId: 2 })
      .in(3, uc(request.sendFirst({ psn: 101, payload: pattern(1024) })))
      .wc();
    expect(s.srq.filled).toBe(0);
    c.in(4, uc(request.sendOnly({ psn: 202, payload: PING, bth: to })))
      .wc()
      .in(5, uc(request.sendOnly({ psn: 105, payload: PING })))
      .wc({ wrId: 3, qpn: c.qp.qpn, byteLen: 4 });
  });

  test('by datagrams', async () => {
    const rig = await Rig.create();
    const srq = new RigSrq(rig);
    const c = await datagrams({ rig, srq: srq.handle });
    const hello = datagram.sendOnly({ psn: 1, qkey: QKEY, srcQp: 5, payload: PING });
    c.in(0, hello).counts({ drop_no_receive: 1 });
    expect(srq.recv(1, [c.buffer.piece(0, 43)])).toBe('OK');
    c.in(1, hello).wc().counts({ drop_receive_length: 1 });
    expect(srq.filled).toBe(1);
    expect(srq.recv(2, [c.buffer.piece(0, 44)])).toBe('OK');
    c.in(2, datagram.sendOnly({ psn: 1, qkey: QKEY, srcQp: 5, payload: PING.slice(0, 3) }))
      .wc({ wrId: 1, byteLen: 43 })
      .in(3, hello)
      .wc({ wrId: 2, byteLen: 44 });
  });
});

describe('the limit of a shared queue', () => {
  test('is reported once, when fewer requests are left', async () => {
    const s = await shared();
    const { c, srq } = s;
    post(s, 1, 2, 3, 4);
    expect(srq.limit(3)).toBe('OK');
    expect(srq.currentLimit).toBe(3);
    c.in(0, send({ psn: 100 }))
      .out(ack({ psn: 100, msn: 1 }))
      .wc({ wrId: 1 })
      .events()
      .in(1, send({ psn: 101 }))
      .out(ack({ psn: 101, msn: 2 }))
      .wc({ wrId: 2 })
      .events('SRQ_LIMIT_REACHED');
    expect(srq.currentLimit).toBe(0);
    c.in(2, send({ psn: 102 }))
      .out(ack({ psn: 102, msn: 3 }))
      .wc({ wrId: 3 })
      .events();
    expect(srq.limit(1)).toBe('OK');
    c.in(3, send({ psn: 103 }))
      .out(ack({ psn: 103, msn: 4 }))
      .wc({ wrId: 4 })
      .events('SRQ_LIMIT_REACHED');
  });

  test('that is not reached is reported with the next request that is taken', async () => {
    const s = await shared();
    post(s, 1, 2);
    expect(s.srq.limit(5)).toBe('OK');
    s.c
      .events()
      .in(0, send({ psn: 100 }))
      .out(ack({ psn: 100, msn: 1 }))
      .wc({ wrId: 1 })
      .events('SRQ_LIMIT_REACHED');
  });

  test('may not be more than the queue holds', async () => {
    const { srq } = await shared();
    expect(srq.limit(9)).toBe('EINVAL');
    expect(srq.limit(8)).toBe('OK');
    expect(srq.resize(7)).toBe('EINVAL');
    expect(srq.limit(0)).toBe('OK');
    expect(srq.resize(4)).toBe('OK');
  });
});

describe('resizing a shared queue', () => {
  test('keeps posted requests in order, also around the end of the ring', async () => {
    const s = await shared('RC', 4);
    const { c, srq } = s;
    post(s, 1, 2, 3, 4);
    expect(srq.recv(5)).toBe('ENOMEM');
    for (const n of [0, 1, 2])
      c.in(n, send({ psn: 100 + n }))
        .out(ack({ psn: 100 + n, msn: n + 1 }))
        .wc({ wrId: n + 1 });
    post(s, 5, 6, 7);
    expect(srq.resize(16)).toBe('OK');
    expect([srq.entries, srq.filled]).toEqual([16, 4]);
    post(s, 8, 9);
    expect(srq.resize(5)).toBe('EINVAL');
    expect(srq.resize(6)).toBe('OK');
    expect(srq.entries).toBe(8);
    for (const n of [3, 4, 5, 6, 7, 8])
      c.in(n, send({ psn: 100 + n }))
        .out(ack({ psn: 100 + n, msn: n + 1 }))
        .wc({ wrId: n + 1 })
        .holds(c.buffer, (n + 1) * 1000, PING);
  });

  test('keeps the receive of a message that is arriving', async () => {
    const s = await shared('RC', 4);
    const { c, srq } = s;
    expect(srq.recv(1, [c.buffer.piece(0, 2000)])).toBe('OK');
    c.in(0, request.sendFirst({ psn: 100, payload: pattern(1024) }));
    expect(srq.resize(8)).toBe('OK');
    c.in(1, request.sendLast({ psn: 101, payload: PING })).wc({ wrId: 1, byteLen: 1028 });
  });

  test('is refused for an impossible size', async () => {
    const { srq } = await shared();
    expect([srq.resize(0), srq.resize(32769)]).toEqual(['EINVAL', 'EINVAL']);
  });
});

describe('a queue pair that ends', () => {
  test('by ERR leaves the shared receives alone, and reports that it takes no more', async () => {
    const s = await shared();
    const { c, second, srq } = s;
    post(s, 1, 2);
    expect(c.qp.modify({ STATE: 6 })).toBe('OK');
    c.wc().events('QP_LAST_WQE_REACHED');
    expect(srq.filled).toBe(2);
    c.in(0, send({ psn: 200, bth: { destQp: second.qpn } }))
      .out(ack({ psn: 200, msn: 1, bth: { destQp: SECOND_PEER } }))
      .wc({ wrId: 1, qpn: second.qpn });
  });

  test('flushes the receive of a message that was arriving', async () => {
    const s = await shared();
    const { c, srq } = s;
    expect(srq.recv(1, [c.buffer.piece(0, 2000)])).toBe('OK');
    post(s, 2);
    c.in(0, request.sendFirst({ psn: 100, payload: pattern(1024) }));
    expect(c.qp.modify({ STATE: 6 })).toBe('OK');
    c.wc({ wrId: 1, status: 'WR_FLUSH_ERR' }).events('QP_LAST_WQE_REACHED');
    expect(srq.filled).toBe(1);
  });

  test('by a fault of its peer leaves the others running', async () => {
    const s = await shared();
    const { c, srq } = s;
    post(s, 1);
    c.in(0, request.writeOnly({ psn: 100, va: 0n, rkey: 1, payload: PING }))
      .out(nak.remoteAccess({ psn: 100 }))
      .events('QP_ACCESS_ERR', 'QP_LAST_WQE_REACHED')
      .state('ERR');
    expect(srq.filled).toBe(1);
    expect(s.second.state).toBe('RTS');
  });

  test('by RESET can be connected again', async () => {
    const s = await shared();
    const { c, srq } = s;
    post(s, 1);
    expect(c.qp.modify({ STATE: 0 })).toBe('OK');
    c.wc().events();
    expect(srq.filled).toBe(1);
    c.qp.connect({ destQpn: c.there.srcQp, sqPsn: 0, rqPsn: 500 });
    c.in(0, send({ psn: 500 }))
      .out(ack({ psn: 500, msn: 1 }))
      .wc({ wrId: 1 });
  });
});

describe('a quota', () => {
  /** The second queue pair gets a message. */
  const second = (s: Shared, psn: number) => send({ psn, bth: { destQp: s.second.qpn } });
  const secondAck = (psn: number, msn: number) => ack({ psn, msn, bth: { destQp: SECOND_PEER } });

  test('limits the requests of one queue pair, and leaves the others theirs', async () => {
    const s = await shared();
    const { c, srq } = s;
    const { x } = c.rig;
    post(s, 1, 2, 3, 4);
    x.qpRecvQuota(c.qp.handle, 2);
    c.in(0, send({ psn: 100 }), send({ psn: 101 }), send({ psn: 102 }))
      .out(nak.rnr({ psn: 102, timer: 12, msn: 2 }))
      .wc({ wrId: 1 }, { wrId: 2 })
      .in(1, second(s, 200), second(s, 201))
      .out(secondAck(201, 2))
      .wc({ wrId: 3, qpn: s.second.qpn }, { wrId: 4, qpn: s.second.qpn });
    // A receive that is posted alone belongs to all.
    post(s, 1);
    c.in(2, send({ psn: 102 }))
      .out(nak.rnr({ psn: 102, timer: 12, msn: 2 }))
      .wc();
    x.qpRecvReturn(c.qp.handle);
    c.in(3, send({ psn: 102 }))
      .out(ack({ psn: 102, msn: 3 }))
      .wc({ wrId: 1 });
    expect(srq.filled).toBe(0);
  });

  test('counts a message from its first packet on, and a WRITE with an immediate', async () => {
    const s = await shared();
    const { c } = s;
    const bth = { bth: { ackReq: true } };
    expect(s.srq.recv(1, [c.buffer.piece(0, 2000)])).toBe('OK');
    post(s, 2);
    c.rig.x.qpRecvQuota(c.qp.handle, 1);
    c.in(
      0,
      request.sendFirst({ psn: 100, payload: pattern(1024) }),
      request.sendLast({ psn: 101, payload: PING }),
      request.writeOnlyImm({ psn: 102, va: 0n, rkey: 0, payload: new Uint8Array(0), imm: 1, ...bth }),
    )
      .out(nak.rnr({ psn: 102, timer: 12, msn: 1 }))
      .wc({ wrId: 1, byteLen: 1024 + PING.length });
    c.rig.x.qpRecvReturn(c.qp.handle);
    c.in(1, request.writeOnlyImm({ psn: 102, va: 0n, rkey: 0, payload: new Uint8Array(0), imm: 1, ...bth }))
      .out(ack({ psn: 102, msn: 2 }))
      .wc({ wrId: 2 });
  });

  test('leaves the reserve to queue pairs that hold none', async () => {
    const s = await shared();
    const { c } = s;
    const { x } = c.rig;
    post(s, 1, 2, 3, 4);
    x.srqReserve(s.srq.handle, 2);
    for (const qp of [c.qp, s.second]) x.qpRecvQuota(qp.handle, 4);
    c.in(0, send({ psn: 100 }), send({ psn: 101 }), send({ psn: 102 }))
      .out(nak.rnr({ psn: 102, timer: 12, msn: 2 }))
      .wc({ wrId: 1 }, { wrId: 2 });
    c.in(1, second(s, 200), second(s, 201))
      .out(nak.rnr({ psn: 201, timer: 12, msn: 1, bth: { destQp: SECOND_PEER } }))
      .wc({ wrId: 3, qpn: s.second.qpn });
    // Without a reserve only the quota counts.
    x.srqReserve(s.srq.handle, 0);
    c.in(2, second(s, 201)).out(secondAck(201, 2)).wc({ wrId: 4, qpn: s.second.qpn });
  });

  test('that is 0 needs no returns', async () => {
    const s = await shared();
    const { c } = s;
    for (let n = 0; n < 20; n++) {
      post(s, 1);
      c.in(n, send({ psn: 100 + n }))
        .out(ack({ psn: 100 + n, msn: n + 1 }))
        .wc({ wrId: 1 });
    }
  });
});

test('objects count their users', async () => {
  const s = await shared();
  const { c, srq, second } = s;
  const { x } = c.rig;
  expect(c.qp.recv(1)).toBe('EINVAL');
  expect(srq.destroy()).toBe('EBUSY');
  expect(c.qp.attribute('MAX_RECV_WR')).toBe(0);
  x.qpDestroy(c.qp.handle);
  expect(srq.destroy()).toBe('EBUSY');
  x.qpDestroy(second.handle);
  expect(srq.destroy()).toBe('OK');
  expect([x.srqCreate(c.rig.pd, 0, 1), x.srqCreate(c.rig.pd, 1, 33)]).toEqual([0, 0]);
});

test('a request with too many SGEs is refused without effect', async () => {
  const { c, srq } = await shared();
  expect(
    srq.recv(
      1,
      Array.from({ length: 5 }, () => c.buffer.piece(0, 1)),
    ),
  ).toBe('EINVAL');
  expect(srq.filled).toBe(0);
});
