/**
 * Message sequence numbers wrap after 2^24 messages. A test cannot send so many: it sets the numbers shortly before.
 */
import { expect, test } from 'vitest';
import { ack, type Packet, request, response } from '../../src/probe/packet/packets.js';
import { PING, type RcOptions, rc, send, TARGET_VA } from '../kit/conversation.js';
import { setMessages } from '../kit/testing.js';

const LAST = 0xffffff;
const sent = (psn: number): Packet => request.sendOnly({ psn, payload: PING, ackReq: true });
const ping = (wrId: number) => ({ wrId, opcode: 'SEND', inline: PING });

async function after(messages: number, options: RcOptions = {}) {
  const c = await rc(options);
  await setMessages(c.qp, messages, messages);
  return c;
}

test('the responder counts 2^24 - 1, 0, 1, with messages of all kinds', async () => {
  const c = await after(LAST - 2, { receives: 2 });
  const at = { va: TARGET_VA, rkey: c.target.rkey };
  const data = c.target.bytes.slice(0, 8);
  c.in(0, send({ psn: 100 }))
    .out(ack({ psn: 100, msn: LAST - 1 }))
    .wc({ wrId: 1 })
    .in(1, request.read({ psn: 101, ...at, length: 8 }))
    .out(response.readOnly({ psn: 101, msn: LAST, payload: data }))
    .in(2, request.writeOnly({ psn: 102, ...at, payload: PING, ackReq: true }))
    .out(ack({ psn: 102, msn: 0 }))
    .in(3, request.compareSwap({ psn: 103, va: TARGET_VA + 8n, rkey: c.target.rkey, swap: 0n, compare: 1n }))
    .out(response.atomicAck({ psn: 103, msn: 1, original: word(c.target.bytes, 8) }))
    .in(4, send({ psn: 104 }))
    .out(ack({ psn: 104, msn: 2 }))
    .wc({ wrId: 2 });
});

test('a response that is repeated across the wrap has the present MSN', async () => {
  const c = await after(LAST, { receives: 2 });
  c.in(0, send({ psn: 100 }), send({ psn: 101 }))
    .out(ack({ psn: 101, msn: 1 }))
    .wc({ wrId: 1 }, { wrId: 2 })
    .in(1, send({ psn: 100 }))
    .out(ack({ psn: 101, msn: 1 }));
});

test('the limit of credits may lie behind the wrap', async () => {
  const c = await after(LAST - 1, { flowControl: true });
  c.post(0, ping(1), ping(2), ping(3), ping(4), ping(5))
    .out(sent(1000))
    .in(1, ack({ psn: 1000, msn: LAST, syndrome: 3 }))
    .out(sent(1001), sent(1002), sent(1003))
    .wc({ wrId: 1 });
  expect(c.qp.attribute('CREDITS')).toBe(0);
  // one message, the first after the wrap, is acknowledged with a credit that was known already
  c.in(2, ack({ psn: 1001, msn: 0, syndrome: 2 }))
    .silent()
    .wc({ wrId: 2 })
    .in(3, ack({ psn: 1003, msn: 2, syndrome: 1 }))
    .out(sent(1004))
    .wc({ wrId: 3 }, { wrId: 4 })
    .in(4, ack({ psn: 1004, msn: 3, syndrome: 0 }))
    .wc({ wrId: 5 });
});

test('an ACK from before the wrap takes no credit back', async () => {
  const c = await after(LAST, { flowControl: true });
  c.post(0, ping(1))
    .out(sent(1000))
    .in(1, ack({ psn: 1000, msn: 0, syndrome: 2 }))
    .wc({ wrId: 1 })
    .in(2, ack({ psn: 1000, msn: LAST, syndrome: 1 }))
    .post(3, ping(2), ping(3))
    .out(sent(1001), sent(1002))
    .in(4, ack({ psn: 1002, msn: 2, syndrome: 0 }))
    .wc({ wrId: 2 }, { wrId: 3 });
});

function word(bytes: Uint8Array, at: number): bigint {
  return new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(at, true);
}
