/** The limit of the in-flight window: no more packets than it are without an ACK. */
import { expect, test } from 'vitest';
import { ack, nak, type Packet, request, response } from '../../src/probe/packet/packets.js';
import { type Conversation, rc } from '../kit/conversation.js';

const MTU = 256;
const REMOTE = { va: 0x10000n, rkey: 0x77 };

/** Posts a SEND of so many packets. @returns its packets; those at `asked` request an ACK */
function post(c: Conversation, count: number, asked: readonly number[]): Packet[] {
  const length = count * MTU;
  const packets = request.send({ psn: 1000, payload: c.buffer.bytes.slice(0, length), mtu: MTU });
  for (const i of asked) (packets[i] as Packet).bth.ackReq = true;
  c.post(0, { wrId: 1, opcode: 'SEND', pieces: [c.buffer.piece(0, length)] });
  return packets;
}

test('a limit of one packet: the next one leaves with the ACK of the one before', async () => {
  const c = await rc({ mtu: MTU });
  expect(c.qp.windowLimit(1)).toBe('OK');
  const packets = post(c, 3, [0, 1, 2]);
  for (const [i, packet] of packets.entries()) c.out(packet).in(i + 1, ack({ psn: 1000 + i, msn: i === 2 ? 1 : 0 }));
  c.silent().wc({ wrId: 1, byteLen: 3 * MTU });
});

test('the limit holds while the window grows and after a loss', async () => {
  const c = await rc({ mtu: MTU });
  c.qp.windowLimit(2);
  const packets = post(c, 6, [0, 1, 2, 3, 4, 5]);
  c.out(...packets.slice(0, 2))
    .in(1, ack({ psn: 1001, msn: 0 }))
    .out(...packets.slice(2, 4))
    .in(2, nak.sequence({ psn: 1002 }))
    .out(...packets.slice(2, 4))
    .in(3, ack({ psn: 1003, msn: 0 }))
    .out(...packets.slice(4))
    .in(4, ack({ psn: 1005, msn: 1 }))
    .wc({ wrId: 1, byteLen: 6 * MTU });
  expect(c.qp.attribute('WINDOW')).toBe(2);
});

test('a READ requests no more than the limit at a time', async () => {
  const c = await rc({ mtu: MTU });
  c.qp.windowLimit(1);
  c.post(0, { wrId: 1, opcode: 'RDMA_READ', pieces: [c.buffer.piece(0, 2 * MTU)], remote: REMOTE });
  const payload = c.target.bytes.slice(0, MTU);
  const part = (i: number) =>
    request.read({ psn: 1000 + i, va: REMOTE.va + BigInt(i * MTU), rkey: REMOTE.rkey, length: MTU, ackReq: true });
  c.out(part(0))
    .in(1, ...response.read({ psn: 1000, msn: 1, payload, mtu: MTU }))
    .out(part(1))
    .in(2, ...response.read({ psn: 1001, msn: 2, payload, mtu: MTU }))
    .wc({ wrId: 1, byteLen: 2 * MTU });
});

test('a limit may change at any time: packets in flight stay in flight, and a window without limit grows again', async () => {
  const c = await rc({ mtu: MTU });
  const packets = post(c, 40, [15, 31, 32, 33, 34, 36, 38, 39]);
  c.out(...packets.slice(0, 32));
  c.at(1, () => c.qp.windowLimit(1)).silent();
  c.in(2, ack({ psn: 1015, msn: 0 })).silent();
  c.in(3, ack({ psn: 1031, msn: 0 })).out(packets[32] as Packet);
  c.at(4, () => c.qp.windowLimit(768)).silent();
  c.in(5, ack({ psn: 1032, msn: 0 })).out(...packets.slice(33, 35));
  c.in(6, ack({ psn: 1034, msn: 0 })).out(...packets.slice(35, 39));
  c.in(7, ack({ psn: 1038, msn: 0 })).out(packets[39] as Packet);
  c.in(8, ack({ psn: 1039, msn: 1 })).wc({ wrId: 1, byteLen: 40 * MTU });
});

test('limits out of range and other types are refused', async () => {
  const c = await rc();
  expect([0, 769].map((packets) => c.qp.windowLimit(packets))).toEqual(['EINVAL', 'EINVAL']);
  expect((await rc({ type: 'UC' })).qp.windowLimit(1)).toBe('EINVAL');
});
