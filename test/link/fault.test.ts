import { expect, test } from 'vitest';
import { faultLink } from '../../src/link/fault/link.js';
import type { FaultOptions } from '../../src/link/fault/options.js';
import { memoryLink } from '../../src/link/memory/link.js';
import { createMemoryHub } from '../../src/verbs/hub.js';
import { ipChecksum, Rig, udpFrame } from './rig.js';

const A = '10.0.0.1';
const B = '10.0.0.2';
const US = 1000;

function pair(options: FaultOptions) {
  const hub = createMemoryHub();
  const a = new Rig(faultLink(memoryLink(hub, { addresses: [A], mac: '02:00:00:00:00:01' }), options));
  const b = new Rig(memoryLink(hub, { addresses: [B], mac: '02:00:00:00:00:02' }));
  return { a, b };
}

/** Sends numbered frames, one every microsecond. Returns the numbers and the frames in order of arrival. */
function run(options: FaultOptions, count: number) {
  const { a, b } = pair(options);
  const frames: Buffer[] = [];
  let now = 0;
  const step = () => {
    a.link.send(now);
    a.link.receive(now);
    b.link.receive(now);
    frames.push(...b.take().map(({ frame }) => frame));
    now += US;
  };
  for (let i = 0; i < count; i++) {
    a.put(numbered(i));
    step();
  }
  for (; a.link.nextDeadline() !== 0; now = Math.max(now, a.link.nextDeadline())) step();
  return { frames, numbers: frames.map((frame) => frame.readUInt32BE(42)), counters: a.link.counters(), a, b };
}

function numbered(i: number): Buffer {
  const payload = Buffer.alloc(64);
  payload.writeUInt32BE(i);
  return udpFrame({ source: A, destination: B, trafficClass: 2, payload });
}

test('a link without rates passes everything unchanged', () => {
  const { frames, counters } = run({}, 100);
  expect(frames).toEqual(Array.from({ length: 100 }, (_, i) => numbered(i)));
  expect(Object.entries(counters).filter(([name, n]) => name.startsWith('fault_') && n > 0)).toEqual([]);
});

test('the same seed gives the same faults, another seed others', () => {
  const both = { drop: 0.1, duplicate: 0.1, reorder: 0.1, delay: 0.1, corrupt: 0.1, ecn: 0.1 };
  const first = run({ seed: 42, both }, 500);
  const again = run({ seed: 42, both }, 500);
  const other = run({ seed: 43, both }, 500);
  expect(again.frames).toEqual(first.frames);
  expect(again.counters).toEqual(first.counters);
  expect(other.frames).not.toEqual(first.frames);
});

test('each fault happens about as often as its rate says', () => {
  for (const kind of ['drop', 'duplicate', 'reorder', 'delay', 'corrupt', 'ecn'] as const) {
    const { counters } = run({ seed: 7, tx: { [kind]: 0.2 } }, 2000);
    expect(counters[`fault_tx_${kind}`], kind).toBeGreaterThan(320);
    expect(counters[`fault_tx_${kind}`], kind).toBeLessThan(480);
    expect(counters[`fault_rx_${kind}`], kind).toBe(0);
  }
});

test('dropped frames are missing, duplicated ones come twice, and no other frame changes', () => {
  const dropped = run({ seed: 3, tx: { drop: 0.3 } }, 500);
  expect(dropped.numbers.length).toBe(500 - (dropped.counters.fault_tx_drop as number));
  expect(dropped.numbers).toEqual([...new Set(dropped.numbers)].sort((x, y) => x - y));
  const doubled = run({ seed: 3, tx: { duplicate: 0.3 } }, 500);
  expect(doubled.numbers.length).toBe(500 + (doubled.counters.fault_tx_duplicate as number));
  expect(new Set(doubled.numbers).size).toBe(500);
});

test('at most four frames overtake a reordered frame, and none is lost', () => {
  const { numbers } = run({ seed: 5, tx: { reorder: 0.2 } }, 500);
  expect([...numbers].sort((x, y) => x - y)).toEqual(Array.from({ length: 500 }, (_, i) => i));
  expect(numbers).not.toEqual([...numbers].sort((x, y) => x - y));
  numbers.forEach((n, at) => {
    expect(Math.abs(n - at)).toBeLessThan(32);
  });
});

test('a delayed frame leaves at its time, which nextDeadline returns', () => {
  const { a, b } = pair({ tx: { delay: 1, delayNs: [50 * US, 50 * US] } });
  a.put(numbered(0));
  expect(a.link.send(1000 * US)).toBe(1);
  expect(b.link.receive(0)).toBe(0);
  expect(a.link.nextDeadline()).toBe(1050 * US);
  a.link.receive(1049 * US);
  expect(b.link.receive(0)).toBe(0);
  a.link.receive(1050 * US);
  expect(b.link.receive(0)).toBe(1);
  expect(a.link.nextDeadline()).toBe(0);
});

test('a delayed frame may be overtaken as well, once its delay is over', () => {
  const delayNs = [5000 * US, 5000 * US] as const;
  const { numbers, counters, a, b } = run({ seed: 5, tx: { delay: 1, delayNs, reorder: 0.2 } }, 500);
  const reordered = counters.fault_tx_reorder as number;
  expect(counters.fault_tx_delay).toBe(500);
  expect(reordered).toBeGreaterThan(60);
  expect([...numbers].sort((x, y) => x - y)).toEqual(Array.from({ length: 500 }, (_, i) => i));
  const late = numbers.filter((n, at) => numbers.slice(0, at).some((earlier) => earlier > n));
  expect(late.length).toBeGreaterThan(reordered / 2);
  expect(late.length).toBeLessThanOrEqual(reordered);
  numbers.forEach((n, at) => {
    expect(Math.abs(n - at)).toBeLessThan(32);
  });
  // without following frames its wait is short
  a.put(numbered(0));
  a.link.send(1e9);
  for (let now = 1e9; a.link.nextDeadline() !== 0; now = a.link.nextDeadline()) a.link.receive(now);
  b.link.receive(0);
  expect(b.take()).toHaveLength(1);
});

test('corruption flips one bit behind the Ethernet header', () => {
  const { frames } = run({ seed: 9, tx: { corrupt: 1 } }, 300);
  const places = frames.map((frame, i) => {
    const difference = numbered(i).map((byte, at) => byte ^ (frame[at] as number));
    const changed = [...difference.entries()].filter(([, bits]) => bits !== 0);
    expect(changed).toHaveLength(1);
    const [at, bits] = changed[0] as [number, number];
    expect(bits & (bits - 1)).toBe(0);
    return at;
  });
  expect(Math.min(...places)).toBeGreaterThanOrEqual(14);
  expect(Math.max(...places)).toBeGreaterThan(90);
});

test('a congestion mark sets both ECN bits and keeps the IPv4 checksum right', () => {
  const { frames } = run({ tx: { ecn: 1 } }, 20);
  for (const frame of frames) {
    expect(frame[15]).toBe(3);
    expect(ipChecksum(frame.subarray(14, 34))).toBe(0);
  }
});

test('received frames get the same faults as sent ones', () => {
  const { a, b } = pair({ seed: 2, rx: { drop: 0.5, ecn: 1 } });
  for (let i = 0; i < 40; i++) b.put(udpFrame({ source: B, destination: A, destMac: [2, 0, 0, 0, 0, 1] }));
  b.link.send(0);
  const received = a.link.receive(0);
  expect(received).toBe(40);
  const frames = a.take();
  expect(frames.length).toBe(40 - (a.link.counters().fault_rx_drop as number));
  expect(frames.every(({ frame }) => frame[15] === 3)).toBe(true);
});

test('a full receive ring holds frames back instead of losing them', () => {
  const { a, b } = pair({ seed: 2, both: { delay: 0.5, duplicate: 0.2 } });
  let came = 0;
  for (let i = 0; i < 500; i++) {
    if (a.tx.free > 0) a.put(numbered(i));
    else i--;
    a.link.send(i * US);
    if (i % 40 === 0) came += b.take().length;
  }
  for (let now = 500 * US; now < 2e6; now += 10 * US) {
    a.link.send(now);
    a.link.receive(now);
    came += b.take().length;
  }
  expect(came).toBe(500 + (a.link.counters().fault_tx_duplicate as number));
});

test('random bytes pass through', () => {
  const { a, b } = pair({ seed: 2, both: { delay: 0.2, corrupt: 0.5, ecn: 0.5, duplicate: 0.2 } });
  for (let length = 0; length < 60; length++) {
    const frame = Buffer.alloc(length, length);
    frame.set([2, 0, 0, 0, 0, 2].slice(0, length));
    a.put(frame);
    a.link.send(length);
    b.take();
  }
  a.link.close();
});

test('a rate that is no probability is refused', () => {
  const { link } = pair({}).b;
  expect(() => faultLink(link, { tx: { drop: 1.5 } })).toThrow(/drop 1.5.*0 to 1/);
  expect(() => faultLink(link, { tx: { drop: Number.NaN } })).toThrow(RangeError);
  expect(() => faultLink(link, { tx: { delayNs: [5, 1] } })).toThrow(RangeError);
  expect(() => faultLink(link, { seed: 0.5 })).toThrow(RangeError);
});
