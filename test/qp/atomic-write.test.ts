/**
 * ATOMIC WRITE: eight bytes that are never seen half written, and whose response is a READ response without data (IBTA
 * A19.4.2).
 */
import { describe, expect, test } from 'vitest';
import { ack, nak, request, response } from '../../src/probe/packet/packets.js';
import { pattern, type RcOptions, rc, TARGET_VA } from '../kit/conversation.js';

const EIGHT = Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8);
const OTHER = EIGHT.map((byte) => byte + 100);
const REMOTE = { va: 0x1000n, rkey: 0x99 };

describe('the responder of an ATOMIC WRITE', () => {
  test('writes the bytes at once, and responds with a READ response without data', async () => {
    const c = await rc();
    c.in(0, request.atomicWrite({ psn: 100, va: TARGET_VA + 8n, rkey: c.target.rkey, payload: EIGHT }))
      .out(response.readOnly({ psn: 100, msn: 1 }))
      .holds(c.target, 8, EIGHT)
      .in(1, request.writeOnly({ psn: 101, va: TARGET_VA, rkey: c.target.rkey, payload: EIGHT, ackReq: true }))
      .out(ack({ psn: 101, msn: 2 }));
  });

  test('works in a region whose memory is unaligned', async () => {
    const c = await rc();
    const odd = c.rig.regionAt(c.target.ptr + 3, 64, 15, 0x8000n);
    c.in(0, request.atomicWrite({ psn: 100, va: 0x8008n, rkey: odd.rkey, payload: EIGHT }))
      .out(response.readOnly({ psn: 100, msn: 1 }))
      .holds(c.target, 11, EIGHT);
  });

  test('repeats a lost response without writing again', async () => {
    const c = await rc();
    const at = { va: TARGET_VA, rkey: c.target.rkey };
    const first = request.atomicWrite({ psn: 100, ...at, payload: EIGHT });
    c.in(0, first, request.atomicWrite({ psn: 101, ...at, payload: OTHER }))
      .out(response.readOnly({ psn: 100, msn: 2 }), response.readOnly({ psn: 101, msn: 2 }))
      .in(1, first)
      .out(response.readOnly({ psn: 100, msn: 2 }))
      .holds(c.target, 0, OTHER)
      .counts({ duplicate_request: 1 });
  });

  test('drops one that it no longer remembers', async () => {
    const c = await rc({ maxDestRdAtomic: 1 });
    const at = { va: TARGET_VA, rkey: c.target.rkey, payload: EIGHT };
    c.in(0, request.atomicWrite({ psn: 100, ...at }))
      .out(response.readOnly({ psn: 100, msn: 1 }))
      .in(1, request.atomicWrite({ psn: 101, ...at }))
      .out(response.readOnly({ psn: 101, msn: 2 }))
      .in(2, request.atomicWrite({ psn: 100, ...at }))
      .silent()
      .counts({ drop_duplicate_unknown: 1 });
  });

  test('takes the next request while a response is repeated', async () => {
    for (const make of [
      (psn: number, at: { va: bigint; rkey: number }) => request.atomicWrite({ psn, ...at, payload: EIGHT }),
      (psn: number, at: { va: bigint; rkey: number }) => request.fetchAdd({ psn, ...at, add: 1n }),
    ]) {
      const c = await rc({ maxDestRdAtomic: 1 });
      const at = { va: TARGET_VA, rkey: c.target.rkey };
      c.in(0, make(100, at));
      expect(c.take()).toHaveLength(1);
      // the peer's timer expires just when the response arrives: it retransmits, and continues at once
      c.in(1, make(100, at), make(101, at));
      expect(c.take()).toHaveLength(1);
      c.state('RTS');
    }
  });

  test('refuses more than max_dest_rd_atomic at once as an invalid request', async () => {
    const c = await rc({ maxDestRdAtomic: 2 });
    const at = { va: TARGET_VA, rkey: c.target.rkey, payload: EIGHT };
    c.in(0, ...[100, 101, 102].map((psn) => request.atomicWrite({ psn, ...at })))
      .out(
        response.readOnly({ psn: 100, msn: 2 }),
        response.readOnly({ psn: 101, msn: 2 }),
        nak.invalidRequest({ psn: 102, msn: 2 }),
      )
      .state('ERR')
      .events('QP_REQ_ERR');
  });

  const INVALID: Record<string, [Partial<{ length: number; payload: Uint8Array; offset: bigint }>, RcOptions?]> = {
    'a RETH length of 4': [{ length: 4 }],
    'a RETH length of 16': [{ length: 16 }],
    'a RETH length of 0': [{ length: 0 }],
    '7 bytes of payload': [{ payload: EIGHT.slice(0, 7) }],
    'no payload': [{ payload: new Uint8Array(0) }],
    '16 bytes of payload': [{ payload: pattern(16) }],
    'an address that is no multiple of 8': [{ offset: 4n }],
    'a queue pair that does not allow remote write': [{}, { access: 13 }],
    'max_dest_rd_atomic 0': [{}, { maxDestRdAtomic: 0 }],
  };
  test.each(Object.entries(INVALID))('%s is an invalid request', async (why, [change, options]) => {
    const c = await rc(options);
    const { offset = 0n, ...rest } = change;
    c.in(0, request.atomicWrite({ psn: 100, va: TARGET_VA + offset, rkey: c.target.rkey, payload: EIGHT, ...rest }))
      .out(nak.invalidRequest({ psn: 100 }))
      .state('ERR')
      .events(why.includes('queue pair') ? 'QP_ACCESS_ERR' : 'QP_REQ_ERR');
  });

  test('needs the right to write, not that of atomics', async () => {
    const c = await rc({ access: 3 });
    const [writable, atomic] = [3, 9].map((access) => c.rig.regionAt(c.target.ptr, 64, access, TARGET_VA));
    if (!writable || !atomic) throw new Error('two regions');
    c.in(0, request.atomicWrite({ psn: 100, va: TARGET_VA, rkey: writable.rkey, payload: EIGHT }))
      .out(response.readOnly({ psn: 100, msn: 1 }))
      .in(1, request.atomicWrite({ psn: 101, va: TARGET_VA, rkey: atomic.rkey, payload: EIGHT }))
      .out(nak.remoteAccess({ psn: 101, msn: 1 }))
      .events('QP_ACCESS_ERR');
  });

  test('needs all eight bytes in the region', async () => {
    const c = await rc();
    const short = c.rig.regionAt(c.target.ptr, 12, 15, TARGET_VA);
    c.in(0, request.atomicWrite({ psn: 100, va: TARGET_VA + 8n, rkey: short.rkey, payload: EIGHT }))
      .out(nak.remoteAccess({ psn: 100 }))
      .events('QP_ACCESS_ERR');
  });

  test('gets a sequence error in the middle of a message', async () => {
    const c = await rc({ receives: 1 });
    c.in(
      0,
      request.sendFirst({ psn: 100, payload: pattern(1024) }),
      request.atomicWrite({ psn: 101, va: TARGET_VA, rkey: c.target.rkey, payload: EIGHT }),
    )
      .out(nak.invalidRequest({ psn: 101 }))
      .wc({ status: 'LOC_QP_OP_ERR' });
  });
});

describe('the requester of an ATOMIC WRITE', () => {
  test('sends a RETH of 8 bytes, then the bytes, inline or from memory', async () => {
    const c = await rc();
    c.post(
      0,
      { wrId: 1, opcode: 'ATOMIC_WRITE', inline: EIGHT, remote: REMOTE },
      { wrId: 2, opcode: 'ATOMIC_WRITE', pieces: [c.buffer.piece(1, 3), c.buffer.piece(9, 5)], remote: REMOTE },
    );
    const gathered = Uint8Array.from([...c.buffer.bytes.slice(1, 4), ...c.buffer.bytes.slice(9, 14)]);
    c.out(
      request.atomicWrite({ psn: 1000, ...REMOTE, payload: EIGHT, ackReq: true }),
      request.atomicWrite({ psn: 1001, ...REMOTE, payload: gathered, ackReq: true }),
    )
      .in(1, response.readOnly({ psn: 1000, msn: 1 }))
      .wc({ wrId: 1, opcode: 'ATOMIC_WRITE', byteLen: 8 })
      .in(2, response.readOnly({ psn: 1001, msn: 2 }))
      .wc({ wrId: 2, opcode: 'ATOMIC_WRITE' });
  });

  test('may read from a region with no right but reading', async () => {
    const c = await rc();
    const readable = c.rig.regionAt(c.buffer.ptr, 64, 0);
    c.post(0, { wrId: 1, opcode: 'ATOMIC_WRITE', pieces: [readable.piece(0, 8)], remote: REMOTE });
    expect(c.take()).toHaveLength(1);
    c.in(1, response.readOnly({ psn: 1000, msn: 1 })).wc({ wrId: 1 });
  });

  test('counts it against max_rd_atomic, and a fence waits for it', async () => {
    const c = await rc({ maxRdAtomic: 1 });
    const write = { opcode: 'ATOMIC_WRITE', inline: EIGHT, remote: REMOTE };
    c.post(
      0,
      { wrId: 1, ...write },
      { wrId: 2, ...write },
      { wrId: 3, opcode: 'RDMA_WRITE', inline: EIGHT, remote: REMOTE, fence: true },
    )
      .out(request.atomicWrite({ psn: 1000, ...REMOTE, payload: EIGHT, ackReq: true }))
      .in(1, response.readOnly({ psn: 1000, msn: 1 }))
      .out(request.atomicWrite({ psn: 1001, ...REMOTE, payload: EIGHT, ackReq: true }))
      .wc({ wrId: 1 })
      .in(2, response.readOnly({ psn: 1001, msn: 2 }))
      .out(request.writeOnly({ psn: 1002, ...REMOTE, payload: EIGHT, ackReq: true }))
      .wc({ wrId: 2 })
      .in(3, ack({ psn: 1002, msn: 3 }))
      .wc({ wrId: 3 });
  });

  test('needs its response: an ACK behind it repeats it', async () => {
    const c = await rc();
    const again = request.atomicWrite({ psn: 1000, ...REMOTE, payload: EIGHT, ackReq: true });
    const write = request.writeOnly({ psn: 1001, ...REMOTE, payload: OTHER, ackReq: true });
    c.post(
      0,
      { wrId: 1, opcode: 'ATOMIC_WRITE', inline: EIGHT, remote: REMOTE },
      { wrId: 2, opcode: 'RDMA_WRITE', inline: OTHER, remote: REMOTE },
    )
      .out(again, write)
      .in(1, ack({ psn: 1001, msn: 2 }))
      .out(again, write)
      .counts({ implied_nak_seq_err: 1 })
      .in(2, response.readOnly({ psn: 1000, msn: 2 }), ack({ psn: 1001, msn: 2 }))
      .wc({ wrId: 1 }, { wrId: 2 });
  });

  test('fails with a length error for a response with data', async () => {
    const c = await rc();
    c.post(0, { wrId: 1, opcode: 'ATOMIC_WRITE', inline: EIGHT, remote: REMOTE });
    c.take();
    c.in(1, response.readOnly({ psn: 1000, msn: 1, payload: EIGHT })).wc({ wrId: 1, status: 'LOC_LEN_ERR' });
  });

  test('takes no response of several packets, and no atomic one', async () => {
    for (const answer of [
      response.readFirst({ psn: 1000, msn: 1, payload: pattern(1024) }),
      response.atomicAck({ psn: 1000, msn: 1, original: 0n }),
    ]) {
      const c = await rc();
      c.post(0, { wrId: 1, opcode: 'ATOMIC_WRITE', inline: EIGHT, remote: REMOTE });
      c.take();
      c.in(1, answer).wc({ wrId: 1, status: 'BAD_RESP_ERR' });
    }
  });

  test('fails as a NAK of the peer says', async () => {
    const c = await rc();
    c.post(0, { wrId: 1, opcode: 'ATOMIC_WRITE', inline: EIGHT, remote: REMOTE });
    c.take();
    c.in(1, nak.remoteAccess({ psn: 1000 })).wc({ wrId: 1, opcode: 'ATOMIC_WRITE', status: 'REM_ACCESS_ERR' });
  });

  test('posts eight bytes only, and needs max_rd_atomic of 1', async () => {
    const c = await rc();
    for (const length of [0, 7, 9])
      expect(c.qp.send({ opcode: 'ATOMIC_WRITE', inline: new Uint8Array(length), remote: REMOTE })).toBe('EINVAL');
    expect(c.qp.send({ opcode: 'ATOMIC_WRITE', pieces: [c.buffer.piece(0, 16)], remote: REMOTE })).toBe('EINVAL');
    const d = await rc({ maxRdAtomic: 0 });
    expect(d.qp.send({ opcode: 'ATOMIC_WRITE', inline: EIGHT, remote: REMOTE })).toBe('EINVAL');
  });
});
