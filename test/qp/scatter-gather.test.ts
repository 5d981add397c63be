/** Messages scattered over many SGEs, on both sides, and inline data. */
import { describe, expect, test } from 'vitest';
import { ack, nak, request, response } from '../../src/probe/packet/packets.js';
import { type Conversation, pattern, type RcOptions, rc, TARGET_VA } from '../kit/conversation.js';
import { Random } from '../kit/random.js';
import type { Piece, Region } from '../kit/rig.js';

const MTU = 256;

/** `count` SGEs of odd lengths, some empty, in no order of memory, without overlap. */
function scattered(region: Region, lengths: readonly number[]): Piece[] {
  let at = 1;
  const pieces = lengths.map((length) => {
    const piece = region.piece(at, length);
    at += length + 3;
    return piece;
  });
  const odd = pieces.filter((_, i) => i % 2 === 1);
  return [...odd, ...pieces.filter((_, i) => i % 2 === 0)];
}

function gathered(c: Conversation, pieces: readonly Piece[]): Uint8Array {
  return Buffer.concat(pieces.map(({ ptr, length }) => c.rig.bytesAt(ptr, length)));
}

const SPLITS: Record<string, number[]> = {
  'one byte each': new Array<number>(32).fill(1),
  'odd lengths': Array.from({ length: 32 }, (_, i) => (i * 37) % 101),
  'empty ones at both ends and in between': [0, 0, 300, 0, 1, 255, 0, 256, 257, 0],
  'borders at those of packets': [256, 256, 512, 1, 255],
  'borders one beside those of packets': [255, 2, 254, 257, 1],
  'one alone': [1000],
  'only empty ones': [0, 0, 0],
};
const options: RcOptions = { mtu: MTU, sge: 32 };

describe.each(Object.entries(SPLITS))('SGEs: %s', (_, lengths) => {
  test('of a SEND leave one behind the other', async () => {
    const c = await rc(options);
    const pieces = scattered(c.buffer, lengths);
    const packets = request.send({ psn: 1000, payload: gathered(c, pieces), mtu: MTU });
    c.post(0, { wrId: 1, opcode: 'SEND', pieces })
      .out(...packets)
      .in(1, ack({ psn: 999 + packets.length, msn: 1 }))
      .wc({ wrId: 1 });
  });

  test('of a receive are filled one after the other', async () => {
    const c = await rc(options);
    const pieces = scattered(c.buffer, lengths);
    const payload = pattern(gathered(c, pieces).length, 77);
    const before = c.buffer.bytes.slice();
    c.qp.recv(1, pieces);
    const packets = request.send({ psn: 100, payload, mtu: MTU });
    c.in(0, ...packets)
      .out(ack({ psn: 99 + packets.length, msn: 1 }))
      .wc({ wrId: 1, byteLen: payload.length });
    expect(gathered(c, pieces)).toEqual(Buffer.from(payload));
    expectOnly(c, pieces, before);
  });

  test('of a READ are filled from its responses', async () => {
    const c = await rc(options);
    const pieces = scattered(c.buffer, lengths);
    const payload = pattern(gathered(c, pieces).length, 78);
    const before = c.buffer.bytes.slice();
    const remote = { va: 0x1000n, rkey: 5 };
    c.post(0, { wrId: 1, opcode: 'RDMA_READ', pieces, remote })
      .out(request.read({ psn: 1000, ...remote, length: payload.length, ackReq: true }))
      .in(1, ...response.read({ psn: 1000, msn: 1, payload, mtu: MTU }))
      .wc({ wrId: 1, byteLen: payload.length });
    expect(gathered(c, pieces)).toEqual(Buffer.from(payload));
    expectOnly(c, pieces, before);
  });
});

/** Only the memory of the SGEs has changed. */
function expectOnly(c: Conversation, pieces: readonly Piece[], before: Uint8Array): void {
  const after = c.buffer.bytes.slice();
  for (const { ptr, length } of pieces) {
    const at = ptr - c.buffer.ptr;
    after.set(before.subarray(at, at + length), at);
  }
  expect(Buffer.compare(after, before)).toBe(0);
}

test('a SEND shorter than its receive fills only the first SGEs', async () => {
  const c = await rc(options);
  const pieces = scattered(c.buffer, [10, 20, 30, 40]);
  const before = c.buffer.bytes.slice();
  c.qp.recv(1, pieces);
  c.in(0, request.sendOnly({ psn: 100, payload: pattern(25, 9), ackReq: true }))
    .out(ack({ psn: 100, msn: 1 }))
    .wc({ wrId: 1, byteLen: 25 });
  const [first, second] = pieces as [Piece, Piece];
  const filled = [first, { ...second, length: 25 - first.length }];
  expect(gathered(c, filled)).toEqual(Buffer.from(pattern(25, 9)));
  expectOnly(c, filled, before);
});

test('a repetition finds its place in the middle of the SGEs', async () => {
  const c = await rc(options);
  const pieces = scattered(c.buffer, [100, 200, 3, 400, 77]);
  const payload = gathered(c, pieces);
  const [first, second, third, last] = request.send({ psn: 1000, payload, mtu: MTU });
  if (!first || !second || !third || !last) throw new Error('four packets');
  c.post(0, { wrId: 1, opcode: 'SEND', pieces })
    .out(first, second, third, last)
    .in(1, nak.sequence({ psn: 1002 }))
    .out({ ...third, bth: { ...third.bth, ackReq: true } }, last)
    .in(2, ack({ psn: 1003, msn: 1 }))
    .wc({ wrId: 1, byteLen: payload.length });
});

test('an atomic may return into several SGEs', async () => {
  const c = await rc(options);
  const pieces = [c.buffer.piece(100, 3), c.buffer.piece(50, 0), c.buffer.piece(0, 5)];
  c.post(0, { wrId: 1, opcode: 'ATOMIC_FETCH_AND_ADD', pieces, remote: { va: 8n, rkey: 2 }, compareAdd: 1n });
  c.take();
  c.in(1, response.atomicAck({ psn: 1000, msn: 1, original: 0x0807060504030201n })).wc({ wrId: 1, byteLen: 8 });
  expect([...gathered(c, pieces)]).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
});

describe('inline data', () => {
  const KINDS = {
    SEND: (payload: Uint8Array) => request.sendOnly({ psn: 1000, payload, ackReq: true }),
    SEND_WITH_IMM: (payload: Uint8Array) => request.sendOnlyImm({ psn: 1000, payload, imm: 0, ackReq: true }),
    RDMA_WRITE: (payload: Uint8Array) => request.writeOnly({ psn: 1000, va: 1n, rkey: 2, payload, ackReq: true }),
  };
  test.each(Object.entries(KINDS))('%s', async (opcode, packet) => {
    const c = await rc({ inline: 128 });
    c.post(0, { wrId: 1, opcode, inline: pattern(127), remote: { va: 1n, rkey: 2 } })
      .out(packet(pattern(127)))
      .in(1, ack({ psn: 1000, msn: 1 }))
      .wc({ wrId: 1, byteLen: 127 });
  });

  test('of several packets, and of none', async () => {
    const c = await rc({ inline: 1024, mtu: MTU });
    c.post(
      0,
      { wrId: 1, opcode: 'SEND', inline: pattern(1024) },
      { wrId: 2, opcode: 'SEND', inline: new Uint8Array(0) },
    )
      .out(
        ...request.send({ psn: 1000, payload: pattern(1024), mtu: MTU }),
        request.sendOnly({ psn: 1004, ackReq: true }),
      )
      .in(1, ack({ psn: 1004, msn: 2 }))
      .wc({ wrId: 1, byteLen: 1024 }, { wrId: 2, byteLen: 0 });
  });

  test('is kept for repetitions', async () => {
    const c = await rc();
    const packet = request.sendOnly({ psn: 1000, payload: pattern(9), ackReq: true });
    c.post(0, { wrId: 1, opcode: 'SEND', inline: pattern(9) })
      .out(packet)
      .in(1, nak.sequence({ psn: 1000 }))
      .out(packet)
      .in(2, ack({ psn: 1000, msn: 1 }))
      .wc({ wrId: 1 });
  });
});

test('every length from 0 to 70 arrives whole in both directions, at every alignment', async () => {
  const c = await rc({ signalAll: true });
  const random = new Random(3);
  for (let length = 0; length <= 70; length++) {
    const [from, to] = [random.below(64), random.below(64)];
    const psn = 100 + length;
    const payload = random.bytes(length);
    c.in(length, request.writeOnly({ psn, va: TARGET_VA + BigInt(to), rkey: c.target.rkey, payload, ackReq: true }))
      .out(ack({ psn, msn: length + 1 }))
      .holds(c.target, to, payload)
      .post(length, { wrId: length, opcode: 'SEND', pieces: [c.target.piece(from, length)] })
      .out(request.sendOnly({ psn: 1000 + length, payload: c.target.bytes.slice(from, from + length), ackReq: true }))
      .in(length, ack({ psn: 1000 + length, msn: length + 1 }))
      .wc({ wrId: length, byteLen: length });
  }
});
