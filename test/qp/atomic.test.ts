/** COMPARE_SWAP and FETCH_ADD, from both sides. */
import { expect, test } from 'vitest';
import { encodeFrame, nak, request, response } from '../../src/probe/packet/packets.js';
import { type Conversation, rc, TARGET_VA } from '../kit/conversation.js';

function word(c: Conversation, value?: bigint): bigint {
  const view = new DataView(c.target.bytes.buffer, c.target.bytes.byteOffset, 8);
  if (value !== undefined) view.setBigUint64(0, value, true);
  return view.getBigUint64(0, true);
}

const at = (c: Conversation) => ({ va: TARGET_VA, rkey: c.target.rkey });

test('COMPARE_SWAP swaps if the memory compares equal, and returns the original', async () => {
  const c = await rc();
  word(c, 0x1122334455667788n);
  c.in(0, request.compareSwap({ psn: 100, ...at(c), compare: 0x1122334455667788n, swap: 0xaan })).out(
    response.atomicAck({ psn: 100, msn: 1, original: 0x1122334455667788n }),
  );
  expect(word(c)).toBe(0xaan);
});

test('COMPARE_SWAP changes nothing if the memory compares unequal', async () => {
  const c = await rc();
  word(c, 5n);
  c.in(0, request.compareSwap({ psn: 100, ...at(c), compare: 6n, swap: 9n })).out(
    response.atomicAck({ psn: 100, msn: 1, original: 5n }),
  );
  expect(word(c)).toBe(5n);
});

test('FETCH_ADD adds modulo 2^64', async () => {
  const c = await rc();
  word(c, 0xffff_ffff_ffff_fffen);
  c.in(0, request.fetchAdd({ psn: 100, ...at(c), add: 5n })).out(
    response.atomicAck({ psn: 100, msn: 1, original: 0xffff_ffff_ffff_fffen }),
  );
  expect(word(c)).toBe(3n);
});

test('a duplicate atomic gets the saved response, and is not executed again', async () => {
  const c = await rc();
  word(c, 40n);
  const add = request.fetchAdd({ psn: 100, ...at(c), add: 2n });
  const swap = request.compareSwap({ psn: 101, ...at(c), compare: 42n, swap: 7n });
  c.in(0, add)
    .out(response.atomicAck({ psn: 100, msn: 1, original: 40n }))
    .in(1, swap)
    .out(response.atomicAck({ psn: 101, msn: 2, original: 42n }));
  word(c, 1000n);
  c.in(5, add)
    .out(response.atomicAck({ psn: 100, msn: 2, original: 40n }))
    .in(6, swap)
    .out(response.atomicAck({ psn: 101, msn: 2, original: 42n }))
    .counts({ duplicate_request: 2, rx_atomic_requests: 2 });
  expect(word(c)).toBe(1000n);
});

test('a duplicate atomic that is no longer remembered is dropped', async () => {
  const c = await rc({ maxDestRdAtomic: 1 });
  word(c, 0n);
  const add = (psn: number) => request.fetchAdd({ psn, ...at(c), add: 1n });
  c.in(0, add(100))
    .out(response.atomicAck({ psn: 100, msn: 1, original: 0n }))
    .in(1, add(101))
    .out(response.atomicAck({ psn: 101, msn: 2, original: 1n }))
    .in(2, add(100))
    .silent()
    .counts({ drop_duplicate_unknown: 1 });
  expect(word(c)).toBe(2n);
});

test('a duplicate READ gets no atomic’s response, nor an atomic a READ’s', async () => {
  const c = await rc();
  const payload = c.target.bytes.slice(0, 8);
  c.in(0, request.read({ psn: 100, ...at(c), length: 8 }))
    .out(response.readOnly({ psn: 100, msn: 1, payload }))
    .in(1, request.fetchAdd({ psn: 100, ...at(c), add: 1n }))
    .silent()
    .in(2, request.fetchAdd({ psn: 101, ...at(c), add: 0n }))
    .out(response.atomicAck({ psn: 101, msn: 2, original: word(c) }))
    .in(3, request.read({ psn: 101, ...at(c), length: 8 }))
    .silent()
    .counts({ drop_duplicate_unknown: 2 });
});

test('an atomic at an address that is no multiple of 8 is an invalid request', async () => {
  for (const offset of [1n, 2n, 4n, 7n]) {
    const c = await rc();
    c.in(0, request.fetchAdd({ psn: 100, va: TARGET_VA + offset, rkey: c.target.rkey, add: 1n }))
      .out(nak.invalidRequest({ psn: 100 }))
      .state('ERR')
      .events('QP_REQ_ERR');
  }
});

test('with max_dest_rd_atomic 0 an atomic is an invalid request', async () => {
  const c = await rc({ maxDestRdAtomic: 0 });
  c.in(0, request.fetchAdd({ psn: 100, ...at(c), add: 1n }))
    .out(nak.invalidRequest({ psn: 100 }))
    .state('ERR')
    .events('QP_REQ_ERR');
});

test('an atomic works in a region whose memory is unaligned', async () => {
  const c = await rc();
  const odd = c.rig.regionAt(c.target.ptr + 3, 64, 15, 0x8000n);
  new DataView(odd.bytes.buffer, odd.bytes.byteOffset).setBigUint64(8, 11n, true);
  c.in(0, request.fetchAdd({ psn: 100, va: 0x8008n, rkey: odd.rkey, add: 4n }))
    .out(response.atomicAck({ psn: 100, msn: 1, original: 11n }))
    .in(1, request.compareSwap({ psn: 101, va: 0x8008n, rkey: odd.rkey, compare: 15n, swap: 1n }))
    .out(response.atomicAck({ psn: 101, msn: 2, original: 15n }));
  expect(new DataView(odd.bytes.buffer, odd.bytes.byteOffset).getBigUint64(8, true)).toBe(1n);
});

test('posting atomics sends their operands; the original arrives in the byte order of the host', async () => {
  const c = await rc();
  const remote = { va: 0x1000n, rkey: 0x99 };
  const [compareAdd, swap] = [0x0102030405060708n, 0x1112131415161718n];
  c.post(
    0,
    { wrId: 1, opcode: 'ATOMIC_CMP_AND_SWP', pieces: [c.buffer.piece(0, 8)], remote, compareAdd, swap },
    { wrId: 2, opcode: 'ATOMIC_FETCH_AND_ADD', pieces: [c.buffer.piece(8, 8)], remote, compareAdd },
  )
    .out(
      request.compareSwap({ psn: 1000, ...remote, compare: compareAdd, swap, ackReq: true }),
      request.fetchAdd({ psn: 1001, ...remote, add: compareAdd, ackReq: true }),
    )
    .in(1, response.atomicAck({ psn: 1000, msn: 1, original: 0x2122232425262728n }))
    .wc({ wrId: 1, opcode: 'COMP_SWAP', byteLen: 8 })
    .holds(c.buffer, 0, Uint8Array.of(0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21))
    .in(2, response.atomicAck({ psn: 1001, msn: 2, original: 1n }))
    .wc({ wrId: 2, opcode: 'FETCH_ADD', byteLen: 8 })
    .holds(c.buffer, 8, Uint8Array.of(1, 0, 0, 0, 0, 0, 0, 0));
});

test('an atomic without local memory for its response fails, and is not sent', async () => {
  const c = await rc();
  const wr = { opcode: 'ATOMIC_FETCH_AND_ADD', remote: { va: 0x1000n, rkey: 0x99 }, compareAdd: 1n };
  c.post(0, { wrId: 1, ...wr, pieces: [{ ptr: c.buffer.ptr, length: 8, lkey: c.buffer.lkey + 1 }] })
    .silent()
    .wc({ wrId: 1, status: 'LOC_PROT_ERR', opcode: 'FETCH_ADD' })
    .state('ERR');
});

test('posting an atomic of other than 8 bytes is refused', async () => {
  const c = await rc();
  const wr = { opcode: 'ATOMIC_FETCH_AND_ADD', remote: { va: 0, rkey: 0 }, compareAdd: 1n };
  for (const length of [0, 4, 7, 9, 16])
    expect(c.qp.send({ ...wr, pieces: [c.buffer.piece(0, length)] }), `${length}`).toBe('EINVAL');
  expect(c.qp.send({ ...wr, inline: new Uint8Array(8) }), 'inline').toBe('EINVAL');
  c.at(1).silent();
});

// A queue pair in SQD still serves its peer.
test.each([
  ['more', 8],
  ['fewer', 1],
])('responses that are still due are kept when the peer may have %s outstanding', async (_, depth) => {
  const c = await rc({ maxDestRdAtomic: 2 });
  const add = (psn: number) => request.fetchAdd({ psn, ...at(c), add: 1n });
  const answer = (psn: number) => response.atomicAck({ psn, msn: psn - 99, original: BigInt(psn) });
  word(c, 100n);
  c.in(0, add(100))
    .out(answer(100))
    .at(1, () => {
      c.qp.modify({ STATE: 4 });
      c.rig.put(encodeFrame(c.there, add(101)));
      c.rig.x.rx(1000, 1);
      c.qp.modify({ MAX_DEST_RD_ATOMIC: depth });
    })
    .out(answer(101))
    .in(2, add(101))
    .out(answer(101));
  // the older one is kept where there is room for it
  c.in(3, add(100)).out(...(depth > 1 ? [response.atomicAck({ psn: 100, msn: 2, original: 100n })] : []));
  expect(word(c)).toBe(102n);
});
