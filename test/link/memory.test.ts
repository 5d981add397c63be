import { describe, expect, test } from 'vitest';
import { memoryLink } from '../../src/link/memory/link.js';
import { createMemoryHub } from '../../src/verbs/hub.js';
import { Rig, udpFrame } from './rig.js';

const A = '10.0.0.1';
const B = '10.0.0.2';

function pair(slots = 8) {
  const hub = createMemoryHub();
  const a = new Rig(memoryLink(hub, { addresses: [A, 'fd00::1'], mac: '02:00:00:00:00:01' }), { slots });
  const b = new Rig(memoryLink(hub, { addresses: [B, 'fd00::2'], mac: '02:00:00:00:00:02' }), { slots });
  return { hub, a, b };
}

test('a frame goes to the card with its destination MAC, unchanged', () => {
  const { a, b } = pair();
  const frame = udpFrame({ source: A, destination: B, id: 77 });
  a.put(frame, frame);
  expect(a.link.send(0)).toBe(2);
  expect(b.link.receive(0)).toBe(2);
  expect(b.take()).toEqual([
    { frame, options: 0 },
    { frame, options: 0 },
  ]);
  expect(a.link.receive(0)).toBe(0);
});

test('without a known MAC the IP address decides, for IPv6 and tagged frames too', () => {
  const { a, b } = pair();
  const destMac = [0, 0, 0, 0, 0, 0];
  a.put(
    udpFrame({ source: A, destination: B, destMac }),
    udpFrame({ source: A, destination: B, destMac, vlan: 5 }),
    udpFrame({ source: 'fd00:0:0:0:0:0:0:1', destination: 'fd00:0:0:0:0:0:0:2', destMac }),
  );
  a.link.send(0);
  expect(b.link.receive(0)).toBe(3);
});

test('a frame for nobody is dropped and counted, and an empty descriptor is skipped', () => {
  const { a } = pair();
  a.put(
    udpFrame({ source: A, destination: '10.9.9.9', destMac: [0, 0, 0, 0, 0, 0] }),
    new Uint8Array(3),
    new Uint8Array(0),
  );
  expect(a.link.send(0)).toBe(3);
  expect(a.link.counters()).toMatchObject({ tx_frames: 0, tx_unreachable: 2 });
});

test('a full peer leaves frames with the sender, which is woken when there is room', async () => {
  const { a, b } = pair(8);
  const frame = udpFrame({ source: A, destination: B });
  for (let i = 0; i < 8; i++) a.put(frame);
  expect(a.link.send(0)).toBe(8);
  a.put(frame);
  expect(a.link.send(0)).toBe(0);
  expect(a.link.counters().tx_busy).toBe(1);
  const woken = new Promise<void>((resolve) => a.link.wait(0, true, resolve));
  expect(b.take()).toHaveLength(8);
  b.link.receive(0);
  await woken;
  expect(a.link.send(0)).toBe(1);
  expect(b.take()).toHaveLength(1);
});

test('a wait ends when a frame comes, at its deadline, or never when it is cancelled', async () => {
  const { a, b } = pair();
  const called: string[] = [];
  b.link.wait(0, true, () => called.push('first'));
  b.link.wait(0, true, () => called.push('frame'));
  a.put(udpFrame({ source: A, destination: B }));
  a.link.send(0);
  expect(called).toEqual([]);
  await new Promise(setImmediate);
  expect(called).toEqual(['frame']);
  b.link.receive(0);
  const before = performance.now();
  await new Promise<void>((resolve) => b.link.wait((before + 5) * 1e6, true, resolve));
  expect(performance.now() - before).toBeGreaterThan(4.5);
  b.link.wait((performance.now() + 1) * 1e6, true, () => called.push('cancelled'));
  b.link.cancelWait();
  await new Promise((resolve) => setTimeout(resolve, 5));
  expect(called).toEqual(['frame']);
});

test('a wait sees frames that came before it began', async () => {
  const { a, b } = pair();
  a.put(udpFrame({ source: A, destination: B }));
  a.link.send(0);
  await new Promise<void>((resolve) => b.link.wait(0, true, resolve));
});

test('a peer is resolved to its MAC, and an unknown address is refused with the known ones', async () => {
  const { a, hub } = pair();
  expect((await a.link.resolve('fd00:0::2', 'fd00::1')).destMac).toEqual(Uint8Array.of(2, 0, 0, 0, 0, 2));
  await expect(a.link.resolve('10.0.0.3', A)).rejects.toThrow(/EHOSTUNREACH.*10\.0\.0\.3.*10\.0\.0\.2/);
  expect(() => memoryLink(hub, { addresses: [A] })).toThrow(/EADDRINUSE.*10\.0\.0\.1/);
});

test('a closed card is gone from the hub, and a second close does nothing', () => {
  const { a, b } = pair();
  b.link.close();
  b.link.close();
  a.put(udpFrame({ source: A, destination: B }));
  expect(a.link.send(0)).toBe(1);
  expect(a.link.counters().tx_unreachable).toBe(1);
});

describe('a hub that coalesces', () => {
  const payloads = [100, 100, 100, 37].map((length, i) => Buffer.alloc(length, i));
  const frames = (way: object) =>
    payloads.map((payload, id) => udpFrame({ source: A, destination: B, ...way, id, payload }));

  function coalescing(slotBytes = 65600, slots = 8) {
    const hub = createMemoryHub({ coalesce: true });
    const a = new Rig(memoryLink(hub, { addresses: [A, 'fd00::1'], mac: '02:00:00:00:00:01' }), { slots });
    const b = new Rig(memoryLink(hub, { addresses: [B, 'fd00::2'], mac: '02:00:00:00:00:02' }), { slots, slotBytes });
    return { a, b };
  }

  test.each([
    ['IPv4', {}, 42],
    ['IPv4 behind a tag', { vlan: 7 }, 46],
    ['IPv6', { source: 'fd00:0:0:0:0:0:0:1', destination: 'fd00:0:0:0:0:0:0:2' }, 62],
  ])('carries a burst as one super-packet over %s', (_, way, headers) => {
    const { a, b } = coalescing();
    const burst = frames(way);
    a.putBurst(...burst);
    a.put(burst[3] as Buffer);
    expect(a.link.send(0)).toBe(5);
    expect(b.take()).toEqual([
      { frame: Buffer.concat([(burst[0] as Buffer).subarray(0, headers), ...payloads]), options: (100 << 17) >>> 0 },
      { frame: burst[3], options: 0 },
    ]);
    const bytes = burst.reduce((sum, frame) => sum + frame.length, (burst[3] as Buffer).length);
    expect(a.link.counters()).toMatchObject({ tx_frames: 5, tx_bytes: bytes });
    expect(b.link.counters()).toMatchObject({ rx_frames: 5, rx_bytes: bytes });
  });

  test('delivers packets one by one where slots are too small, as far as there is room', () => {
    const { a, b } = coalescing(4608, 2);
    const burst = frames({});
    a.putBurst(...burst.slice(0, 2));
    expect(a.link.send(0)).toBe(2);
    a.putBurst(...burst.slice(2));
    expect(a.link.send(0)).toBe(0);
    expect(a.link.counters()).toMatchObject({ tx_frames: 2, tx_busy: 1 });
    expect(b.take().map(({ frame }) => frame)).toEqual(burst.slice(0, 2));
    expect(a.link.send(0)).toBe(2);
    expect(b.take().map(({ frame }) => frame)).toEqual(burst.slice(2));
  });
});
