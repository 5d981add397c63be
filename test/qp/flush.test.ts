/** FLUSH: a request whose response confirms that earlier writes are globally visible (IBTA A19.4). */
import { describe, expect, test } from 'vitest';
import { rxeFlushIcrc } from '../../src/probe/packet/icrc.js';
import {
  ack,
  decode,
  encodeFrame,
  type Flow,
  nak,
  type Packet,
  request,
  response,
} from '../../src/probe/packet/packets.js';
import { type Conversation, PING, pattern, type RcOptions, rc, TARGET_VA } from '../kit/conversation.js';
import type { Region } from '../kit/rig.js';

const FLUSH_GLOBAL = 256;
const [RXE_FLUSH_ICRC, RXE_FLUSH_ADDRESS] = [1, 2] as const;
const [GLOBAL, PERSISTENT, BOTH] = [1, 2, 3];
const [RANGE, MR] = [0, 1];
const LENGTH = 4096;
/** Offset of the BTH in a frame over IPv4. */
const BTH = 42;
/** Option of a receive descriptor. */
const IP_ID_UNKNOWN = 0x10000;

const conversation = (options: RcOptions = {}): Promise<Conversation> => rc({ access: 15 | FLUSH_GLOBAL, ...options });
const region = (c: Conversation, access = FLUSH_GLOBAL): Region =>
  c.rig.regionAt(c.target.ptr, LENGTH, access, TARGET_VA);

interface What {
  readonly psn?: number;
  readonly va?: bigint;
  readonly length?: number;
  readonly placement?: number;
  readonly selectivity?: number;
}
const flush = (rkey: number, what: What = {}): Packet =>
  request.flush({ psn: 100, va: TARGET_VA, length: LENGTH, placement: GLOBAL, selectivity: RANGE, rkey, ...what });

/** The frame with the ICRC that rxe would compute. */
function asOfRxe(there: Flow, packet: Packet): Uint8Array {
  const bytes = encodeFrame(there, packet);
  return encodeFrame(there, packet, { icrc: rxeFlushIcrc(bytes.subarray(14, -4)) });
}

describe('the responder of a FLUSH', () => {
  test.each([
    ['a range', RANGE],
    ['the whole region', MR],
  ])('%s: sends a READ response without data, behind the WRITE before it', async (_, selectivity) => {
    const c = await conversation();
    const { rkey } = region(c, 15 | FLUSH_GLOBAL);
    c.in(
      0,
      request.writeOnly({ psn: 100, va: TARGET_VA, rkey, payload: PING }),
      flush(rkey, { psn: 101, selectivity, length: 4 }),
    )
      .out(response.readOnly({ psn: 101, msn: 2 }))
      .holds(c.target, 0, PING);
  });

  test('repeats a lost response', async () => {
    const c = await conversation({ maxDestRdAtomic: 1 });
    const { rkey } = region(c);
    c.in(0, flush(rkey))
      .out(response.readOnly({ psn: 100, msn: 1 }))
      .in(1, flush(rkey))
      .out(response.readOnly({ psn: 100, msn: 1 }))
      .in(2, flush(rkey), flush(rkey, { psn: 101 }))
      .out(response.readOnly({ psn: 101, msn: 2 }))
      .in(3, flush(rkey))
      .silent()
      .counts({ duplicate_request: 3, drop_duplicate_unknown: 1 });
  });

  test('asks a peer that does not count its FLUSHes for the one too many again', async () => {
    const c = await conversation({ maxDestRdAtomic: 2 });
    const { rkey } = region(c);
    const all = [100, 101, 102, 103].map((psn) => flush(rkey, { psn }));
    c.in(0, ...all)
      .out(
        response.readOnly({ psn: 100, msn: 2 }),
        response.readOnly({ psn: 101, msn: 2 }),
        nak.sequence({ psn: 102, msn: 2 }),
      )
      .in(1, ...all.slice(2))
      .out(response.readOnly({ psn: 102, msn: 4 }), response.readOnly({ psn: 103, msn: 4 }))
      .state('RTS');
  });

  const RANGES: Record<string, What> = {
    'behind the region': { va: TARGET_VA + 1n },
    'before the region': { va: TARGET_VA - 1n, length: 2 },
    'that wraps': { va: 2n ** 64n - 1n, length: 0x7fffffff },
    'of no bytes somewhere else': { va: 0n, length: 0 },
  };
  test.each(Object.entries(RANGES))('a range %s is refused', async (_, what) => {
    const c = await conversation();
    c.in(0, flush(region(c).rkey, what))
      .out(nak.remoteAccess({ psn: 100 }))
      .state('ERR')
      .events('QP_ACCESS_ERR');
  });
  test.each(Object.entries(RANGES))('ignores a range %s for a whole region', async (_, what) => {
    const c = await conversation();
    c.in(0, flush(region(c).rkey, { ...what, selectivity: MR })).out(response.readOnly({ psn: 100, msn: 1 }));
  });

  describe.each([
    ['range', RANGE],
    ['region', MR],
  ])('a bad key is refused: %s', (_, selectivity) => {
    const KEYS: Record<string, (c: Conversation) => number> = {
      'a region without the right': (c) => c.target.rkey,
      'an unknown key': () => 0x1234,
      'the local key': (c) => region(c).lkey,
      'another domain': (c) => c.rig.regionAt(c.target.ptr, LENGTH, FLUSH_GLOBAL, TARGET_VA, c.rig.x.pdAlloc()).rkey,
      'a fast region that is not registered': (c) => c.rig.x.mrRkey(c.rig.x.mrAllocFast(c.rig.pd)),
    };
    test.each(Object.entries(KEYS))('%s', async (_key, key) => {
      const c = await conversation();
      c.in(0, flush(key(c), { selectivity }))
        .out(nak.remoteAccess({ psn: 100 }))
        .state('ERR')
        .events('QP_ACCESS_ERR');
    });
  });

  const INVALID: Record<string, [What, string, RcOptions?]> = {
    'persistence, which our memory does not have': [{ placement: PERSISTENT }, 'QP_ACCESS_ERR'],
    'persistence beside visibility': [{ placement: BOTH }, 'QP_ACCESS_ERR'],
    'no placement at all': [{ placement: 0 }, 'QP_REQ_ERR'],
    'a placement that does not exist': [{ placement: 5 }, 'QP_REQ_ERR'],
    'a selectivity that does not exist': [{ selectivity: 2 }, 'QP_REQ_ERR'],
    'another one': [{ selectivity: 3 }, 'QP_REQ_ERR'],
    'a queue pair that does not allow it': [{}, 'QP_ACCESS_ERR', { access: 15 }],
    'max_dest_rd_atomic 0': [{}, 'QP_REQ_ERR', { maxDestRdAtomic: 0 }],
  };
  test.each(Object.entries(INVALID))('%s is an invalid request', async (_, [what, event, options]) => {
    const c = await conversation(options);
    c.in(0, flush(region(c).rkey, what))
      .out(nak.invalidRequest({ psn: 100 }))
      .state('ERR')
      .events(event);
  });

  test('drops one that carries data', async () => {
    const c = await conversation();
    const { rkey } = region(c);
    c.in(0, { ...flush(rkey), payload: PING })
      .silent()
      .cardCounts({ drop_length: 1 });
  });

  test('gets a sequence error in the middle of a message', async () => {
    const c = await conversation();
    const { rkey } = region(c);
    const first = { psn: 100, va: TARGET_VA, rkey: c.target.rkey, length: 2000, payload: pattern(1024) };
    c.in(0, request.writeFirst(first), flush(rkey, { psn: 101 }))
      .out(nak.invalidRequest({ psn: 101 }))
      .events('QP_REQ_ERR');
  });
});

describe('the requester of a FLUSH', () => {
  const REMOTE = { va: 0x1000n, rkey: 0x99 };
  const post = (selectivity = RANGE, wrId = 1) => ({
    ...{ wrId, opcode: 'FLUSH', remote: REMOTE, flush: { length: 777, what: GLOBAL | (selectivity << 4) } },
  });
  const asked = (psn: number, selectivity = RANGE): Packet =>
    request.flush({ psn, ...REMOTE, length: 777, placement: GLOBAL, selectivity, ackReq: true });

  test.each([RANGE, MR])('sends selectivity %d with FETH and RETH, in one PSN', async (selectivity) => {
    const c = await rc();
    c.post(0, post(selectivity), { wrId: 2, opcode: 'SEND', inline: PING })
      .out(asked(1000, selectivity), request.sendOnly({ psn: 1001, payload: PING, ackReq: true }))
      .in(1, response.readOnly({ psn: 1000, msn: 1 }), ack({ psn: 1001, msn: 2 }))
      .wc({ wrId: 1, opcode: 'FLUSH' }, { wrId: 2 });
  });

  test('uses one PSN for a range longer than a packet, or than the largest message', async () => {
    const c = await rc();
    c.post(0, { ...post(), flush: { length: 0xffffffff, what: GLOBAL } })
      .out(request.flush({ psn: 1000, ...REMOTE, length: 0xffffffff, placement: 1, selectivity: 0, ackReq: true }))
      .in(1, response.readOnly({ psn: 1000, msn: 1 }))
      .wc({ wrId: 1, opcode: 'FLUSH' });
  });

  test('repeats it when its response is lost', async () => {
    const c = await rc({ timeout: 1 });
    c.post(0, post())
      .out(asked(1000))
      .at(10)
      .out(asked(1000))
      .in(11, response.readOnly({ psn: 1000, msn: 1 }))
      .wc({ wrId: 1, opcode: 'FLUSH' });
  });

  test('counts it against max_rd_atomic, which must be at least 1', async () => {
    const c = await rc({ maxRdAtomic: 1 });
    c.post(0, post(RANGE, 1), post(RANGE, 2))
      .out(asked(1000))
      .in(1, response.readOnly({ psn: 1000, msn: 1 }))
      .wc({ wrId: 1 })
      .out(asked(1001))
      .in(2, response.readOnly({ psn: 1001, msn: 2 }))
      .wc({ wrId: 2 });
    const d = await rc({ maxRdAtomic: 0 });
    expect(d.qp.send(post())).toBe('EINVAL');
  });

  test('needs no memory', async () => {
    const c = await rc();
    expect(c.qp.send({ ...post(), pieces: [c.buffer.piece(0, 4)] })).toBe('EINVAL');
    expect(c.qp.send({ ...post(), inline: PING })).toBe('EINVAL');
  });
});

test('takes a repeated FLUSH of rxe with address 0 for one of the whole region, if the quirk is set', async () => {
  const c = await conversation();
  c.rig.x.qpQuirks(c.qp.handle, RXE_FLUSH_ADDRESS);
  const { rkey } = region(c);
  c.in(0, flush(rkey, { va: 0n }))
    .out(response.readOnly({ psn: 100, msn: 1 }))
    .in(1, flush(rkey, { psn: 101, va: 8n }))
    .out(nak.remoteAccess({ psn: 101, msn: 1 }))
    .events('QP_ACCESS_ERR');
  const d = await conversation({ rig: c.rig });
  d.rig.x.qpQuirks(d.qp.handle, RXE_FLUSH_ADDRESS);
  d.in(2, flush(d.target.rkey, { va: 0n }))
    .out(nak.remoteAccess({ psn: 100 }))
    .events('QP_ACCESS_ERR');
});

describe('the ICRC that rxe gives to a FLUSH', () => {
  const V6 = { srcIp: 'fd00::2', dstIp: 'fd00::1' };
  const v6Ends = {
    localIp: [0xfd, ...Array(14).fill(0), 1],
    remoteIp: [0xfd, ...Array(14).fill(0), 2],
    flow: V6,
  };

  test.each([
    ['IPv4', {}],
    ['IPv6', v6Ends],
  ])('over %s is wrong, unless the quirk is set', async (_, options) => {
    const c = await conversation(options);
    const { rkey } = region(c);
    c.frames(0, asOfRxe(c.there, flush(rkey)))
      .silent()
      .counts({ drop_icrc: 1 });
    c.rig.x.qpQuirks(c.qp.handle, RXE_FLUSH_ICRC);
    c.frames(1, asOfRxe(c.there, flush(rkey)))
      .out(response.readOnly({ psn: 100, msn: 1 }))
      // and the right ICRC is accepted too
      .in(2, flush(rkey, { psn: 101 }))
      .out(response.readOnly({ psn: 101, msn: 2 }));
  });

  test('is told apart from damage', async () => {
    const c = await conversation();
    const { rkey } = region(c);
    c.rig.x.qpQuirks(c.qp.handle, RXE_FLUSH_ICRC);
    const good = asOfRxe(c.there, flush(rkey));
    const damaged = Array.from({ length: good.length - BTH }, (_, i) => {
      const bytes = good.slice();
      bytes[BTH + i] = (bytes[BTH + i] as number) ^ 0x10;
      return bytes;
    });
    c.frames(0, ...damaged)
      .events('QP_ICRC_ERR')
      .silent();
    expect(c.qp.state).toBe('RTS');
    expect(c.qp.attribute('EXPECTED_PSN')).toBe(100);
  });

  test('is recognised on a link that does not see the IP identification', async () => {
    const c = await conversation();
    const packet = flush(region(c).rkey);
    c.rig.x.qpQuirks(c.qp.handle, RXE_FLUSH_ICRC);
    const { icrc } = decode(asOfRxe({ ...c.there, ipId: 0x1234 }, packet));
    c.frameWith(0, encodeFrame(c.there, packet, { icrc }), IP_ID_UNKNOWN).out(response.readOnly({ psn: 100, msn: 1 }));
  });

  test('is accepted for no other packet', async () => {
    const c = await conversation({ receives: 1 });
    c.rig.x.qpQuirks(c.qp.handle, RXE_FLUSH_ICRC);
    c.frames(0, asOfRxe(c.there, request.sendOnly({ psn: 100, payload: PING })))
      .silent()
      .counts({ drop_icrc: 1 });
  });

  test.each([
    ['IPv4', {}],
    ['IPv6', v6Ends],
  ])('is sent over %s only with the quirk, and in a FLUSH alone', async (_, options) => {
    const c = await rc(options);
    const wrs = [
      { wrId: 1, opcode: 'FLUSH', remote: { va: 8n, rkey: 9 }, flush: { length: 10, what: GLOBAL } },
      { wrId: 2, opcode: 'SEND', inline: PING },
    ];
    const wanted = (psn: number): Packet =>
      request.flush({ psn, va: 8n, rkey: 9, length: 10, placement: 1, selectivity: 0, ackReq: true });
    c.rig.x.qpQuirks(c.qp.handle, RXE_FLUSH_ICRC);
    c.post(0, ...wrs);
    const [odd, plain] = c.take();
    expect(odd).toEqual(asOfRxe(c.back, wanted(1000)));
    expect(decode(plain as Uint8Array).icrcOk).toBe(true);
    c.rig.x.qpQuirks(c.qp.handle, 0);
    c.in(1, response.readOnly({ psn: 1000, msn: 1 }), ack({ psn: 1001, msn: 2 }))
      .wc({ wrId: 1 }, { wrId: 2 })
      .post(2, wrs[0] as (typeof wrs)[0])
      .out(wanted(1002));
  });
});
