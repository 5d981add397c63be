// MessagePort: messages of the peer are acknowledged and kept, other packets passed on.
import { expect, test } from 'vitest';
import { ack, decode, encodeFrame, flowOf, type Packet, request, reverse } from '../../src/probe/packet/packets.js';
import type { Arrival } from '../../src/probe/script/port.js';
import { ReceivingPort } from '../../src/probe.js';

const FLOW = flowOf();
const MTU = 1024;

function open(psn: number) {
  const arrivals: Arrival[] = [];
  const sent: Uint8Array[] = [];
  const inner = {
    ...{ flow: FLOW, mtu: MTU, now: () => 0, receive: async () => arrivals.shift() },
    send: (bytes: Uint8Array) => sent.push(bytes),
  };
  const arrive = (packets: readonly Packet[]) => {
    for (const packet of packets) arrivals.push({ frame: encodeFrame(reverse(FLOW), packet), at: 0 });
  };
  const acks = () => sent.splice(0).map((bytes) => [decode(bytes).bth.psn, decode(bytes).aeth?.msn]);
  return { port: new ReceivingPort(inner, psn), arrive, acks };
}

const bytes = (length: number) => Uint8Array.from({ length }, (_, i) => i & 255);

test('messages are put together across the wrap of PSNs, and acknowledged', async () => {
  const { port, arrive, acks } = open(0xffffff);
  arrive(request.send({ psn: 0xffffff, payload: bytes(3000), mtu: MTU }));
  arrive(request.send({ psn: 2, payload: bytes(5), mtu: MTU }));
  expect(await port.message(1)).toEqual(bytes(3000));
  expect(await port.message(1)).toEqual(bytes(5));
  expect(await port.message(1)).toBeUndefined();
  expect(acks()).toEqual([
    [1, 1],
    [2, 2],
  ]);
});

test('a duplicate is acknowledged again and is no second message; beyond a gap nothing is', async () => {
  const { port, arrive, acks } = open(7);
  const [first, third] = [7, 9].map((psn) => request.send({ psn, payload: bytes(8), mtu: MTU }));
  arrive([...(first ?? []), ...(first ?? []), ...(third ?? [])]);
  expect(await port.receive(1)).toBeUndefined();
  expect(port.messages).toEqual([bytes(8)]);
  expect(acks()).toEqual([
    [7, 1],
    [7, 1],
  ]);
});

test('other packets are passed on', async () => {
  const { port, arrive, acks } = open(7);
  arrive(request.send({ psn: 7, payload: bytes(8), mtu: MTU }));
  arrive([ack({ psn: 100, msn: 3 })]);
  const arrival = await port.receive(1);
  expect(decode(arrival?.frame as Uint8Array)).toMatchObject(ack({ psn: 100, msn: 3 }));
  expect(acks()).toEqual([[7, 1]]);
});
