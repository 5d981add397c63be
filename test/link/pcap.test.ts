import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { faultLink } from '../../src/link/fault/link.js';
import { RX_IP_ID_UNKNOWN } from '../../src/link/frames.js';
import type { Link } from '../../src/link/link.js';
import { memoryLink } from '../../src/link/memory/link.js';
import { pcapLink } from '../../src/link/pcap.js';
import { readCapture } from '../../src/probe/capture/read.js';
import { createMemoryHub } from '../../src/verbs/hub.js';
import { Recording } from '../kit/recording.js';
import { Rig, udpFrame } from './rig.js';

const A = '10.0.0.1';
const B = '10.0.0.2';
const folder = mkdtempSync(join(tmpdir(), 'wasm-roce-pcap-'));
afterAll(() => rmSync(folder, { recursive: true }));

/** Opens a rig on a wrapped memory link, and its peer on a memory link. */
function pair(wrap: (link: Link) => Link) {
  const hub = createMemoryHub();
  const a = new Rig(wrap(memoryLink(hub, { addresses: [A], mac: '02:00:00:00:00:01', name: 'mem-a' })));
  const b = new Rig(memoryLink(hub, { addresses: [B], mac: '02:00:00:00:00:02' }));
  return { a, b };
}

const there = (payload = 'there') => udpFrame({ source: A, destination: B, payload: Buffer.from(payload) });
const back = (payload = 'back') =>
  udpFrame({ source: B, destination: A, destMac: [2, 0, 0, 0, 0, 1], payload: Buffer.from(payload) });

test('a capture is readable for its user only', () => {
  const path = join(folder, 'private.pcapng');
  const before = process.umask(0);
  const { a } = pair((link) => pcapLink(link, path));
  process.umask(before);
  a.link.close();
  expect(statSync(path).mode & 0o777).toBe(0o600);
});

test('both directions are recorded, in order, with nanoseconds since 1970', () => {
  const file = join(folder, 'both.pcapng');
  const { a, b } = pair((link) => pcapLink(link, file));
  const now = Math.round(performance.now() * 1e6);
  a.put(there('1'), there('22'));
  a.link.send(now);
  b.put(back('333'));
  b.link.send(now);
  a.link.receive(now + 1001);
  const capture = readCapture(file);
  expect(capture).toMatchObject({ format: 'pcapng', remarks: [] });
  expect(new Set(capture.packets.map(({ linkType }) => linkType))).toEqual(new Set([1]));
  expect(capture.packets.map(({ direction }) => direction)).toEqual([2, 2, 1]);
  expect(capture.packets.map(({ data }) => Buffer.from(data))).toEqual([there('1'), there('22'), back('333')]);
  const [first, , last] = capture.packets.map(({ time }) => time) as [bigint, bigint, bigint];
  expect(last - first).toBe(1001n);
  expect(Number(first) / 1e6).toBeCloseTo(performance.timeOrigin + now / 1e6, 1);
  expect(a.link.counters()).toMatchObject({ pcap_frames: 3, pcap_errors: 0, tx_frames: 2 });
  a.link.close();
  a.link.close();
  expect(readCapture(file).packets).toHaveLength(3);
});

test('a frame that the link could not take is recorded when it leaves, and once', () => {
  const stream = new Recording();
  const { a, b } = pair((link) => pcapLink(link, stream));
  for (let i = 0; i < 64; i++) a.put(there());
  a.link.send(0);
  a.put(there('late'));
  a.link.send(0);
  expect(readCapture(stream.bytes()).packets).toHaveLength(64);
  b.take();
  a.link.send(0);
  expect(readCapture(stream.bytes()).packets).toHaveLength(65);
});

test('the frames of an error socket are recorded as they leave', () => {
  const file = join(folder, 'errors.pcapng');
  let takes = false;
  const { a } = pair((link) => {
    link.openErrorSocket = () => ({ port: 50_000, send: () => takes, close() {} });
    return pcapLink(link, file);
  });
  const socket = a.link.openErrorSocket?.(A, () => {});
  expect([socket?.port, socket?.send(there('refused'))]).toEqual([50_000, false]);
  takes = true;
  expect(socket?.send(there('taken'))).toBe(true);
  expect(readCapture(file).packets.map(({ data }) => Buffer.from(data))).toEqual([there('taken')]);
  expect(a.link.counters().pcap_frames).toBe(1);
  a.link.close();
  expect(socket?.send(there('after its end'))).toBe(true);
});

test('a comment says that the link could not see an identification', () => {
  const stream = new Recording();
  const { a, b } = pair((link) => {
    const capture = pcapLink(link, stream);
    const { receive } = link;
    link.receive = (now) => {
      if (a.rx.filled > 0) a.rx.describe(a.rx.consumer, a.rx.length(a.rx.consumer), RX_IP_ID_UNKNOWN);
      return receive.call(link, now);
    };
    return capture;
  });
  b.put(back());
  b.link.send(0);
  a.link.receive(0);
  expect(stream.bytes().includes('identification: written as 0')).toBe(true);
});

test('a capture outside of a fault link has what the card sees, inside what the network sees', () => {
  for (const isOutside of [true, false]) {
    const stream = new Recording();
    const { a, b } = pair((link) =>
      isOutside
        ? pcapLink(faultLink(link, { tx: { drop: 1 } }), stream)
        : faultLink(pcapLink(link, stream), { tx: { drop: 1 } }),
    );
    a.put(there(), there());
    a.link.send(0);
    b.put(back());
    b.link.send(0);
    a.link.receive(0);
    expect(a.take()).toHaveLength(1);
    expect(readCapture(stream.bytes()).packets.map(({ direction }) => direction)).toEqual(isOutside ? [2, 2, 1] : [1]);
    expect(b.take()).toHaveLength(0);
  }
});

test('random frames are recorded like all others', () => {
  const stream = new Recording();
  const { a } = pair((link) => pcapLink(link, stream));
  for (let length = 0; length < 64; length++) a.put(Buffer.alloc(length, 0xff));
  a.link.send(0);
  expect(readCapture(stream.bytes()).packets.map(({ data }) => data.length)).toEqual(
    Array.from({ length: 63 }, (_, i) => i + 1),
  );
});

test('a capture that cannot be written ends, and the link goes on', () => {
  const { a, b } = pair((link) => pcapLink(link, '/dev/full'));
  a.put(there());
  expect(a.link.send(0)).toBe(1);
  expect(b.take()).toHaveLength(1);
  expect(a.link.counters().pcap_errors).toBe(1);
  expect(a.link.captureError?.message).toBe(
    'EIO: the capture /dev/full is not whole: after 0 frames writing has failed (ENOSPC)',
  );
  a.link.close();
  expect(() => pair((link) => pcapLink(link, join(folder, 'no', 'such', 'folder')))).toThrow(/ENOENT/);
});
