/** Keep-alives: the request to a silent peer, and the packets that count as its sign. */
import { expect, test } from 'vitest';
import { ack, nak, type Packet, request } from '../../src/probe/packet/packets.js';
import { PING, rc, send } from '../kit/conversation.js';

/** It repeats the PSN before the next one. */
const keepAlive = (psn: number): Packet =>
  request.writeOnly({ psn, va: 0n, rkey: 0, payload: new Uint8Array(0), ackReq: true });
const ping = { wrId: 1, opcode: 'SEND', inline: PING };
const sent = (psn: number): Packet => request.sendOnly({ psn, payload: PING, ackReq: true });

test('a silent peer is asked by the last PSN again, which takes none and has no completion', async () => {
  const c = await rc();
  c.at(1, () => expect(c.qp.peerSign(true)).toBe('SILENT')).out(keepAlive(999));
  c.at(2, () => expect(c.qp.peerSign(false)).toBe('SILENT')).silent();
  c.in(3, ack({ psn: 999, msn: 0 })).silent();
  c.at(4, () => expect(c.qp.peerSign(true)).toBe('HEARD')).silent();
  c.post(5, ping)
    .out(sent(1000))
    .in(6, ack({ psn: 1000, msn: 1 }))
    .wc({ wrId: 1 });
  c.at(7, () => expect(c.qp.peerSign(true)).toBe('HEARD')).silent();
  c.at(8, () => expect(c.qp.peerSign(true)).toBe('SILENT')).out(keepAlive(1000));
  c.counts({ retransmits: 0 });
});

test('a peer that has something to acknowledge is not asked', async () => {
  const c = await rc();
  c.post(0, ping).out(sent(1000));
  c.at(1, () => expect(c.qp.peerSign(true)).toBe('AWAITED')).silent();
  c.in(2, nak.rnr({ psn: 1000, msn: 0, timer: 12 }));
  c.at(3, () => expect(c.qp.peerSign(true)).toBe('HEARD')).silent();
});

test('a request that leaves before the keep-alive takes its place', async () => {
  const c = await rc();
  c.qp.peerSign(true);
  c.post(1, ping)
    .out(sent(1000))
    .in(2, ack({ psn: 1000, msn: 1 }))
    .silent()
    .wc({ wrId: 1 });
});

test.each([
  ['a request', () => request.writeOnly({ psn: 100, va: 0n, rkey: 0, payload: new Uint8Array(0), ackReq: true })],
  ['a NAK', () => nak.remoteAccess({ psn: 999, msn: 0 })],
  ['an ACK of another PSN', () => ack({ psn: 5, msn: 0 })],
])('a sign of the peer: %s', async (_, packet) => {
  const c = await rc({ receives: 1 });
  c.at(1, () => c.qp.peerSign(true)).out(keepAlive(999));
  c.in(2, packet()).take();
  expect(c.qp.peerSign(false)).toBe('HEARD');
  c.state('RTS');
});

test('the responder acknowledges a keep-alive before and after the first request, and does not carry it out', async () => {
  const c = await rc({ receives: 1 });
  c.in(0, keepAlive(99))
    .out(ack({ psn: 99, msn: 0 }))
    .in(1, send({ psn: 100 }))
    .out(ack({ psn: 100, msn: 1 }))
    .wc({ wrId: 1 })
    .in(2, keepAlive(100))
    .out(ack({ psn: 100, msn: 1 }))
    .state('RTS');
});

test('a queue pair without right of remote write acknowledges a keep-alive', async () => {
  const c = await rc({ access: 0 });
  c.in(0, keepAlive(99))
    .out(ack({ psn: 99, msn: 0 }))
    .state('RTS');
});
