/** RDMA WRITE, from both sides. */
import { test } from 'vitest';
import { ack, nak, request } from '../../src/probe/packet/packets.js';
import { PING, pattern, rc, send, TARGET_VA } from '../kit/conversation.js';

const NOTHING = new Uint8Array(0);

test('a WRITE places its bytes, makes no completion, and takes no receive', async () => {
  const c = await rc({ receives: 1 });
  c.in(0, request.writeOnly({ psn: 100, va: TARGET_VA + 5n, rkey: c.target.rkey, payload: PING, ackReq: true }))
    .out(ack({ psn: 100, msn: 1 }))
    .wc()
    .holds(c.target, 5, PING)
    .holds(c.target, 9, c.target.bytes.slice(9, 64));
});

test('a WRITE of several packets goes on where the last packet ended', async () => {
  const c = await rc();
  const payload = pattern(3001);
  c.in(0, ...request.write({ psn: 100, va: TARGET_VA + 3n, rkey: c.target.rkey, payload, mtu: 1024 }))
    .out(ack({ psn: 102, msn: 1 }))
    .holds(c.target, 3, payload);
});

test('a WRITE may end with the last byte of the region', async () => {
  const c = await rc();
  const [at, payload] = [c.target.length - 1500, pattern(1500)];
  c.in(0, ...request.write({ psn: 100, va: TARGET_VA + BigInt(at), rkey: c.target.rkey, payload, mtu: 1024 }))
    .out(ack({ psn: 101, msn: 1 }))
    .holds(c.target, at, payload);
});

test('a WRITE with immediate takes a receive, leaves its memory alone, and reports the length of the whole message', async () => {
  const c = await rc({ receives: 2 });
  const [untouched, payload] = [c.buffer.bytes.slice(0, 64), pattern(2500)];
  const at = { va: TARGET_VA, rkey: c.target.rkey };
  c.in(0, ...request.write({ psn: 100, ...at, payload, mtu: 1024, imm: 0x11223344 }))
    .out(ack({ psn: 102, msn: 1 }))
    .wc({ wrId: 1, opcode: 'RECV_RDMA_WITH_IMM', byteLen: 2500, flags: 2, imm: 0x44332211 })
    .holds(c.buffer, 0, untouched)
    .holds(c.target, 0, payload)
    .in(1, request.writeOnlyImm({ psn: 103, ...at, payload: PING, imm: 1, ackReq: true }))
    .out(ack({ psn: 103, msn: 2 }))
    .wc({ wrId: 2, opcode: 'RECV_RDMA_WITH_IMM', byteLen: 4, imm: 0x01000000 });
});

test('a WRITE with immediate may take a receive that has no memory', async () => {
  const c = await rc();
  c.recv(9, 0, 0)
    .in(0, request.writeOnlyImm({ psn: 100, va: TARGET_VA, rkey: c.target.rkey, payload: PING, imm: 1, ackReq: true }))
    .out(ack({ psn: 100, msn: 1 }))
    .wc({ wrId: 9, byteLen: 4 });
});

test('the receive is needed only by the packet with the immediate', async () => {
  const c = await rc({ minRnrTimer: 1 });
  const at = { va: TARGET_VA, rkey: c.target.rkey };
  const [first, last] = request.write({ psn: 100, ...at, payload: pattern(1500), mtu: 1024, imm: 1 });
  if (!first || !last) throw new Error('two packets');
  c.in(0, first)
    .silent()
    .in(1, last)
    .out(nak.rnr({ psn: 101, msn: 0, timer: 1 }))
    .recv(1, 0, 64)
    .in(20, last)
    .out(ack({ psn: 101, msn: 1 }))
    .wc({ wrId: 1, byteLen: 1500 });
});

test('a WRITE without bytes needs neither a valid key nor a valid address', async () => {
  const c = await rc({ receives: 1 });
  c.in(0, request.writeOnly({ psn: 100, va: 0xdeadn, rkey: 0xbad, payload: NOTHING, ackReq: true }))
    .out(ack({ psn: 100, msn: 1 }))
    .in(1, request.writeOnlyImm({ psn: 101, va: 0n, rkey: 0, payload: NOTHING, imm: 5, ackReq: true }))
    .out(ack({ psn: 101, msn: 2 }))
    .wc({ wrId: 1, byteLen: 0, opcode: 'RECV_RDMA_WITH_IMM' });
});

test('the receiver of a SEND finds the bytes of the WRITE before it', async () => {
  const c = await rc({ receives: 1 });
  c.in(
    0,
    request.writeOnly({ psn: 100, va: TARGET_VA, rkey: c.target.rkey, payload: PING }),
    send({ psn: 101, payload: NOTHING }),
  )
    .out(ack({ psn: 101, msn: 2 }))
    .wc({ wrId: 1 })
    .holds(c.target, 0, PING);
});

test('posting a WRITE sends address, key and whole length in its first packet, and only there', async () => {
  const c = await rc({ mtu: 256 });
  const message = c.buffer.bytes.slice(0, 600);
  const remote = { va: 0x1122334455667788n, rkey: 0x99aabbcc };
  c.post(0, { wrId: 4, opcode: 'RDMA_WRITE', pieces: [c.buffer.piece(0, 600)], remote })
    .out(
      request.writeFirst({ psn: 1000, ...remote, length: 600, payload: message.slice(0, 256) }),
      request.writeMiddle({ psn: 1001, payload: message.slice(256, 512) }),
      request.writeLast({ psn: 1002, payload: message.slice(512), ackReq: true }),
    )
    .in(1, ack({ psn: 1002, msn: 1 }))
    .wc({ wrId: 4, opcode: 'RDMA_WRITE', byteLen: 600 });
});

test('posting a WRITE with immediate puts it behind the RETH, or into the last packet', async () => {
  const c = await rc({ mtu: 256 });
  const message = c.buffer.bytes.slice(0, 257);
  const remote = { va: 0x1000n, rkey: 0x77 };
  const wr = { opcode: 'RDMA_WRITE_WITH_IMM', remote, imm: 0x44332211 };
  c.post(0, { ...wr, pieces: [c.buffer.piece(0, 3)] }, { ...wr, pieces: [c.buffer.piece(0, 257)] }, wr)
    .out(
      request.writeOnlyImm({ psn: 1000, ...remote, payload: message.slice(0, 3), imm: 0x11223344, ackReq: true }),
      request.writeFirst({ psn: 1001, ...remote, length: 257, payload: message.slice(0, 256) }),
      request.writeLastImm({ psn: 1002, payload: message.slice(256), imm: 0x11223344, ackReq: true }),
      request.writeOnlyImm({ psn: 1003, ...remote, payload: NOTHING, imm: 0x11223344, ackReq: true }),
    )
    .in(1, ack({ psn: 1003, msn: 3 }))
    .wc({ byteLen: 3, opcode: 'RDMA_WRITE' }, { byteLen: 257 }, { byteLen: 0 });
});
