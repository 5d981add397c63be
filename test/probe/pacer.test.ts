// The rate of scripted packets, in numbers and in virtual time.
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { createMemoryHub } from '../../src/index.js';
import { memoryLink } from '../../src/link/memory/link.js';
import { Conversation } from '../../src/probe/checks/conversation.js';
import { LinkPort } from '../../src/probe/link/linkport.js';
import { Pacer } from '../../src/probe/link/pacer.js';
import { ScriptedLink } from '../../src/probe/link/scriptedlink.js';
import { decode } from '../../src/probe/packet/decode.js';
import { encodeFrame, flowOf, request } from '../../src/probe/packet/packets.js';
import { CHECKS } from '../../src/probe.js';
import { waitingTimers } from '../kit/virtualclock.js';
import { Rig } from '../link/rig.js';

const MS = 1e6;
const [MAC_A, MAC_B] = ['02:00:00:00:00:01', '02:00:00:00:00:02'];
const there = flowOf({ srcMac: MAC_A, dstMac: MAC_B, srcIp: '10.0.0.1', dstIp: '10.0.0.2' });

test('a hundredth of a second has a hundredth of the packets', () => {
  const pacer = new Pacer(300);
  const times: number[] = [];
  for (let now = 0, i = 0; i < 7; i++) {
    now = pacer.departure(now);
    pacer.left(now);
    times.push(now / MS);
  }
  expect(times).toEqual([0, 0, 0, 10, 10, 10, 20]);
});

test('a packet knows when it leaves, however many are ahead of it', () => {
  const pacer = new Pacer(200);
  pacer.left(1 * MS);
  const planned = Array.from({ length: 6 }, (_, ahead) => pacer.departure(4 * MS, ahead) / MS);
  expect(planned).toEqual([4, 11, 14, 21, 24, 31]);
  // one that is late delays those behind it, so that the rate holds
  pacer.left(5 * MS);
  expect([pacer.departure(5 * MS), pacer.departure(5 * MS, 1)]).toEqual([11 * MS, 15 * MS]);
});

test('few packets per second are a part of the second apart', () => {
  const pacer = new Pacer(4);
  pacer.left(0);
  expect([0, 1, 2].map((ahead) => pacer.departure(0, ahead) / MS)).toEqual([250, 500, 750]);
});

test.each([0, 1.5, -1, 1_000_001, Number.NaN])('a rate of %s', (rate) => {
  const inner = memoryLink(createMemoryHub(), { addresses: ['10.0.0.1'] });
  expect(() => new ScriptedLink(inner, { rate })).toThrow(`rate is ${rate}, must be an integer from 1 to 1000000`);
});

function open(rate: number) {
  const hub = createMemoryHub();
  const link = new ScriptedLink(memoryLink(hub, { addresses: ['10.0.0.1'], mac: MAC_A }), { rate });
  const near = new Rig(link);
  const far = new Rig(memoryLink(hub, { addresses: ['10.0.0.2'], mac: MAC_B }));
  const arrived = () => {
    far.link.receive(0);
    return far.take().map(({ frame: bytes }) => decode(bytes).bth.psn);
  };
  return { link, near, arrived };
}

const write = (psn: number) =>
  encodeFrame(there, request.writeOnly({ psn, va: 0n, rkey: 1, payload: new Uint8Array(8) }));

test('a burst of two queue pairs is spread, and says when its packets leave', async () => {
  const { link, near, arrived } = open(200);
  const queues = [link.open(1), link.open(2)] as const;
  const start = performance.now();
  const times = Array.from({ length: 5 }, (_, i) => (queues[i % 2] as (typeof queues)[0]).send(write(i)) / MS - start);
  expect(times.map(Math.round)).toEqual([0, 0, 10, 10, 20]);
  expect(arrived()).toEqual([0, 1]);
  // packets of the card do not wait, and need no turn before their own deadlines
  near.put(write(99));
  link.send(0);
  expect(arrived()).toEqual([99]);
  expect(link.nextDeadline()).toBe(0);
  await sleep(9);
  expect(arrived()).toEqual([]);
  await sleep(2);
  expect(arrived()).toEqual([2, 3]);
  await sleep(11);
  expect(arrived()).toEqual([4]);
  expect(waitingTimers()).toBe(0);
});

test('a closed link sends nothing more', () => {
  const { link } = open(1);
  const queue = link.open(1);
  queue.send(write(0));
  queue.send(write(1));
  expect(waitingTimers()).toBe(1);
  link.close();
  expect(waitingTimers()).toBe(0);
});

test('the patience of a check begins when its packet leaves', async () => {
  const { link, arrived } = open(1);
  const port = new LinkPort(link.open(1), there, 1024);
  const talk = new Conversation(CHECKS[0] as (typeof CHECKS)[0], port, {
    responder: async () => 'none',
  });
  const start = performance.now();
  talk.send([0, 1, 2].map((psn) => request.writeOnly({ psn, va: 0n, rkey: 1, payload: new Uint8Array(8) })));
  const answer = talk.next(100 * MS);
  await sleep(2050);
  expect(arrived()).toEqual([0, 1, 2]);
  await sleep(100);
  expect(await answer).toBeUndefined();
  expect(Math.floor(performance.now() - start)).toBe(2150);
});
