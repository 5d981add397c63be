/**
 * SEND, from both sides. Start reading here: each test is a conversation with one queue pair of the card. `in` is a
 * packet of the peer, `post` a work request of the application, `out` all packets that the card sends, `wc` the
 * completions. The first number of a step is its time in microseconds. Our PSNs start at 1000, the peer's at 100.
 */
import { test } from 'vitest';
import { ack, request } from '../../src/probe/packet/packets.js';
import { PING, pattern, RECEIVE_BYTES, rc, send } from '../kit/conversation.js';

test('a SEND fills the oldest receive, completes it, and is acknowledged', async () => {
  const c = await rc({ receives: 2 });
  c.in(0, send({ psn: 100, payload: PING }))
    .out(ack({ psn: 100, msn: 1 }))
    .wc({ wrId: 1, opcode: 'RECV', byteLen: 4, flags: 0 })
    .holds(c.buffer, 0, PING);
});

test('an ACK is sent only when the peer requests one', async () => {
  const c = await rc({ receives: 2 });
  c.in(0, send({ psn: 100, ackReq: false }))
    .silent()
    .wc({ wrId: 1 })
    .in(1, send({ psn: 101 }))
    .out(ack({ psn: 101, msn: 2 }))
    .wc({ wrId: 2 });
});

test('one ACK covers all packets that arrived together', async () => {
  const c = await rc({ receives: 3 });
  c.in(0, send({ psn: 100 }), send({ psn: 101 }), send({ psn: 102 }))
    .out(ack({ psn: 102, msn: 3 }))
    .wc({ wrId: 1 }, { wrId: 2 }, { wrId: 3 });
});

test('a SEND of several packets completes with its last one, and counts as one message', async () => {
  const c = await rc({ receives: 1 });
  const message = pattern(2500);
  const [first, middle, last] = request.send({ psn: 100, payload: message, mtu: 1024 });
  if (!first || !middle || !last) throw new Error('three packets');
  c.in(0, first)
    .silent()
    .in(1, middle)
    .silent()
    .in(2, last)
    .out(ack({ psn: 102, msn: 1 }))
    .wc({ wrId: 1, byteLen: 2500 })
    .holds(c.buffer, 0, message);
});

test('an ACK in the middle of a message acknowledges its packet, not the message', async () => {
  const c = await rc({ receives: 1 });
  c.in(0, request.sendFirst({ psn: 100, payload: pattern(1024), ackReq: true }))
    .out(ack({ psn: 100, msn: 0 }))
    .in(1, request.sendLast({ psn: 101, payload: PING, ackReq: true }))
    .out(ack({ psn: 101, msn: 1 }))
    .wc({ wrId: 1, byteLen: 1028 });
});

test('immediate data arrives as its four bytes were on the wire', async () => {
  const c = await rc({ receives: 2 });
  c.in(0, request.sendOnlyImm({ psn: 100, payload: PING, imm: 0x11223344, ackReq: true }))
    .out(ack({ psn: 100, msn: 1 }))
    .wc({ wrId: 1, opcode: 'RECV', byteLen: 4, flags: 2, imm: 0x44332211 })
    .in(1, request.sendFirst({ psn: 101, payload: pattern(1024) }))
    .in(2, request.sendLastImm({ psn: 102, payload: PING, imm: 0xdeadbeef, ackReq: true }))
    .out(ack({ psn: 102, msn: 2 }))
    .wc({ wrId: 2, opcode: 'RECV', byteLen: 1028, flags: 2, imm: 0xefbeadde });
});

test('a SEND without bytes takes a receive, and delivers its immediate data alone', async () => {
  const c = await rc({ receives: 2 });
  c.in(0, send({ psn: 100, payload: new Uint8Array(0) }))
    .out(ack({ psn: 100, msn: 1 }))
    .wc({ wrId: 1, byteLen: 0, flags: 0 })
    .in(1, request.sendOnlyImm({ psn: 101, imm: 0x01000000, ackReq: true }))
    .out(ack({ psn: 101, msn: 2 }))
    .wc({ wrId: 2, byteLen: 0, flags: 2, imm: 1 });
});

test('a receive without memory takes a SEND without bytes', async () => {
  const c = await rc();
  c.recv(1, 0, 0)
    .in(0, send({ psn: 100, payload: new Uint8Array(0) }))
    .out(ack({ psn: 100, msn: 1 }))
    .wc({ wrId: 1, byteLen: 0 });
});

test('a SEND that just fits is taken, and pad bytes are no payload', async () => {
  const c = await rc();
  c.recv(1, 0, 5)
    .in(0, send({ psn: 100, payload: pattern(5) }))
    .out(ack({ psn: 100, msn: 1 }))
    .wc({ wrId: 1, byteLen: 5 })
    .holds(c.buffer, 0, pattern(5));
});

test('a SEND needs no right of the queue pair', async () => {
  const c = await rc({ access: 0, receives: 1 });
  c.in(0, send({ psn: 100 }))
    .out(ack({ psn: 100, msn: 1 }))
    .wc({ wrId: 1 });
});

test('a receive keeps its bytes behind the payload', async () => {
  const c = await rc({ receives: 1 });
  const behind = c.buffer.bytes.slice(5, RECEIVE_BYTES);
  c.in(0, send({ psn: 100, payload: pattern(5) }))
    .out(ack({ psn: 100, msn: 1 }))
    .wc({ wrId: 1, byteLen: 5 })
    .holds(c.buffer, 5, behind);
});

test('posting a SEND puts it on the wire, and the ACK completes it', async () => {
  const c = await rc();
  const message = c.buffer.bytes.slice(300, 305);
  c.post(0, { wrId: 7, opcode: 'SEND', pieces: [c.buffer.piece(300, 5)] })
    .out(request.sendOnly({ psn: 1000, payload: message, ackReq: true }))
    .wc()
    .in(5, ack({ psn: 1000, msn: 1 }))
    .silent()
    .wc({ wrId: 7, opcode: 'SEND', byteLen: 5 });
});

test('a message longer than the path MTU leaves as FIRST, MIDDLE and LAST, and the last requests the ACK', async () => {
  const c = await rc({ mtu: 256 });
  const message = c.buffer.bytes.slice(0, 700);
  c.post(0, { opcode: 'SEND', pieces: [c.buffer.piece(0, 700)] })
    .out(
      request.sendFirst({ psn: 1000, payload: message.slice(0, 256) }),
      request.sendMiddle({ psn: 1001, payload: message.slice(256, 512) }),
      request.sendLast({ psn: 1002, payload: message.slice(512), ackReq: true }),
    )
    .in(5, ack({ psn: 1002, msn: 1 }))
    .wc({ byteLen: 700 });
});

test('a message of exactly one MTU is one packet, of exactly two is two', async () => {
  const c = await rc({ mtu: 256 });
  const message = c.buffer.bytes.slice(0, 512);
  c.post(0, { opcode: 'SEND', pieces: [c.buffer.piece(0, 256)] }, { opcode: 'SEND', pieces: [c.buffer.piece(0, 512)] })
    .out(
      request.sendOnly({ psn: 1000, payload: message.slice(0, 256), ackReq: true }),
      request.sendFirst({ psn: 1001, payload: message.slice(0, 256) }),
      request.sendLast({ psn: 1002, payload: message.slice(256), ackReq: true }),
    )
    .in(5, ack({ psn: 1002, msn: 2 }))
    .wc({ byteLen: 256 }, { byteLen: 512 });
});

test('each kind of SEND has its own last packet', async () => {
  const c = await rc({ mtu: 256 });
  const pieces = [c.buffer.piece(0, 260)];
  const [head, tail] = [c.buffer.bytes.slice(0, 256), c.buffer.bytes.slice(256, 260)];
  c.post(0, { opcode: 'SEND_WITH_IMM', pieces, imm: 0x44332211 }, { opcode: 'SEND_WITH_INV', pieces, imm: 0xabcdef01 })
    .out(
      request.sendFirst({ psn: 1000, payload: head }),
      request.sendLastImm({ psn: 1001, payload: tail, imm: 0x11223344, ackReq: true }),
      request.sendFirst({ psn: 1002, payload: head }),
      request.sendLastInvalidate({ psn: 1003, payload: tail, invalidate: 0xabcdef01, ackReq: true }),
    )
    .in(1, ack({ psn: 1003, msn: 2 }))
    .wc({}, {})
    .post(2, { opcode: 'SEND_WITH_IMM', imm: 1 }, { opcode: 'SEND_WITH_INV', imm: 2 }, { opcode: 'SEND' })
    .out(
      request.sendOnlyImm({ psn: 1004, imm: 0x01000000, ackReq: true }),
      request.sendOnlyInvalidate({ psn: 1005, invalidate: 2, ackReq: true }),
      request.sendOnly({ psn: 1006, ackReq: true }),
    )
    .in(3, ack({ psn: 1006, msn: 5 }))
    .wc({ byteLen: 0 }, { byteLen: 0 }, { byteLen: 0 });
});

test('inline data is copied when it is posted', async () => {
  const c = await rc({ inline: 64 });
  c.post(0, { wrId: 3, opcode: 'SEND', inline: PING })
    .out(request.sendOnly({ psn: 1000, payload: PING, ackReq: true }))
    .in(1, ack({ psn: 1000, msn: 1 }))
    .wc({ wrId: 3, byteLen: 4 });
});
