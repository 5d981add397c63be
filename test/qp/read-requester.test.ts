/** RDMA READ and atomics, requester side: responses in order, out of order, missing and wrong. */
import { describe, expect, test } from 'vitest';
import { ack, type Packet, request, response } from '../../src/probe/packet/packets.js';
import { type Conversation, PING, pattern, rc } from '../kit/conversation.js';

const REMOTE = { va: 0xffff_ffff_0000n, rkey: 0x77 };
const DATA = pattern(4000, 99);
const wr = (c: Conversation, wrId: number, length: number, at = 0) => ({
  wrId,
  opcode: 'RDMA_READ',
  pieces: [c.buffer.piece(at, length)],
  remote: REMOTE,
});
const asked = (psn: number, length: number, from = 0): Packet =>
  request.read({ psn, va: REMOTE.va + BigInt(from), rkey: REMOTE.rkey, length, ackReq: true });
const answers = (psn: number, length: number, msn = 1): Packet[] =>
  response.read({ psn, msn, payload: DATA.slice(0, length), mtu: 1024 });
const part = (from: number, to: number) => DATA.slice(from, to);
const ping = (wrId: number) => ({ wrId, opcode: 'SEND', inline: PING });
const sent = (psn: number): Packet => request.sendOnly({ psn, payload: PING, ackReq: true });

test('a READ takes a PSN for each packet of its response, and completes with the last', async () => {
  const c = await rc();
  c.post(0, wr(c, 1, 2500, 10), ping(2))
    .out(asked(1000, 2500), sent(1003))
    .in(1, ...answers(1000, 2500).slice(0, 2))
    .wc()
    .in(2, ...answers(1000, 2500).slice(2))
    .wc({ wrId: 1, opcode: 'RDMA_READ', byteLen: 2500 })
    .holds(c.buffer, 10, part(0, 2500))
    .in(3, ack({ psn: 1003, msn: 2 }))
    .wc({ wrId: 2 });
});

test('a READ without bytes is completed by an empty response', async () => {
  const c = await rc();
  c.post(0, { wrId: 1, opcode: 'RDMA_READ', remote: REMOTE })
    .out(asked(1000, 0))
    .in(1, response.readOnly({ psn: 1000, msn: 1 }))
    .wc({ wrId: 1, byteLen: 0 });
});

test('a READ response acknowledges the requests before it', async () => {
  const c = await rc();
  c.post(0, ping(1), wr(c, 2, 8))
    .out(sent(1000), asked(1001, 8))
    .in(1, ...answers(1001, 8))
    .wc({ wrId: 1 }, { wrId: 2 });
});

test('an ACK behind a READ whose response is missing is an implied NAK: the READ is sent again, once', async () => {
  const c = await rc();
  c.post(0, wr(c, 1, 8), ping(2))
    .out(asked(1000, 8), sent(1001))
    .in(1, ack({ psn: 1001, msn: 2 }))
    .out(asked(1000, 8), sent(1001))
    .in(2, ack({ psn: 1001, msn: 2 }))
    .silent()
    .wc()
    .in(3, ...answers(1000, 8))
    .wc({ wrId: 1 })
    .in(4, ack({ psn: 1001, msn: 2 }))
    .wc({ wrId: 2 })
    .counts({ implied_nak_seq_err: 1 });
});

test('a hole in the response: the rest of the READ is requested at once, and what else comes is ignored', async () => {
  const c = await rc();
  const [first, second, third, last] = answers(1000, 4000);
  if (!first || !second || !third || !last) throw new Error('four packets');
  c.post(0, wr(c, 1, 4000))
    .out(asked(1000, 4000))
    .in(1, first)
    .silent()
    .in(2, third)
    .out(asked(1001, 2976, 1024))
    .in(3, last)
    .silent()
    .in(4, ...response.read({ psn: 1001, msn: 1, payload: part(1024, 4000), mtu: 1024 }))
    .wc({ wrId: 1, byteLen: 4000 })
    .holds(c.buffer, 0, DATA)
    .counts({ implied_nak_seq_err: 1, retransmits: 1 });
});

test('a READ that was repeated is repeated again when a hole shows later than a usual response', async () => {
  const c = await rc();
  const [first, , third, last] = answers(1000, 4000);
  if (!first || !third || !last) throw new Error('packets');
  c.post(1, wr(c, 1, 4000))
    .out(asked(1000, 4000))
    .in(11, first)
    .silent()
    .in(12, third)
    .out(asked(1001, 2976, 1024))
    // the first round trip took 10 us, and its bound is 30
    .in(12 + 30, last)
    .silent()
    .in(12 + 31, third)
    .out(asked(1001, 2976, 1024))
    .in(12 + 41, ...response.read({ psn: 1001, msn: 1, payload: part(1024, 4000), mtu: 1024 }))
    .wc({ wrId: 1, byteLen: 4000 })
    .counts({ implied_nak_seq_err: 1, retransmits: 2 });
});

test('the rest of a READ may also come with the opcodes MIDDLE and LAST (rxe)', async () => {
  const c = await rc();
  const [first, , third] = answers(1000, 4000);
  if (!first || !third) throw new Error('packets');
  c.post(0, wr(c, 1, 4000))
    .out(asked(1000, 4000))
    .in(1, first, third)
    .out(asked(1001, 2976, 1024))
    .in(2, response.readMiddle({ psn: 1001, payload: part(1024, 2048) }))
    .in(3, response.readMiddle({ psn: 1002, payload: part(2048, 3072) }))
    .in(4, response.readLast({ psn: 1003, msn: 1, payload: part(3072, 4000) }))
    .wc({ wrId: 1, byteLen: 4000 })
    .holds(c.buffer, 0, DATA);
});

test('a rest of one packet may come as LAST or as ONLY', async () => {
  for (const make of [response.readLast, response.readOnly]) {
    const c = await rc({ timeout: 1 });
    c.post(0, wr(c, 1, 1500))
      .out(asked(1000, 1500))
      .in(1, ...answers(1000, 1500).slice(0, 1))
      .at(10)
      .out(asked(1001, 476, 1024))
      .in(11, make({ psn: 1001, msn: 1, payload: part(1024, 1500) }))
      .wc({ wrId: 1, byteLen: 1500 })
      .holds(c.buffer, 0, part(0, 1500));
  }
});

test('a response that has arrived already is ignored, and not written again', async () => {
  const c = await rc();
  const [first, last] = answers(1000, 1500);
  if (!first || !last) throw new Error('two packets');
  c.post(0, wr(c, 1, 1500))
    .out(asked(1000, 1500))
    .in(1, first);
  c.buffer.bytes.fill(0, 0, 1024);
  c.in(2, first)
    .in(3, last)
    .wc({ wrId: 1 })
    .in(4, last)
    .holds(c.buffer, 0, new Uint8Array(1024))
    .counts({ drop_ghost_response: 2 });
});

test('the PSNs of a READ wrap at 2^24, also when it is repeated', async () => {
  const c = await rc({ sqPsn: 0xfffffe });
  const [first, , third] = answers(0xfffffe, 4000);
  if (!first || !third) throw new Error('packets');
  c.post(0, wr(c, 1, 4000), ping(2))
    .out(asked(0xfffffe, 4000), sent(2))
    .in(1, first, third)
    .out(asked(0xffffff, 2976, 1024), sent(2))
    .in(2, ...response.read({ psn: 0xffffff, msn: 1, payload: part(1024, 4000), mtu: 1024 }))
    .wc({ wrId: 1 })
    .holds(c.buffer, 0, DATA)
    .in(3, ack({ psn: 2, msn: 2 }))
    .wc({ wrId: 2 });
});

test('requests behind a repeated READ are repeated too', async () => {
  const c = await rc();
  c.post(0, wr(c, 1, 8), wr(c, 2, 8, 8), ping(3))
    .out(asked(1000, 8), asked(1001, 8), sent(1002))
    .in(1, ...answers(1001, 8))
    .out(asked(1000, 8), asked(1001, 8), sent(1002))
    .in(2, ...answers(1000, 8), ...answers(1001, 8), ack({ psn: 1002, msn: 3 }))
    .wc({ wrId: 1 }, { wrId: 2 }, { wrId: 3 });
});

test('an atomic whose response is missing is repeated with the same PSN', async () => {
  const c = await rc();
  const add = request.fetchAdd({ psn: 1000, ...REMOTE, add: 3n, ackReq: true });
  c.post(0, { wrId: 1, opcode: 'ATOMIC_FETCH_AND_ADD', pieces: [c.buffer.piece(0, 8)], remote: REMOTE, compareAdd: 3n })
    .out(add)
    .post(1, ping(2))
    .out(sent(1001))
    .in(2, ack({ psn: 1001, msn: 2 }))
    .out(add, sent(1001))
    .in(3, response.atomicAck({ psn: 1000, msn: 2, original: 9n }))
    .wc({ wrId: 1, opcode: 'FETCH_ADD' })
    .in(4, ack({ psn: 1001, msn: 2 }))
    .wc({ wrId: 2 });
});

describe('a response of the wrong length fails the READ', () => {
  const cases: Record<string, Packet[]> = {
    'a short FIRST': [response.readFirst({ psn: 1000, msn: 1, payload: part(0, 1020) })],
    'a long FIRST': [response.readFirst({ psn: 1000, msn: 1, payload: part(0, 1028) })],
    'a short LAST': [
      ...answers(1000, 2500).slice(0, 2),
      response.readLast({ psn: 1002, msn: 1, payload: part(0, 451) }),
    ],
    'a long LAST': [
      ...answers(1000, 2500).slice(0, 2),
      response.readLast({ psn: 1002, msn: 1, payload: part(0, 453) }),
    ],
    'an empty LAST': [...answers(1000, 2500).slice(0, 2), response.readLast({ psn: 1002, msn: 1 })],
  };
  test.each(Object.entries(cases))('%s', async (_, packets) => {
    const c = await rc();
    const behind = c.buffer.bytes.slice(2500, 4000);
    c.post(0, wr(c, 1, 2500))
      .out(asked(1000, 2500))
      .in(1, ...packets)
      .wc({ wrId: 1, status: 'LOC_LEN_ERR', opcode: 'RDMA_READ' })
      .state('ERR')
      .holds(c.buffer, 2500, behind);
  });
});

describe('a response of the wrong kind fails the oldest request', () => {
  const cases: Record<string, [(c: Conversation) => object, Packet]> = {
    'data for a SEND': [() => ping(1), response.readOnly({ psn: 1000, msn: 1, payload: PING })],
    'an original for a SEND': [() => ping(1), response.atomicAck({ psn: 1000, msn: 1, original: 1n })],
    'an original for a READ': [(c) => wr(c, 1, 8), response.atomicAck({ psn: 1000, msn: 1, original: 1n })],
    'a LAST too early': [(c) => wr(c, 1, 2000), response.readOnly({ psn: 1000, msn: 1, payload: part(0, 1024) })],
    'a FIRST where the last is due': [
      (c) => wr(c, 1, 1024),
      response.readFirst({ psn: 1000, msn: 1, payload: part(0, 1024) }),
    ],
  };
  test.each(Object.entries(cases))('%s', async (_, [post, packet]) => {
    const c = await rc();
    c.post(0, post(c) as Parameters<typeof c.post>[1]);
    expect(c.take()).toHaveLength(1);
    c.in(1, packet).wc({ wrId: 1, status: 'BAD_RESP_ERR' }).state('ERR');
  });
});

test('a READ into memory that is closed meanwhile fails with a local error', async () => {
  const c = await rc();
  const mr = c.rig.region(64);
  c.post(0, { wrId: 1, opcode: 'RDMA_READ', pieces: [mr.piece(0, 8)], remote: REMOTE })
    .out(asked(1000, 8))
    .at(1, () => c.rig.x.mrDereg(mr.mr))
    .in(2, ...answers(1000, 8))
    .wc({ wrId: 1, status: 'LOC_PROT_ERR' })
    .state('ERR')
    .holds(mr, 0, new Uint8Array(8));
});

test('a READ into memory without the right to write is not sent', async () => {
  const c = await rc();
  const mr = c.rig.regionAt(c.buffer.ptr, 64, 4);
  c.post(0, { wrId: 1, opcode: 'RDMA_READ', pieces: [mr.piece(0, 8)], remote: REMOTE })
    .silent()
    .wc({ wrId: 1, status: 'LOC_PROT_ERR' })
    .state('ERR');
});
