/** RDMA READ, responder side: responses, and replayed responses (IBTA 9.7.5.1.4). */
import { describe, expect, test } from 'vitest';
import { ack, encodeFrame, nak, type Packet, request, response } from '../../src/probe/packet/packets.js';
import { type Conversation, PING, rc, send, TARGET_VA } from '../kit/conversation.js';

function read(c: Conversation, psn: number, offset: number, length: number): Packet {
  return request.read({ psn, va: TARGET_VA + BigInt(offset), rkey: c.target.rkey, length });
}

function answer(c: Conversation, psn: number, msn: number, offset: number, length: number): Packet[] {
  return response.read({ psn, msn, payload: c.target.bytes.slice(offset, offset + length), mtu: 1024 });
}

test('a READ is answered with its bytes, and needs no ACK', async () => {
  const c = await rc();
  c.in(0, read(c, 100, 3, 5)).out(...answer(c, 100, 1, 3, 5));
});

test('a long READ is answered with FIRST, MIDDLE, LAST; the next request has the PSN behind them', async () => {
  const c = await rc({ receives: 1 });
  c.in(0, read(c, 100, 1, 3000))
    .out(...answer(c, 100, 1, 1, 3000))
    .in(1, send({ psn: 103 }))
    .out(ack({ psn: 103, msn: 2 }))
    .wc({ wrId: 1 });
});

test('a READ of whole packets ends with a full LAST', async () => {
  const c = await rc();
  c.in(0, read(c, 100, 0, 2048)).out(...answer(c, 100, 1, 0, 2048));
});

test('a READ without bytes is answered without bytes, whatever its key', async () => {
  const c = await rc();
  c.in(0, request.read({ psn: 100, va: 1n, rkey: 0xbad, length: 0 })).out(response.readOnly({ psn: 100, msn: 1 }));
});

test('a READ sees what was written before it', async () => {
  const c = await rc();
  const at = { va: TARGET_VA, rkey: c.target.rkey };
  c.in(0, request.writeOnly({ psn: 100, ...at, payload: PING }), read(c, 101, 0, 4)).out(
    response.readOnly({ psn: 101, msn: 2, payload: PING }),
  );
});

test('the ACK of a later request waits for the responses of the READ before it', async () => {
  const c = await rc({ receives: 1 });
  c.in(0, read(c, 100, 0, 2048), send({ psn: 102 }))
    .out(...answer(c, 100, 2, 0, 2048), ack({ psn: 102, msn: 2 }))
    .wc({ wrId: 1 });
});

test('READs are answered in the order in which they arrived', async () => {
  const c = await rc();
  c.in(0, read(c, 100, 0, 1500), read(c, 102, 4000, 10)).out(
    ...answer(c, 100, 2, 0, 1500),
    ...answer(c, 102, 2, 4000, 10),
  );
});

test('a duplicate READ is executed again, from the present memory', async () => {
  const c = await rc();
  c.in(0, read(c, 100, 0, 1500)).out(...answer(c, 100, 1, 0, 1500));
  c.target.bytes.fill(0x5a, 0, 1500);
  c.in(1, read(c, 100, 0, 1500)).out(...answer(c, 100, 1, 0, 1500));
});

test('a READ repeated from its middle is answered as a request of its own, with the same PSNs', async () => {
  const c = await rc();
  c.in(0, read(c, 100, 0, 4000))
    .out(...answer(c, 100, 1, 0, 4000))
    .in(1, read(c, 102, 2048, 1952))
    .out(...answer(c, 102, 1, 2048, 1952))
    .in(2, read(c, 103, 3072, 928))
    .out(...answer(c, 103, 1, 3072, 928))
    .in(3, read(c, 100, 0, 4000))
    .out(...answer(c, 100, 1, 0, 4000));
});

test('a repeated READ ends the rest of its first response, and starts anew', async () => {
  const c = await rc();
  const half = answer(c, 100, 1, 0, 4096).slice(0, 2);
  c.rig.put(encodeFrame(c.there, read(c, 100, 0, 4096)));
  c.rig.x.rx(0, 1);
  expect(c.rig.out(0, 2)).toEqual(half.map((packet) => encodeFrame(c.back, packet)));
  c.in(0, read(c, 101, 1024, 3072)).out(...answer(c, 101, 1, 1024, 3072));
});

test('a repetition of everything is answered in its order: data, then the newest ACK', async () => {
  const c = await rc({ receives: 2 });
  const all = [send({ psn: 100 }), read(c, 101, 0, 1500), read(c, 103, 64, 8), send({ psn: 104 })];
  const said = [...answer(c, 101, 4, 0, 1500), ...answer(c, 103, 4, 64, 8), ack({ psn: 104, msn: 4 })];
  c.in(0, ...all)
    .out(...said)
    .wc({ wrId: 1 }, { wrId: 2 })
    .in(9, ...all)
    .out(...said)
    .counts({ duplicate_request: 4 });
});

test('a READ behind a SEND in the same turn: the response acknowledges both, and no ACK follows it', async () => {
  const c = await rc({ receives: 1 });
  c.in(0, send({ psn: 100 }), read(c, 101, 0, 8))
    .out(...answer(c, 101, 2, 0, 8))
    .wc({ wrId: 1 });
});

test('a duplicate READ must be part of a remembered one, by key, range and PSN; otherwise it is dropped', async () => {
  const c = await rc();
  const other = c.rig.regionAt(c.target.ptr, 4096, 15, TARGET_VA);
  c.in(0, read(c, 100, 1024, 2048))
    .out(...answer(c, 100, 1, 1024, 2048))
    .in(1, request.read({ psn: 100, va: TARGET_VA + 1024n, rkey: other.rkey, length: 2048 }))
    .silent()
    .in(2, read(c, 100, 1023, 2048))
    .silent()
    .in(3, read(c, 100, 1025, 2048))
    .silent()
    .in(4, read(c, 101, 1024, 2048))
    .silent()
    .in(5, read(c, 99, 1024, 10))
    .silent()
    .counts({ drop_duplicate_unknown: 5, duplicate_request: 5 });
});

test('max_dest_rd_atomic READs are remembered, the newest', async () => {
  const c = await rc({ maxDestRdAtomic: 2 });
  for (let i = 0; i < 3; i++) c.in(i, read(c, 100 + i, i * 8, 8)).out(...answer(c, 100 + i, i + 1, i * 8, 8));
  c.in(5, read(c, 100, 0, 8))
    .silent()
    .in(6, read(c, 101, 8, 8))
    .out(...answer(c, 101, 3, 8, 8))
    .in(7, read(c, 102, 16, 8))
    .out(...answer(c, 102, 3, 16, 8))
    .counts({ drop_duplicate_unknown: 1 });
});

test('with max_dest_rd_atomic 0 a READ is an invalid request', async () => {
  const c = await rc({ maxDestRdAtomic: 0 });
  c.in(0, read(c, 100, 0, 8))
    .out(nak.invalidRequest({ psn: 100 }))
    .state('ERR')
    .events('QP_REQ_ERR');
});

test('more READs at once than max_dest_rd_atomic are an invalid request, once those before are answered', async () => {
  const c = await rc({ maxDestRdAtomic: 2 });
  c.in(0, read(c, 100, 0, 8), read(c, 101, 8, 8), read(c, 102, 16, 8))
    .out(...answer(c, 100, 2, 0, 8), ...answer(c, 101, 2, 8, 8), nak.invalidRequest({ psn: 102, msn: 2 }))
    .state('ERR')
    .events('QP_REQ_ERR');
});

test('a repetition of a READ that is not answered yet gives no room for more than max_dest_rd_atomic', async () => {
  const c = await rc({ maxDestRdAtomic: 2 });
  c.in(0, read(c, 100, 0, 8), read(c, 100, 0, 8), read(c, 101, 8, 8), read(c, 102, 16, 8))
    .out(...answer(c, 100, 2, 0, 8), ...answer(c, 101, 2, 8, 8), nak.invalidRequest({ psn: 102, msn: 2 }))
    .state('ERR')
    .events('QP_REQ_ERR');
});

test('a region that is closed during a READ ends it with a NAK of the next response', async () => {
  const c = await rc();
  const [first] = answer(c, 100, 1, 0, 3000);
  if (!first) throw new Error('a packet');
  c.rig.put(encodeFrame(c.there, read(c, 100, 0, 3000)));
  c.rig.x.rx(0, 1);
  expect(c.rig.out(0, 1)).toEqual([encodeFrame(c.back, first)]);
  c.at(1, () => c.rig.x.mrDereg(c.target.mr))
    .out(nak.remoteAccess({ psn: 101, msn: 1 }))
    .state('ERR')
    .events('QP_ACCESS_ERR');
});

// NVMe-oF, NFS and SMB Direct close a key as soon as its READ is complete, and a repetition may still be on its way
describe('a duplicate READ that can no longer be answered is dropped, and the connection goes on', () => {
  const FAST = 15 | (1 << 24);

  test('after its region was closed', async () => {
    const c = await rc({ receives: 1 });
    c.in(0, read(c, 100, 0, 8)).out(...answer(c, 100, 1, 0, 8));
    c.rig.x.mrDereg(c.target.mr);
    c.in(1, read(c, 100, 0, 8))
      .silent()
      .in(2, send({ psn: 101 }))
      .out(ack({ psn: 101, msn: 2 }))
      .wc({ wrId: 1 })
      .state('RTS')
      .counts({ duplicate_request: 1, drop_duplicate_unknown: 1, resp_remote_access_errors: 0 });
  });

  test('after its key has lost the right to read', async () => {
    const c = await rc();
    const { mr, ptr, length, iova } = c.rig.regionAt(c.target.ptr, 4096, FAST, TARGET_VA);
    const rkey = c.rig.x.mrRkey(mr);
    const again = request.read({ psn: 100, va: TARGET_VA, rkey, length: 8 });
    c.in(0, again).out(...answer(c, 100, 1, 0, 8));
    c.post(
      2,
      { opcode: 'LOCAL_INV', imm: rkey },
      { opcode: 'REG_MR', register: { rkey, ptr, length, access: 1, iova } },
    );
    c.wc({ opcode: 'LOCAL_INV' }, { opcode: 'REG_MR' });
    c.in(3, again).silent().state('RTS').counts({ drop_duplicate_unknown: 1 });
  });

  test('with the SEND that invalidates its key', async () => {
    const c = await rc({ receives: 1 });
    const { rkey } = c.rig.regionAt(c.target.ptr, 4096, FAST, TARGET_VA);
    const again = request.read({ psn: 100, va: TARGET_VA, rkey, length: 3000 });
    c.in(0, again).out(...answer(c, 100, 1, 0, 3000));
    c.in(1, again, request.sendOnlyInvalidate({ psn: 103, invalidate: rkey, ackReq: true }))
      .out(ack({ psn: 103, msn: 2 }))
      .wc({ wrId: 1, invalidatedRkey: rkey })
      .state('RTS')
      .counts({ duplicate_request: 1, resp_remote_access_errors: 0 });
    expect(c.rig.decisions(c.qp.qpn).at(-1)).toMatch(/drops a repeated READ at psn 100: its memory is gone$/);
  });

  test('while others that can be answered are, in their order, before the ACK', async () => {
    const c = await rc({ receives: 1 });
    const { rkey } = c.rig.regionAt(c.target.ptr, 4096, FAST, TARGET_VA);
    const dead = request.read({ psn: 100, va: TARGET_VA, rkey, length: 8 });
    const alive = read(c, 101, 16, 1500);
    c.in(0, dead, alive).out(...answer(c, 100, 2, 0, 8), ...answer(c, 101, 2, 16, 1500));
    c.in(1, dead, alive, request.sendOnlyInvalidate({ psn: 103, invalidate: rkey, ackReq: true }))
      .out(...answer(c, 101, 3, 16, 1500), ack({ psn: 103, msn: 3 }))
      .wc({ wrId: 1 });
  });

  test('when the memory is closed during the repetition', async () => {
    const c = await rc({ receives: 1 });
    c.in(0, read(c, 100, 0, 3000)).out(...answer(c, 100, 1, 0, 3000));
    c.rig.put(encodeFrame(c.there, read(c, 100, 0, 3000)));
    c.rig.x.rx(1000, 1);
    expect(c.rig.out(1000, 1)).toHaveLength(1);
    c.at(2, () => c.rig.x.mrDereg(c.target.mr))
      .silent()
      .in(3, send({ psn: 103 }))
      .out(ack({ psn: 103, msn: 2 }))
      .wc({ wrId: 1 })
      .state('RTS');
  });

  test('a READ that was never answered in full is refused, however often it is repeated', async () => {
    const c = await rc();
    for (const us of [0, 1]) {
      c.rig.put(encodeFrame(c.there, read(c, 100, 0, 3000)));
      c.rig.x.rx(us * 1000, 1);
      expect(c.rig.out(us * 1000, 2)).toHaveLength(2);
    }
    c.at(2, () => c.rig.x.mrDereg(c.target.mr))
      .out(nak.remoteAccess({ psn: 102, msn: 1 }))
      .state('ERR')
      .events('QP_ACCESS_ERR');
  });
});

test('a repeated atomic, ATOMIC WRITE or FLUSH is answered although its key is invalid', async () => {
  const c = await rc({ access: 15 | 256 });
  const flushed = c.rig.regionAt(c.target.ptr, 4096, 15 | 256, TARGET_VA);
  const at = { va: TARGET_VA, rkey: flushed.rkey };
  const original = Buffer.from(c.target.bytes).readBigUInt64LE(0);
  const all = [
    request.fetchAdd({ psn: 100, ...at, add: 1n }),
    request.atomicWrite({ psn: 101, ...at, payload: new Uint8Array(8) }),
    request.flush({ psn: 102, ...at, length: 8, placement: 1, selectivity: 0 }),
  ];
  const answers = [
    response.atomicAck({ psn: 100, msn: 3, original }),
    response.readOnly({ psn: 101, msn: 3 }),
    response.readOnly({ psn: 102, msn: 3 }),
  ];
  c.in(0, ...all).out(...answers);
  c.rig.x.mrDereg(flushed.mr);
  c.in(1, ...all).out(...answers);
});
