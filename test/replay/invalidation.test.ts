/**
 * A responder as storage protocols have it: the peer reads and writes regions, and invalidates their keys with the SEND
 * of its reply. The capture is made by the kit.
 */
import { expect, test } from 'vitest';
import {
  ack,
  encodeFrame,
  flowOf,
  nak,
  type Packet,
  request,
  response,
  reverse,
} from '../../src/probe/packet/packets.js';
import { type Conversation, conversationsIn, said } from './conversation.js';
import { ReplayedResponder } from './responder.js';

const there = flowOf();
const back = reverse(there);
const MTU = 1024;
const [WRITTEN, READ, ONCE] = [0x1111, 0x2222, 0x3333];
const bytes = (length: number, seed: number) => Uint8Array.from({ length }, (_, i) => (i * 7 + seed) & 255);

const asks = (...packets: readonly Packet[]) => packets.map((packet) => encodeFrame(there, packet));
const says = (...packets: readonly Packet[]) => packets.map((packet) => encodeFrame(back, packet));
const reply = (psn: number, invalidate: number) =>
  request.sendOnlyInvalidate({ psn, invalidate, ackReq: true, payload: bytes(16, psn) });

/** Two requests that carry data, a key that is registered anew, and a repeated READ whose key is gone. */
const CAPTURED = [
  ...asks(...request.write({ psn: 100, payload: bytes(3000, 1), mtu: MTU, va: 0x1000n, rkey: WRITTEN })),
  ...asks(reply(103, WRITTEN)),
  ...says(ack({ psn: 102, msn: 1 }), ack({ psn: 103, msn: 2 })),
  ...asks(request.read({ psn: 104, va: 0x9000n, rkey: READ, length: 2000 })),
  ...says(...response.read({ psn: 104, msn: 3, payload: bytes(2000, 2), mtu: MTU })),
  ...asks(reply(106, READ)),
  ...says(ack({ psn: 106, msn: 4 })),
  ...asks(request.read({ psn: 104, va: 0x9000n, rkey: READ, length: 2000 })),
  ...asks(request.writeOnly({ psn: 107, va: 0x1008n, rkey: WRITTEN, payload: bytes(8, 3), ackReq: true })),
  ...says(ack({ psn: 107, msn: 5 })),
  ...asks(reply(108, ONCE)),
  ...says(ack({ psn: 108, msn: 6 })),
];

function talkOf(captured: readonly Uint8Array[]): Conversation {
  const [talk] = conversationsIn('storage', captured);
  if (talk === undefined) throw new Error('a connection');
  return talk;
}

const theirs = (talk: Conversation) => talk.packets.filter((p) => !p.isRequest).map(({ frame }) => said(frame));

test('a responder goes on behind SENDs that invalidate its keys', async () => {
  const talk = talkOf(CAPTURED);
  const replayed = await ReplayedResponder.create(talk);
  replayed.play();
  expect(replayed.answers).toEqual(theirs(talk));
  expect([WRITTEN, READ, ONCE].map((rkey) => replayed.isValid(rkey))).toEqual([true, false, false]);
});

test('a request with a key that was not registered again is refused', async () => {
  const late = request.writeOnly({ psn: 109, va: 0x9000n, rkey: READ, payload: bytes(8, 4), ackReq: true });
  const talk = talkOf([...CAPTURED, ...asks(late), ...says(nak.remoteAccess({ psn: 109, msn: 6 }))]);
  const replayed = await ReplayedResponder.create(talk);
  replayed.play();
  expect(replayed.answers).toEqual(theirs(talk));
});
