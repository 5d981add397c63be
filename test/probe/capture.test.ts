import { gzipSync } from 'node:zlib';
import { expect, test } from 'vitest';
import { readCapture } from '../../src/probe/capture/read.js';

/** Returns numbers as 32-bit words in the given byte order. */
function words(little: boolean, ...values: number[]): Uint8Array {
  const bytes = new Uint8Array(values.length * 4);
  const view = new DataView(bytes.buffer);
  for (const [i, value] of values.entries()) view.setUint32(i * 4, value, little);
  return bytes;
}
const join = (...parts: Uint8Array[]) => new Uint8Array(Buffer.concat(parts));

const DATA = Uint8Array.of(1, 2, 3, 4, 5);

test.each([
  ['microseconds', 0xa1b2c3d4, 1_000_000_007_000n],
  ['nanoseconds', 0xa1b23c4d, 1_000_000_000_007n],
])('pcap with %s, in both byte orders', (_name, magic, time) => {
  for (const little of [false, true]) {
    const header = words(little, magic, 0x00020004, 0, 0, 65535, 1);
    const record = join(words(little, 1000, 7, DATA.length, 60), DATA);
    const { packets, ...rest } = readCapture(join(header, record, record));
    expect(rest).toEqual({ format: 'pcap', linkType: 1 });
    expect(packets).toHaveLength(2);
    expect(packets[1]).toEqual({ time, data: DATA, wireLength: 60, direction: 0 });
  }
});

function block(little: boolean, type: number, body: Uint8Array): Uint8Array {
  const length = 12 + body.length;
  return join(words(little, type, length), body, words(little, length));
}

test('pcapng with nanoseconds and directions, in both byte orders, also gzipped', () => {
  for (const little of [false, true]) {
    const half = (high: number, low: number) => (little ? (low << 16) | high : (high << 16) | low) >>> 0;
    const section = block(little, 0x0a0d0d0a, words(little, 0x1a2b3c4d, half(1, 0), 0xffffffff, 0xffffffff));
    const resolution = join(words(little, half(9, 1)), Uint8Array.of(9, 0, 0, 0), words(little, 0));
    const face = block(little, 1, join(words(little, half(1, 0), 0), resolution));
    const unknown = block(little, 0xbad, words(little, 0));
    const padded = join(DATA, new Uint8Array(3));
    const flags = words(little, half(2, 4), 2, 0);
    const packet = block(little, 6, join(words(little, 0, 1, 7, DATA.length, 60), padded, flags));
    const file = join(section, face, unknown, packet);
    for (const bytes of [file, new Uint8Array(gzipSync(file))]) {
      const { packets, ...rest } = readCapture(bytes);
      expect(rest).toEqual({ format: 'pcapng', linkType: 1 });
      expect(packets).toEqual([{ time: 2n ** 32n + 7n, data: DATA, wireLength: 60, direction: 2 }]);
    }
  }
});

test('what is no capture, or ends too early, is refused', () => {
  expect(() => readCapture(Uint8Array.of(1, 2, 3, 4, 5))).toThrow('starts with 0x1020304');
  const header = words(true, 0xa1b2c3d4, 0x00020004, 0, 0, 65535, 1);
  expect(() => readCapture(join(header, words(true, 0, 0, 100, 100), DATA))).toThrow(RangeError);
});
