/** The responder's PSN window: gaps, duplicates, and the wrap at 2^24 (IBTA 9.7.4.1.2, 9.7.5.1.4). */
import { test } from 'vitest';
import { ack, nak, request, response } from '../../src/probe/packet/packets.js';
import { PING, pattern, rc, send, TARGET_VA } from '../kit/conversation.js';

test('a gap gets one NAK, and packets behind it are dropped until it is filled', async () => {
  const c = await rc({ goBackN: true, receives: 4 });
  c.in(0, send({ psn: 100 }))
    .out(ack({ psn: 100, msn: 1 }))
    .in(1, send({ psn: 102 }))
    .out(nak.sequence({ psn: 101, msn: 1 }))
    .in(2, send({ psn: 103 }))
    .silent()
    .in(3, send({ psn: 101 }))
    .out(ack({ psn: 101, msn: 2 }))
    .wc({ wrId: 1 }, { wrId: 2 })
    .counts({ out_of_seq_request: 1, drop_psn_ahead: 1 });
});

test('the next gap gets a NAK again', async () => {
  const c = await rc({ goBackN: true, receives: 4 });
  c.in(0, send({ psn: 101 }))
    .out(nak.sequence({ psn: 100 }))
    .in(1, send({ psn: 100 }))
    .out(ack({ psn: 100, msn: 1 }))
    .in(2, send({ psn: 105 }))
    .out(nak.sequence({ psn: 101, msn: 1 }))
    .wc({ wrId: 1 });
});

test('a gap in the middle of a message gets a NAK, and the message goes on where it stopped', async () => {
  const c = await rc({ goBackN: true, receives: 1 });
  const packets = request.send({ psn: 100, payload: pattern(2500), mtu: 1024 });
  const [first, middle, last] = packets;
  if (!first || !middle || !last) throw new Error('three packets');
  c.in(0, first)
    .silent()
    .in(1, last)
    .out(nak.sequence({ psn: 101, msn: 0 }))
    .in(2, middle)
    .silent()
    .in(3, last)
    .out(ack({ psn: 102, msn: 1 }))
    .wc({ wrId: 1, byteLen: 2500 })
    .holds(c.buffer, 0, pattern(2500));
});

test('a NAK that is not sent yet when the gap is filled becomes an ACK', async () => {
  const c = await rc({ goBackN: true, receives: 2 });
  c.in(0, send({ psn: 101 }), send({ psn: 100, ackReq: false }))
    .out(ack({ psn: 100, msn: 1 }))
    .wc({ wrId: 1 });
});

test('duplicates are answered while a gap is open', async () => {
  const c = await rc({ receives: 3 });
  c.in(0, send({ psn: 100 }))
    .out(ack({ psn: 100, msn: 1 }))
    .in(1, send({ psn: 102 }))
    .out(nak.sequence({ psn: 101, msn: 1 }))
    .in(2, send({ psn: 100 }))
    .out(ack({ psn: 100, msn: 1 }))
    .wc({ wrId: 1 });
});

test('a duplicate SEND is not executed again, and is acknowledged with the newest PSN', async () => {
  const c = await rc({ receives: 3 });
  c.in(0, send({ psn: 100 }), send({ psn: 101, payload: pattern(8) }))
    .out(ack({ psn: 101, msn: 2 }))
    .wc({ wrId: 1 }, { wrId: 2 })
    .in(5, send({ psn: 100, payload: pattern(4) }))
    .out(ack({ psn: 101, msn: 2 }))
    .holds(c.buffer, 0, PING)
    .counts({ duplicate_request: 1 });
});

test('a duplicate without AckReq gets an ACK all the same: the first one may have been lost', async () => {
  const c = await rc({ receives: 1 });
  c.in(0, send({ psn: 100, ackReq: false }))
    .silent()
    .wc({ wrId: 1 })
    .in(5, send({ psn: 100, ackReq: false }))
    .out(ack({ psn: 100, msn: 1 }));
});

test('a duplicate WRITE does not change memory again', async () => {
  const c = await rc();
  const write = request.writeOnly({ psn: 100, va: TARGET_VA, rkey: c.target.rkey, payload: PING, ackReq: true });
  c.in(0, write)
    .out(ack({ psn: 100, msn: 1 }))
    .holds(c.target, 0, PING);
  c.target.bytes.fill(0, 0, 4);
  c.in(5, write)
    .out(ack({ psn: 100, msn: 1 }))
    .holds(c.target, 0, new Uint8Array(4));
});

test('a duplicate in the middle of a message acknowledges what has arrived of it', async () => {
  const c = await rc({ receives: 1 });
  const first = request.sendFirst({ psn: 100, payload: pattern(1024) });
  c.in(0, first)
    .silent()
    .in(1, first)
    .out(ack({ psn: 100, msn: 0 }))
    .in(2, request.sendLast({ psn: 101, payload: PING, ackReq: true }))
    .out(ack({ psn: 101, msn: 1 }))
    .wc({ wrId: 1, byteLen: 1028 });
});

test('a duplicate before a READ is not acknowledged beyond it: the READ’s response may have been lost', async () => {
  const c = await rc({ receives: 2 });
  const payload = c.target.bytes.slice(0, 8);
  c.in(0, send({ psn: 100 }))
    .out(ack({ psn: 100, msn: 1 }))
    .in(1, request.read({ psn: 101, va: TARGET_VA, rkey: c.target.rkey, length: 8 }))
    .out(response.readOnly({ psn: 101, msn: 2, payload }))
    .in(2, send({ psn: 102 }))
    .out(ack({ psn: 102, msn: 3 }))
    .in(9, send({ psn: 100 }))
    .out(ack({ psn: 100, msn: 3 }))
    .wc({ wrId: 1 }, { wrId: 2 });
});

test('a duplicate is answered with the newest PSN also while an older ACK is due', async () => {
  const c = await rc({ receives: 2 });
  c.in(0, send({ psn: 100 }), send({ psn: 101, ackReq: false }), send({ psn: 101 }))
    .out(ack({ psn: 101, msn: 2 }))
    .wc({ wrId: 1 }, { wrId: 2 });
});

test('a duplicate does not replace the newer ACK that is due', async () => {
  const c = await rc({ receives: 2 });
  const read = request.read({ psn: 101, va: 0n, rkey: 0, length: 0 });
  c.in(0, send({ psn: 100 }), read, send({ psn: 102 }), send({ psn: 100 }))
    .out(response.readOnly({ psn: 101, msn: 3 }), ack({ psn: 102, msn: 3 }))
    .wc({ wrId: 1 }, { wrId: 2 });
});

test('a duplicate does not replace a NAK that is due', async () => {
  const c = await rc({ receives: 2 });
  c.in(0, send({ psn: 100 }), send({ psn: 102 }), send({ psn: 100 }))
    .out(nak.sequence({ psn: 101, msn: 1 }))
    .wc({ wrId: 1 });
});

test('the newer half of the PSNs is ahead, the older half duplicates', async () => {
  const c = await rc({ rqPsn: 0, receives: 2 });
  c.in(0, send({ psn: 0x7fffff }))
    .out(nak.sequence({ psn: 0 }))
    .in(1, send({ psn: 0x800001 }))
    .out(ack({ psn: 0xffffff, msn: 0 }))
    .counts({ duplicate_request: 1, out_of_seq_request: 1 });
});

test('the PSN that is expected wraps at 2^24', async () => {
  const c = await rc({ rqPsn: 0xfffffe, receives: 3 });
  c.in(0, send({ psn: 0xfffffe }), send({ psn: 0xffffff }), send({ psn: 0 }))
    .out(ack({ psn: 0, msn: 3 }))
    .wc({ wrId: 1 }, { wrId: 2 }, { wrId: 3 })
    .in(1, send({ psn: 0xffffff }))
    .out(ack({ psn: 0, msn: 3 }));
});

test('a message may lie across the wrap', async () => {
  const c = await rc({ rqPsn: 0xffffff, receives: 1 });
  const message = pattern(3000);
  c.in(0, ...request.send({ psn: 0xffffff, payload: message, mtu: 1024 }))
    .out(ack({ psn: 1, msn: 1 }))
    .wc({ wrId: 1, byteLen: 3000 })
    .holds(c.buffer, 0, message);
});

test('a gap across the wrap names the PSN before it', async () => {
  const c = await rc({ goBackN: true, rqPsn: 0xffffff, receives: 2 });
  c.in(0, send({ psn: 1 }))
    .out(nak.sequence({ psn: 0xffffff }))
    .in(1, send({ psn: 0xffffff }), send({ psn: 0 }))
    .out(ack({ psn: 0, msn: 2 }))
    .wc({ wrId: 1 }, { wrId: 2 });
});

test('a READ whose responses lie across the wrap takes their PSNs', async () => {
  const c = await rc({ rqPsn: 0xffffff, receives: 1 });
  const payload = c.target.bytes.slice(0, 3000);
  c.in(0, request.read({ psn: 0xffffff, va: TARGET_VA, rkey: c.target.rkey, length: 3000 }))
    .out(...response.read({ psn: 0xffffff, msn: 1, payload, mtu: 1024 }))
    .in(1, send({ psn: 2 }))
    .out(ack({ psn: 2, msn: 2 }))
    .wc({ wrId: 1 });
});

test('a duplicate READ across the wrap finds its first request', async () => {
  const c = await rc({ rqPsn: 0xfffffe });
  const at = { va: TARGET_VA, rkey: c.target.rkey };
  const payload = c.target.bytes.slice(0, 4000);
  c.in(0, request.read({ psn: 0xfffffe, ...at, length: 4000 }))
    .out(...response.read({ psn: 0xfffffe, msn: 1, payload, mtu: 1024 }))
    .in(1, request.read({ psn: 1, va: TARGET_VA + 3072n, rkey: at.rkey, length: 928 }))
    .out(response.readOnly({ psn: 1, msn: 1, payload: payload.slice(3072) }))
    .in(2, request.read({ psn: 0xfffffe, ...at, length: 4000 }))
    .out(...response.read({ psn: 0xfffffe, msn: 1, payload, mtu: 1024 }));
});

test('the MSN counts messages: not the packets of one, and a READ when it is requested', async () => {
  const c = await rc({ receives: 1 });
  const at = { va: TARGET_VA, rkey: c.target.rkey };
  const payload = c.target.bytes.slice(0, 2048);
  c.in(0, request.read({ psn: 100, ...at, length: 2048 }), ...request.write({ psn: 102, ...at, payload, mtu: 1024 }))
    .out(...response.read({ psn: 100, msn: 2, payload, mtu: 1024 }), ack({ psn: 103, msn: 2 }))
    .in(1, request.fetchAdd({ psn: 104, ...at, add: 0n }))
    .out(response.atomicAck({ psn: 104, msn: 3, original: new DataView(payload.buffer).getBigUint64(0, true) }))
    .in(2, send({ psn: 105 }))
    .out(ack({ psn: 105, msn: 4 }))
    .wc({ wrId: 1 });
});
