// PingPort: rounds of a server of rping, of which a check gets what it has asked for.
import { expect, test } from 'vitest';
import { ack, decode, encodeFrame, flowOf, type Packet, request, reverse } from '../../src/probe/packet/packets.js';
import type { Arrival } from '../../src/probe/script/port.js';
import { PingPort, SendingPort } from '../../src/probe.js';

const FLOW = flowOf();
const MTU = 1024;
const REGION = { va: 0x1000n, rkey: 7, length: 65536 };
/** The PSN of the server's first request, just before the wrap; and of ours. */
const [FIRST, OURS] = [0xfffffe, 500];

function open(size = 64) {
  const arrivals: Arrival[] = [];
  const sent: Uint8Array[] = [];
  const inner = {
    ...{ flow: FLOW, mtu: MTU, now: () => 0, receive: async () => arrivals.shift() },
    send: (bytes: Uint8Array) => sent.push(bytes),
  };
  const told: number[] = [];
  const encode = ({ length }: { readonly length: number }) => Uint8Array.of(told.push(length));
  const port = new PingPort(new SendingPort(inner, OURS), { psn: FIRST, region: REGION, size, encode });
  /** The packets that the check gets, by their PSNs. */
  const gets = async (...packets: readonly Packet[]) => {
    for (const packet of packets) arrivals.push({ frame: encodeFrame(reverse(FLOW), packet), at: 0 });
    const psns: number[] = [];
    for (let one = await port.receive(0); one !== undefined; one = await port.receive(0))
      psns.push(decode(one.frame).bth.psn);
    return psns;
  };
  const says = () => sent.splice(0).map((bytes) => decode(bytes));
  const acknowledge = (psn: number) => port.send(encodeFrame(FLOW, ack({ psn, msn: 1 })));
  return { port, gets, says, told, acknowledge };
}

const read = (psn: number, length: number) => request.read({ psn, ...REGION, length, ackReq: true });
const send = (psn: number) => request.sendOnly({ psn, payload: new Uint8Array(16), ackReq: true });
const write = (psn: number, length: number) =>
  request.write({ psn, va: REGION.va, rkey: REGION.rkey, payload: new Uint8Array(length), mtu: MTU });

test('a WRITE is requested from rping: the READ and the SEND before it are answered by the port', async () => {
  const { port, gets, says, told, acknowledge } = open();
  port.request({ opcode: 'WRITE', length: 16_384, count: 1 });
  expect(
    await gets(ack({ psn: OURS, msn: 1 }), read(FIRST, 64), send(FIRST + 1), ack({ psn: OURS + 1, msn: 2 })),
  ).toEqual([]);
  const [first, data, answer, second] = says();
  expect([first?.bth.psn, data?.aeth?.msn, answer?.aeth?.msn, second?.bth.psn]).toEqual([OURS, 1, 2, OURS + 1]);
  expect([data?.payload.indexOf(0), told]).toEqual([63, [64, 64]]);
  // across the wrap
  expect(await gets(...write(0, 64))).toEqual([0]);
  expect([port.behind(FIRST), port.count]).toEqual([0, 2]);
  acknowledge(0);
  // the SEND behind it is answered here, and nothing is asked for any more
  expect(await gets(send(1))).toEqual([]);
  expect(says().map(({ bth }) => bth.psn)).toEqual([0, 1]);
  expect([port.behind(1), port.count, told.length]).toEqual([2, 3, 2]);
});

test('the server goes on when a check has acknowledged its SEND, and not by another ACK', async () => {
  const { port, gets, told, acknowledge } = open();
  port.request({ opcode: 'SEND', length: 8, count: 2 });
  expect(await gets(read(FIRST, 8), send(FIRST + 1))).toEqual([FIRST + 1]);
  acknowledge(FIRST);
  acknowledge(5);
  expect(told).toEqual([8]);
  acknowledge(FIRST + 1);
  expect(told).toEqual([8, 8]);
  expect(await gets(...write(0, 8), send(1))).toEqual([1]);
});

test('a repetition of a packet that the port has answered is answered again, others go to the check', async () => {
  const { port, gets, says } = open(4096);
  port.request({ opcode: 'SEND', length: 4096, count: 1 });
  const [psn, inside] = [(FIRST + 4) & 0xffffff, (FIRST + 1) & 0xffffff];
  expect(await gets(read(FIRST, 4096), send(psn))).toEqual([psn]);
  says();
  const rest = request.read({ psn: inside, va: REGION.va + 1024n, rkey: 7, length: 3072, ackReq: true });
  expect(await gets(rest, send(psn))).toEqual([psn]);
  const data = says();
  expect(data.map(({ bth, payload }) => [bth.psn, payload.indexOf(0)])).toEqual([
    [inside, -1],
    [0, -1],
    [1, 1023],
  ]);
});

test('a packet beyond a gap and one that is no request are passed on', async () => {
  const { port, gets } = open();
  port.request({ opcode: 'READ', length: 8, count: 1 });
  expect(await gets(send(7), ...write(9, 8))).toEqual([7, 9]);
  expect(await gets(read(FIRST, 8))).toEqual([FIRST]);
});

test('a WRITE is not passed when its READ was that of a check, with other bytes', async () => {
  const { port, gets, told, acknowledge } = open();
  port.request({ opcode: 'READ', length: 64, count: 1 });
  port.request({ opcode: 'WRITE', length: 8, count: 1 });
  expect(await gets(read(FIRST, 64), send(FIRST + 1))).toEqual([FIRST]);
  expect(await gets(...write(0, 3), send(1), read(2, 8), send(3))).toEqual([]);
  expect(await gets(...write(4, 8))).toEqual([4]);
  acknowledge(4);
  expect(told).toEqual([64, 8, 8, 8]);
});
