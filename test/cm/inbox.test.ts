/** Which messages of a flood are handled, and which are sent. */
import { expect, test } from 'vitest';
import { Inbox, type ReceivedMad, WAITING_MESSAGES } from '../../src/cm/inbox.js';
import { MadSendQueue } from '../../src/cm/madsendqueue.js';
import * as mads from './mads.js';

const KNOWN_ID = 0x1234;
const PEER_ID = 0x5678;
const ids = { tid: 1n, id: 5, remote: KNOWN_ID };

interface Bench {
  readonly inbox: Inbox;
  readonly released: ReceivedMad[];
  add(bytes: Uint8Array, mac?: number, from?: readonly number[]): void;
  /** Slots that one round handles, by default after time for any number. */
  round(now?: number): number[];
}

function open(isServed = true): Bench {
  const released: ReceivedMad[] = [];
  const inbox = new Inbox({
    isKnown: (id) => id === KNOWN_ID,
    isPeer: (id) => id === PEER_ID,
    release: (mad) => void released.push(mad),
  });
  let slot = 0;
  let time = 0;
  return {
    inbox,
    released,
    add(bytes, mac = 1, from = mads.PEER_IP) {
      const datagram = new Uint8Array(40 + bytes.length);
      datagram[from.length === 4 ? 20 : 0] = from.length === 4 ? 0x45 : 0x60;
      datagram.set(from, from.length === 4 ? 32 : 8);
      datagram.set(bytes, 40);
      const received = { slot: slot++, at: 0, bytes: datagram.length, mac };
      const mad = { ...received, vlanTci: undefined, pkeyIndex: 0, requestKey: undefined };
      inbox.add(mad, new DataView(datagram.buffer));
    },
    round(now = time + 1000) {
      time = now;
      const slots: number[] = [];
      inbox.takeRound(now, ({ slot }) => {
        slots.push(slot);
        return isServed;
      });
      return slots;
    },
  };
}

test('messages of known ids come before requests, and requests before what is refused', () => {
  const { inbox, add, round } = open();
  inbox.countListener('TCP', 7174, 1);
  add(mads.req({ port: 7175 }));
  add(mads.req());
  add(mads.rep({ ...ids, remote: 99 }));
  add(mads.rtu(ids));
  add(mads.sidrRep({ tid: 1n, id: KNOWN_ID, status: 0, qpn: 1, qkey: 1, port: 1 }));
  expect(round()).toEqual([3, 4, 1, 0, 2]);
  expect(inbox.nextRound(0)).toBe(Number.POSITIVE_INFINITY);
});

test('a flood for a port without a listener does not delay a request for another', () => {
  const { inbox, released, add, round } = open();
  inbox.countListener('TCP', 7174, 1);
  for (let i = 0; i < 1000; i++) add(mads.req({ port: 7175 }));
  add(mads.req());
  expect(round()).toEqual([1000, 0, 1]);
  expect([inbox.dropped, released.length]).toEqual([1000 - 32, 1000 - 32]);
});

test('a flood for the port of a listener does not delay the request of another neighbour', () => {
  const { inbox, released, add, round } = open();
  inbox.countListener('TCP', 7174, 1);
  for (let i = 0; i < 2000; i++) add(mads.req(), 66, [172, 16, i >> 8, i & 255]);
  add(mads.req(), 7);
  expect(round()).toContain(2000);
  expect(released.length).toBe(2000 + 1 - 1024);
});

test('a flood does not delay the request of another host of an IPv6 network when the link sees no neighbours', () => {
  const { inbox, released, add, round } = open();
  inbox.countListener('TCP', 7174, 1);
  const host = (n: number) => [0xfd, 0, 0, 0x98, ...Array(11).fill(0), n];
  for (let id = 0; id < 2000; id++) add(mads.req({ id }), 0, host(66));
  add(mads.req(), 0, host(7));
  expect(round()).toContain(2000);
  expect(released.length).toBe(2000 + 1 - 1024);
});

test('a host that opens or closes a thousand connections at once loses no message', () => {
  const { inbox, add } = open();
  inbox.countListener('TCP', 7174, 1);
  for (let id = 0; id < 1000; id++) add(mads.req({ id }));
  for (let i = 0; i < 1000; i++) add(mads.rtu(ids));
  expect(inbox.dropped).toBe(0);
});

test('refused messages are handled once a millisecond, after as many as can wait', () => {
  const { inbox, add, round } = open();
  inbox.countListener('TCP', 7174, 1);
  const refuse = () => add(mads.req({ port: 7175 }));
  for (let i = 0; i < 48; i++) {
    refuse();
    expect(round(100)).toHaveLength(i < 32 ? 1 : 0);
  }
  expect([inbox.nextRound(100), inbox.nextRound(100.5), inbox.nextRound(105)]).toEqual([101, 101, 105]);
  expect(round(100.75)).toEqual([]);
  expect(inbox.nextRound(100.75)).toBe(101);
  expect(round(101)).toHaveLength(1);
  expect(inbox.nextRound(101)).toBe(102);
  // the others do not wait for it
  add(mads.req());
  add(mads.rtu(ids));
  expect(inbox.nextRound(101)).toBe(101);
  expect(round(101)).toEqual([49, 48]);
  // and a neighbour that asks for the first time waits for one of another at most
  add(mads.req({ port: 7175 }), 7);
  expect([...round(102), ...round(103)]).toContain(50);
});

test('requests for a listener are handled sixteen times a millisecond, after as many as can wait', () => {
  const { inbox, add, round } = open();
  inbox.countListener('TCP', 7174, 1);
  let id = 100;
  const flood = () => add(mads.req({ id: id++ }), 66);
  for (let i = 0; i < 1024; i++) flood();
  let handled = 0;
  for (let i = 0; i < 300; i++) handled += round(100).length;
  expect(handled).toBe(1024);
  for (let i = 0; i < 1024; i++) flood();
  expect([round(100), inbox.nextRound(100)]).toEqual([[], 100.0625]);
  expect(round(100.0625)).toHaveLength(1);
  // the others do not wait for them, and another host waits for one at most
  add(mads.rtu(ids), 66);
  add(mads.req(), 7);
  expect(round(100.09375)).toEqual([2048]);
  expect([...round(100.125), ...round(100.1875)]).toContain(2049);
  expect(round(100.375)).toHaveLength(3);
});

test('messages of connections that change nothing are handled once a millisecond, after sixteen at once', () => {
  const { inbox, add, round } = open(false);
  for (let i = 0; i < 1024; i++) add(mads.rtu(ids), 66);
  let handled = 0;
  for (let i = 0; i < 300; i++) handled += round(100).length;
  expect([handled, inbox.nextRound(100)]).toEqual([1024 / 64, 100 + 1 / 64]);
  expect([round(100 + 1 / 64).length, inbox.nextRound(100 + 1 / 64)]).toEqual([1, 101 + 1 / 64]);
  // A message of another host waits for one of them at most.
  add(mads.rtu(ids), 7);
  expect([...round(101 + 1 / 64), ...round(102 + 1 / 64)]).toContain(1024);
});

test('a request that is ignored or refused counts as sixteen', () => {
  const { inbox, add, round } = open(false);
  inbox.countListener('TCP', 7174, 1);
  for (let id = 100; id < 1124; id++) add(mads.req({ id }), 66);
  let handled = 0;
  for (let i = 0; i < 300; i++) handled += round(100).length;
  expect([handled, inbox.nextRound(100)]).toEqual([1024 / 16, 100.0625]);
  expect([round(100.0625).length, inbox.nextRound(100.0625)]).toEqual([1, 101.0625]);
  // another host waits for one of them at most
  add(mads.req(), 7);
  expect([...round(101.0625), ...round(102.0625)]).toContain(1024);
});

test('a request that repeats one which waits is dropped, and any other is not', () => {
  const { inbox, released, add, round } = open();
  inbox.countListener('TCP', 7174, 1);
  inbox.countListener('UDP', 7174, 1);
  add(mads.req({ id: 8 }));
  add(mads.req({ id: 8 }));
  add(mads.req({ id: 8 }), 7);
  add(mads.req({ id: 8 }), 1, [192, 0, 2, 7]);
  add(mads.req({ id: 9 }));
  expect(round().sort()).toEqual([0, 2, 3, 4]);
  expect([released.map(({ slot }) => slot), inbox.repeated, inbox.dropped]).toEqual([[1], { req: 1, sidr_req: 0 }, 0]);
  // it has been handled, or lost to others
  add(mads.req({ id: 8 }));
  expect(round()).toEqual([5]);
  for (let id = 100; id < 2000; id++) add(mads.req({ id }));
  for (let i = 0; i < 500; i++) round();
  for (let id = 100; id < 1124; id++) add(mads.req({ id }));
  expect(inbox.repeated.req).toBe(1);
});

test('a request of a connection is not overtaken by the end of the connection', () => {
  const { inbox, add, round } = open();
  inbox.countListener('TCP', 7174, 1);
  add(mads.req({ id: PEER_ID }));
  add(mads.dreq({ ...ids, qpn: 1 }));
  expect(round()).toEqual([0, 1]);
});

test('a port is served as long as it has a listener', () => {
  const { inbox, add, round } = open();
  inbox.countListener('TCP', 7174, 1);
  inbox.countListener('TCP', 7174, 1);
  inbox.countListener('TCP', 7174, -1);
  for (let id = 0; id < 4; id++) add(mads.req({ id }));
  expect(round()).toHaveLength(4);
  inbox.countListener('TCP', 7174, -1);
  for (let id = 0; id < 4; id++) add(mads.req({ id }));
  expect(round()).toHaveLength(2);
});

test('a datagram of any length is sorted into a queue', () => {
  const { add, round } = open();
  for (const length of [0, 1, 39, 255]) add(new Uint8Array(length));
  expect([...round(), ...round()]).toEqual([0, 1, 2, 3]);
});

test('the number of messages that wait never exceeds the receives for them', () => {
  const { inbox, released, add } = open();
  inbox.countListener('TCP', 7174, 1);
  for (let i = 0; i < 2000; i++) for (const bytes of [mads.rtu(ids), mads.req(), mads.req({ port: 1 })]) add(bytes, i);
  expect(6000 - released.length).toBe(WAITING_MESSAGES);
});

test('the send queue sends messages of connections before refusals, and has few places for refusals', () => {
  const queue = new MadSendQueue();
  const message = (n: number) => ({ local: 'a', remote: 'b', bytes: Uint8Array.of(n) });
  const neighbour = { mac: new Uint8Array(6), vlanTci: undefined };
  for (let n = 0; n < 100; n++) queue.add({ ...message(n), neighbour });
  expect(queue.dropped).toBe(36);
  for (let n = 100; n < 104; n++) queue.add(message(n));
  const sent: (number | undefined)[] = [];
  for (; !queue.isEmpty; queue.shift()) sent.push(queue.next?.bytes[0]);
  expect(sent).toEqual([100, 101, 102, 103, ...Array.from({ length: 64 }, (_, n) => n)]);
  for (let n = 0; n < 10_000; n++) queue.add(message(n));
  expect(queue.dropped).toBe(36 + 10_000 - 4096);
});
