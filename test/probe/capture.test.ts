import * as zlib from 'node:zlib';
import { gzipSync } from 'node:zlib';
import { expect, test } from 'vitest';
import { readCapture } from '../../src/probe/capture/read.js';
import { block, face, hex, join, option, packetBlock, pcapFile, section, words } from '../kit/capturefile.js';

const DATA = Uint8Array.of(1, 2, 3, 4, 5);
const packet = { data: DATA, wireLength: 5, direction: 0, linkType: 1 };

test.each([
  ['microseconds', 0xa1b2c3d4, 1_000_000_001_000n],
  ['nanoseconds', 0xa1b23c4d, 1_000_000_000_001n],
])('pcap with %s is read, in both byte orders', (_name, magic, time) => {
  for (const little of [false, true]) {
    const capture = readCapture(pcapFile([DATA, join(DATA, DATA)], { little, magic, snapLength: 5 }));
    expect(capture).toEqual({
      format: 'pcap',
      packets: [
        { ...packet, time: 1_000_000_000_000n },
        { ...packet, time, wireLength: 10 },
      ],
      remarks: [],
    });
  }
});

test('the FCS length in a pcap file is no part of the link type', () => {
  const [first] = readCapture(pcapFile([DATA], { linkType: 0x2400_0001 })).packets;
  expect(first?.linkType).toBe(1);
});

test('pcapng with nanoseconds and directions is read, in both byte orders, also gzipped', () => {
  for (const little of [false, true]) {
    const options = option(2, words(little, 2), little);
    const file = join(
      section(little),
      face(1, option(9, Uint8Array.of(9), little), little),
      block(0xbad, words(little, 0), little),
      packetBlock(DATA, { ticks: 7, wire: 60, options, little }),
    );
    for (const bytes of [file, new Uint8Array(gzipSync(file))])
      expect(readCapture(bytes)).toEqual({
        format: 'pcapng',
        packets: [{ ...packet, time: 7n, wireLength: 60, direction: 2 }],
        remarks: [],
      });
  }
});

test('each interface of pcapng has its own link type, resolution and offset', () => {
  const seconds = hex('0a00000000000000');
  const file = join(
    section(),
    face(276),
    face(1, join(option(9, Uint8Array.of(0x8a)), option(14, seconds))),
    packetBlock(DATA, { ticks: 7 }),
    packetBlock(DATA, { face: 1, ticks: 512 }),
  );
  expect(readCapture(file).packets).toEqual([
    { ...packet, linkType: 276, time: 7000n },
    { ...packet, time: 10_500_000_000n },
  ]);
});

test('each section of pcapng has its own interfaces and byte order', () => {
  const part = (little: boolean, linkType: number) =>
    join(section(little), face(linkType, undefined, little), packetBlock(DATA, { little }));
  expect(readCapture(join(part(true, 1), part(false, 101))).packets.map(({ linkType }) => linkType)).toEqual([1, 101]);
});

test('simple and obsolete packet blocks are read, and a simple one takes the time of the packet before it', () => {
  const old = block(2, join(hex('0000 ffff'), words(true, 0, 7, 5, 9), DATA));
  const simple = block(3, join(words(true, 9), DATA, DATA));
  const capture = readCapture(join(section(), face(1, undefined, true, 5), old, simple));
  const both = { ...packet, time: 7000n, wireLength: 9 };
  expect(capture).toEqual({
    format: 'pcapng',
    packets: [both, both],
    remarks: ['1 packets have no time: each has that of the one before it.'],
  });
});

const twoOf = {
  pcap: pcapFile([DATA, DATA]),
  pcapng: join(section(), face(1), packetBlock(DATA), packetBlock(DATA)),
};

test.each(['pcap', 'pcapng'] as const)(
  'a %s file that ends anywhere is read up to there, and a remark says so',
  (format) => {
    const whole = twoOf[format];
    const ends = Array.from({ length: whole.length - 4 }, (_, i) => readCapture(whole.subarray(0, i + 4)));
    const counts = ends.map(({ packets }) => packets.length);
    expect(counts).toEqual([...counts].sort());
    expect(counts.at(-1)).toBe(1);
    expect(readCapture(whole).remarks).toEqual([]);
    // where one block or packet ends the file looks whole
    expect(ends.filter(({ remarks }) => remarks.length === 0).length).toBeLessThanOrEqual(3);
    expect(ends.at(-1)?.remarks[0]).toMatch(
      /^The file ends in the middle of a (packet|block) at offset \d+: its last \d+ bytes are left out\.$/,
    );
  },
);

test('a gzip stream without its end is read as far as it goes', () => {
  const packets = Array.from({ length: 200 }, (_, i) => words(true, i * 0x9e3779b1, i * 0x85ebca6b, i));
  const bytes = new Uint8Array(gzipSync(pcapFile(packets)));
  const { packets: read, remarks } = readCapture(bytes.subarray(0, bytes.length - 500));
  expect(read.length).toBeGreaterThan(50);
  expect(read.length).toBeLessThan(200);
  expect(remarks).toEqual([
    `The gzip stream ends too early, after ${bytes.length - 500} bytes.`,
    expect.stringContaining('The file ends in the middle of a packet'),
  ]);
});

test('zstd is read if Node.js has it, else the error names zstd -d', () => {
  const { zstdCompressSync } = zlib as { zstdCompressSync?: (bytes: Uint8Array) => Buffer };
  if (zstdCompressSync === undefined)
    expect(() => readCapture(hex('28b52ffd 2438c101'))).toThrow(
      `which Node.js ${process.version} cannot read: run zstd -d`,
    );
  else expect(readCapture(new Uint8Array(zstdCompressSync(twoOf.pcap))).packets).toHaveLength(2);
});

test('contradictory blocks are left out with one remark, and the others are read', () => {
  const broken = [
    packetBlock(DATA, { face: 1 }),
    block(6, words(true, 0, 0, 0, 1000, 1000)),
    block(6, words(true, 0)),
    block(1, words(true)),
    block(3, new Uint8Array(0)),
  ];
  for (const each of broken) {
    const { packets, remarks } = readCapture(join(section(), face(1), each, each, packetBlock(DATA)));
    expect(packets).toHaveLength(1);
    expect(remarks).toEqual(['2 blocks contradict themselves, the first at offset 48: they are left out.']);
  }
  const endless = readCapture(join(section(), face(1), packetBlock(DATA), words(true, 6, 0, 0), packetBlock(DATA)));
  expect(endless.packets).toHaveLength(1);
  expect(endless.remarks).toEqual(['The block at offset 88 has a length of 0: nothing is read from there.']);
});

test('a file of another kind is refused', () => {
  expect(() => readCapture(new Uint8Array(0))).toThrow('the file is empty');
  expect(() => readCapture(Uint8Array.of(1, 2))).toThrow('the file has 2 bytes, too few for a capture');
  expect(() => readCapture(DATA)).toThrow('the file starts with 0x1020304, which is neither pcap nor pcapng');
  const begun = new Uint8Array(gzipSync(DATA)).subarray(0, 12);
  expect(() => readCapture(begun)).toThrow('the file has 1 bytes behind its compression, too few for a capture');
  const damaged = hex('1f8b0800 00000000 0000ffff');
  expect(() => readCapture(damaged)).toThrow('the gzip stream is damaged: invalid block type');
});
