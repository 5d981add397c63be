/** Requests in flight: the depth of READs and atomics, and the fence (IBTA 10.8.3.3, 11.2.8). */
import { expect, test } from 'vitest';
import { ack, type Packet, request, response } from '../../src/probe/packet/packets.js';
import { type Conversation, PING, rc } from '../kit/conversation.js';

const REMOTE = { va: 0x10000n, rkey: 0x77 };
const sent = (psn: number): Packet => request.sendOnly({ psn, payload: PING, ackReq: true });
const ping = (wrId: number) => ({ wrId, opcode: 'SEND', inline: PING });
const read = (c: Conversation, wrId: number) => ({
  wrId,
  opcode: 'RDMA_READ',
  pieces: [c.buffer.piece(wrId * 8, 8)],
  remote: REMOTE,
});
const add = (c: Conversation, wrId: number) => ({
  ...read(c, wrId),
  opcode: 'ATOMIC_FETCH_AND_ADD',
  compareAdd: 1n,
});
const asked = (psn: number): Packet => request.read({ psn, ...REMOTE, length: 8, ackReq: true });
const added = (psn: number): Packet => request.fetchAdd({ psn, ...REMOTE, add: 1n, ackReq: true });
const data = (psn: number): Packet => response.readOnly({ psn, msn: 1, payload: new Uint8Array(8) });
const original = (psn: number): Packet => response.atomicAck({ psn, msn: 1, original: 0n });

test('no more READs and atomics are in flight than max_rd_atomic', async () => {
  const c = await rc({ maxRdAtomic: 2 });
  c.post(0, read(c, 1), add(c, 2), read(c, 3), add(c, 4))
    .out(asked(1000), added(1001))
    .in(1, data(1000))
    .out(asked(1002))
    .wc({ wrId: 1 })
    .in(2, original(1001), data(1002))
    .out(added(1003))
    .wc({ wrId: 2 }, { wrId: 3 })
    .in(3, original(1003))
    .wc({ wrId: 4 });
});

test('all requests behind a READ that waits wait as well', async () => {
  const c = await rc({ maxRdAtomic: 1 });
  c.post(0, read(c, 1), read(c, 2), ping(3))
    .out(asked(1000))
    .in(1, data(1000))
    .out(asked(1001), sent(1002))
    .wc({ wrId: 1 })
    .in(2, data(1001), ack({ psn: 1002, msn: 3 }))
    .wc({ wrId: 2 }, { wrId: 3 });
});

test('the limit holds while requests are repeated', async () => {
  const c = await rc({ maxRdAtomic: 1, timeout: 1 });
  c.post(0, read(c, 1), read(c, 2))
    .out(asked(1000))
    .at(9)
    .out(asked(1000))
    .in(10, data(1000))
    .out(asked(1001))
    .wc({ wrId: 1 })
    .in(11, data(1001))
    .wc({ wrId: 2 });
});

test('with max_rd_atomic 0 READs and atomics cannot be posted', async () => {
  const c = await rc({ maxRdAtomic: 0 });
  expect(c.qp.send(read(c, 1))).toBe('EINVAL');
  expect(c.qp.send(add(c, 1))).toBe('EINVAL');
  c.at(1).silent();
});

test('SENDs and WRITEs do not wait for a READ before them', async () => {
  const c = await rc();
  c.post(0, read(c, 1), ping(2))
    .out(asked(1000), sent(1001))
    .in(1, data(1000), ack({ psn: 1001, msn: 2 }))
    .wc({ wrId: 1 }, { wrId: 2 });
});

test('with a fence they wait until every READ and atomic before them is complete', async () => {
  const c = await rc();
  c.post(0, read(c, 1), add(c, 2), { ...ping(3), fence: true }, ping(4))
    .out(asked(1000), added(1001))
    .in(1, data(1000))
    .silent()
    .wc({ wrId: 1 })
    .in(2, original(1001))
    .out(sent(1002), sent(1003))
    .wc({ wrId: 2 })
    .in(3, ack({ psn: 1003, msn: 4 }))
    .wc({ wrId: 3 }, { wrId: 4 });
});

test('a fence does not wait for SENDs and WRITEs', async () => {
  const c = await rc();
  c.post(0, ping(1), { ...ping(2), fence: true })
    .out(sent(1000), sent(1001))
    .in(1, ack({ psn: 1001, msn: 2 }))
    .wc({ wrId: 1 }, { wrId: 2 });
});

test('a fence on a READ holds it back too', async () => {
  const c = await rc();
  c.post(0, read(c, 1), { ...read(c, 2), fence: true })
    .out(asked(1000))
    .in(1, data(1000))
    .out(asked(1001))
    .wc({ wrId: 1 })
    .in(2, data(1001))
    .wc({ wrId: 2 });
});

test('completions come in the order of posting, whatever is answered first', async () => {
  const c = await rc();
  c.post(0, ping(1), read(c, 2), ping(3), ping(4))
    .out(sent(1000), asked(1001), sent(1002), sent(1003))
    .in(1, data(1001))
    .wc({ wrId: 1 }, { wrId: 2 })
    .in(2, ack({ psn: 1003, msn: 4 }))
    .wc({ wrId: 3 }, { wrId: 4 });
});

test('unsignaled requests complete without a completion, and free their place', async () => {
  const c = await rc({ signalAll: false, sendWr: 2 });
  const quiet = (wrId: number) => ({ ...ping(wrId), signaled: false });
  c.post(0, quiet(1), quiet(2)).out(sent(1000), sent(1001));
  expect(c.qp.send(quiet(3))).toBe('ENOMEM');
  c.in(1, ack({ psn: 1001, msn: 2 }))
    .wc()
    .post(2, quiet(3), ping(4))
    .out(sent(1002), sent(1003))
    .in(3, ack({ psn: 1003, msn: 4 }))
    .wc({ wrId: 4 });
});
