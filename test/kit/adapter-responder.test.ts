/** The strict responder of the kit reports each broken rule, and takes a stream that breaks none. */
import { expect, test } from 'vitest';
import { encodeFrame, flowOf, type Packet, request, reverse } from '../../src/probe/packet/packets.js';
import { AdapterResponder, type ResponderOptions } from './adapter/responder.js';
import { Violation } from './adapter/rules.js';
import { Random } from './random.js';

const MTU = 256;
const THERE = flowOf({ trafficClass: 2 });
const BACK = reverse(THERE);
const at = { va: 0x1000n, rkey: 7 };
const bytes = (length: number, seed = 1) => new Random(seed).bytes(length);

/** A responder that expects PSN 100 and has `receives` receives. */
function responder(options: Partial<ResponderOptions> = {}, receives = 100): AdapterResponder {
  const memory = new Uint8Array(65536);
  const base = { there: THERE, mtu: MTU, psn: 100, random: new Random(1), memory, va: 0x1000n, rkey: 7, ackEvery: 1 };
  const adapter = new AdapterResponder({ ...base, ...options });
  adapter.postReceives(receives);
  return adapter;
}

/** Frames leave the card and arrive; the answers reach it at once. */
function pass(adapter: AdapterResponder, now: number, ...packets: readonly Packet[]): void {
  for (const packet of packets) leave(adapter, now, packet);
  for (const packet of packets) adapter.receive(encodeFrame(BACK, packet), now);
  for (const answer of adapter.take()) adapter.delivered(answer, now);
}

/** A frame leaves the card and does not arrive. */
function leave(adapter: AdapterResponder, now: number, packet: Packet, changes: Partial<typeof BACK> = {}): void {
  adapter.inspect(encodeFrame({ ...BACK, ...changes }, packet), now);
}

const write = (psn: number, length: number, seed?: number) =>
  request.write({ psn, payload: bytes(length, seed), mtu: MTU, ...at });
const first = (packets: readonly Packet[]) => packets[0] as Packet;
const small = (psn: number, seed?: number) => first(write(psn, 8, seed));
const message = (psn: number) => request.sendOnly({ psn, payload: bytes(8), ackReq: true });
const read = (psn: number, length: number, va = at.va) => request.read({ psn, length, rkey: at.rkey, va });

test('a stream without a fault is accepted, and executed', () => {
  const adapter = responder();
  pass(adapter, 0, ...write(100, 700), ...request.send({ psn: 103, payload: bytes(300), mtu: MTU, imm: 5 }));
  pass(adapter, 1, read(105, 700), request.fetchAdd({ psn: 108, ...at, add: 2n }), small(109));
  adapter.quiet();
  expect(adapter.received).toEqual([{ data: bytes(300), imm: 5 }]);
});

const BROKEN: readonly (readonly [string, RegExp, (adapter: AdapterResponder) => void, Partial<ResponderOptions>?])[] =
  [
    ['a PSN that was left out', /neither PSN 100/, (a) => leave(a, 0, small(101))],
    ['a wrong ICRC', /wrong ICRC/, (a) => leave(a, 0, { ...small(100), icrc: 1 })],
    [
      'pad bytes that are not zero',
      /wrong ICRC|pad/,
      (a) => {
        leave(a, 0, { ...request.sendOnly({ psn: 100, payload: bytes(7) }), padding: Uint8Array.of(1) });
      },
    ],
    ['reserved bits', /reserved bits/, (a) => leave(a, 0, { ...small(100), bth: { ...small(100).bth, reserved7: 1 } })],
    [
      'another source port than before',
      /source port/,
      (a) => {
        leave(a, 0, small(100));
        leave(a, 0, small(101), { sport: 0xc001 });
      },
    ],
    ['another hop limit', /hop limit/, (a) => leave(a, 0, small(100), { hopLimit: 63 })],
    ['another traffic class', /traffic class/, (a) => leave(a, 0, small(100), { trafficClass: 0 })],
    [
      'a first packet below the path MTU',
      /path MTU/,
      (a) => {
        leave(a, 0, request.writeFirst({ psn: 100, ...at, length: 300, payload: bytes(100) }));
      },
    ],
    ['more than the path MTU', /path MTU/, (a) => leave(a, 0, request.sendOnly({ psn: 100, payload: bytes(260) }))],
    [
      'a middle without a first',
      /does not follow/,
      (a) => {
        leave(a, 0, request.sendMiddle({ psn: 100, payload: bytes(MTU) }));
      },
    ],
    [
      'a SEND within a WRITE',
      /does not follow/,
      (a) => {
        leave(a, 0, first(write(100, 700)));
        leave(a, 0, message(101));
      },
    ],
    [
      'a WRITE that is shorter than it said',
      /bytes of the WRITE are left/,
      (a) => {
        leave(a, 0, first(write(100, 700)));
        leave(a, 0, request.writeLast({ psn: 101, payload: bytes(10) }));
      },
    ],
    [
      '17 READs',
      /16 READs and atomics are outstanding/,
      (a) => {
        for (let i = 0; i < 17; i++) leave(a, 0, read(100 + i, 8));
      },
    ],
    [
      'a retransmission with another payload',
      /other contents/,
      (a) => {
        leave(a, 0, small(100, 1));
        leave(a, 9e6, small(100, 2));
      },
    ],
    [
      'a retransmission with another opcode',
      /other contents/,
      (a) => {
        leave(a, 0, small(100));
        leave(a, 9e6, message(100));
      },
    ],
    [
      'a rest of a READ at a wrong address',
      /no part of the first one/,
      (a) => {
        leave(a, 0, read(100, 700));
        const [answer] = answers(a, read(100, 700));
        a.delivered(answer as Uint8Array, 1);
        leave(a, 2, read(101, 444, at.va + 255n));
      },
    ],
    [
      'a rewind to another PSN than the oldest',
      /oldest unanswered/,
      (a) => {
        for (let i = 0; i < 3; i++) leave(a, 0, small(100 + i));
        leave(a, 1, small(101));
      },
    ],
    [
      'new packets after a NAK',
      /asks for a rewind to PSN 100/,
      (a) => {
        leave(a, 0, small(100));
        pass(a, 0, small(101));
        leave(a, 1, small(102));
      },
    ],
    [
      'a request while the RNR timer runs',
      /before the RNR timer ends/,
      (a) => {
        pass(a, 0, message(100));
        leave(a, 9999, message(100));
      },
    ],
    [
      'nothing that asks for an ACK',
      /asks for an ACK/,
      (a) => {
        leave(a, 0, request.sendOnly({ psn: 100, payload: bytes(8) }));
        a.quiet();
      },
    ],
    [
      'two messages without credits',
      /without a credit/,
      (a) => {
        leave(a, 0, message(100));
        leave(a, 0, message(101));
      },
      { credits: true },
    ],
    [
      'a message without credits that does not ask for an ACK',
      /does not ask for an ACK/,
      (a) => {
        leave(a, 0, request.sendOnly({ psn: 100, payload: bytes(8) }));
      },
      { credits: true },
    ],
    [
      'memory that it has not',
      /no memory for 8 bytes/,
      (a) => {
        pass(a, 0, first(request.write({ psn: 100, payload: bytes(8), mtu: MTU, va: 0n, rkey: 7 })));
      },
    ],
  ];

/** Returns the answers to a packet that arrives. */
function answers(adapter: AdapterResponder, packet: Packet): Uint8Array[] {
  adapter.receive(encodeFrame(BACK, packet), 0);
  return adapter.take();
}

test.each(BROKEN.map(([name, rule, run, options = {}]) => ({ name, rule, run, options })))('$name', (row) => {
  const { rule, run, options } = row;
  const receives = /RNR/.test(String(rule)) ? 0 : 100;
  const adapter = responder(options, receives);
  expect(() => run(adapter)).toThrow(rule);
  expect(() => run(responder(options, receives))).toThrow(Violation);
});

test('permitted differences are accepted: AckReq of a retransmission, the rest of a READ, a packet after the RNR timer', () => {
  const adapter = responder({}, 0);
  leave(adapter, 0, small(100));
  leave(adapter, 1, { ...small(100), bth: { ...small(100).bth, ackReq: false } });
  leave(adapter, 1, read(101, 700));
  adapter.receive(encodeFrame(BACK, small(100)), 2);
  const some = answers(adapter, read(101, 700)).slice(0, 2);
  for (const answer of some) adapter.delivered(answer, 2);
  leave(adapter, 3, read(102, 444, at.va + 256n));
  expect(() => leave(adapter, 3, small(104))).not.toThrow();
  const refused = responder({}, 0);
  pass(refused, 0, message(100));
  leave(refused, 10_000, message(100));
});
