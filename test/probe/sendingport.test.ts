// SendingPort: messages are repeated until they are acknowledged; ACKs are taken, other packets passed on.
import { expect, test } from 'vitest';
import {
  ack,
  decode,
  encodeFrame,
  flowOf,
  nak,
  type Packet,
  request,
  reverse,
} from '../../src/probe/packet/packets.js';
import type { Arrival } from '../../src/probe/script/port.js';
import { SendingPort } from '../../src/probe.js';

const FLOW = flowOf();
const MTU = 1024;

function open(psn: number) {
  const arrivals: Arrival[] = [];
  const sent: Uint8Array[] = [];
  let now = 0;
  const inner = {
    ...{ flow: FLOW, mtu: MTU, now: () => now },
    async receive(until: number) {
      const arrival = arrivals.shift();
      if (arrival === undefined) now = Math.max(now, until);
      return arrival;
    },
    send: (bytes: Uint8Array) => sent.push(bytes),
  };
  const arrive = (...packets: Packet[]) => {
    for (const packet of packets) arrivals.push({ frame: encodeFrame(reverse(FLOW), packet), at: 0 });
  };
  const psns = () => sent.splice(0).map((bytes) => decode(bytes).bth.psn);
  return { port: new SendingPort(inner, psn), arrive, psns };
}

test('a message is repeated until it is acknowledged, across the wrap of PSNs', async () => {
  const { port, arrive, psns } = open(0xffffff);
  port.message(new Uint8Array(1500));
  port.message(new Uint8Array(8));
  expect(psns()).toEqual([0xffffff, 0, 1]);
  arrive(ack({ psn: 0, msn: 1 }));
  expect(await port.receive(150e6)).toBeUndefined();
  expect([port.now(), psns()]).toEqual([150e6, [1]]);
  arrive(ack({ psn: 1, msn: 2 }));
  expect(await port.receive(1e9)).toBeUndefined();
  expect(psns()).toEqual([]);
});

test('a NAK acknowledges what is before it; one that ends the connection ends the repetitions', async () => {
  const { port, arrive, psns } = open(5);
  port.message(new Uint8Array(8));
  port.message(new Uint8Array(8));
  arrive(nak.sequence({ psn: 6, msn: 1 }));
  await port.receive(110e6);
  expect(psns()).toEqual([5, 6, 6]);
  arrive(ack({ psn: 6, msn: 1, syndrome: 0x61 }));
  await port.receive(1e9);
  expect(psns()).toEqual([]);
});

test('a peer that never answers is given up', async () => {
  const { port, psns } = open(5);
  port.message(new Uint8Array(8));
  await port.receive(3e9);
  expect(psns()).toHaveLength(21);
  await port.receive(6e9);
  expect(psns()).toEqual([]);
});

test('requests of the peer are passed on', async () => {
  const { port, arrive } = open(5);
  arrive(ack({ psn: 4, msn: 0 }), ...request.send({ psn: 9, payload: new Uint8Array(4), mtu: MTU }));
  const arrival = await port.receive(1);
  expect(decode(arrival?.frame as Uint8Array).bth.psn).toBe(9);
});
