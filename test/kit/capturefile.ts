// Capture files as other programs write them: pcap and pcapng, in either byte order, and frames within other frames.

/** Returns numbers as 32-bit words in the given byte order. */
export function words(little: boolean, ...values: number[]) {
  const bytes = new Uint8Array(values.length * 4);
  const view = new DataView(bytes.buffer);
  for (const [i, value] of values.entries()) view.setUint32(i * 4, value, little);
  return bytes;
}

/** Returns numbers as 16-bit words in the given byte order. */
export function halves(little: boolean, ...values: number[]) {
  const bytes = new Uint8Array(values.length * 2);
  const view = new DataView(bytes.buffer);
  for (const [i, value] of values.entries()) view.setUint16(i * 2, value, little);
  return bytes;
}

export const join = (...parts: readonly Uint8Array[]) => new Uint8Array(Buffer.concat(parts));
export const hex = (text: string): Uint8Array => new Uint8Array(Buffer.from(text.replaceAll(' ', ''), 'hex'));

/** Returns a pcap file; each packet is cut to the snap length, and the packets are a microsecond apart. */
export function pcapFile(
  packets: readonly Uint8Array[],
  { little = true, linkType = 1, snapLength = 262_144, magic = 0xa1b2c3d4 } = {},
) {
  const records = packets.flatMap((data, i) => {
    const kept = data.subarray(0, snapLength);
    return [words(little, 1000, i, kept.length, data.length), kept];
  });
  const version = halves(little, 2, 4);
  return join(words(little, magic), version, words(little, 0, 0, snapLength, linkType), ...records);
}

/** Returns a block of pcapng. */
export function block(type: number, body: Uint8Array, little = true) {
  const padded = join(body, new Uint8Array(-body.length & 3));
  const length = 12 + padded.length;
  return join(words(little, type, length), padded, words(little, length));
}

export const section = (little = true) =>
  block(
    0x0a0d0d0a,
    join(words(little, 0x1a2b3c4d), halves(little, 1, 0), words(little, 0xffffffff, 0xffffffff)),
    little,
  );

/** An option of pcapng. */
export const option = (code: number, value: Uint8Array, little = true) =>
  join(halves(little, code, value.length), value, new Uint8Array(-value.length & 3));

export const face = (linkType: number, options: Uint8Array = new Uint8Array(0), little = true, snapLength = 0) =>
  block(1, join(halves(little, linkType, 0), words(little, snapLength), options), little);

/** An enhanced packet block. @param ticks below 2^32, in the resolution of the interface */
export function packetBlock(
  data: Uint8Array,
  { face: number = 0, ticks = 0, wire = data.length, options = new Uint8Array(0), little = true } = {},
) {
  const padded = join(data, new Uint8Array(-data.length & 3));
  return block(6, join(words(little, number, 0, ticks, data.length, wire), padded, options), little);
}

const MACS = hex('0200000000aa 0200000000bb');
const frameOf = (etherType: number, ...inner: readonly Uint8Array[]) => join(MACS, halves(false, etherType), ...inner);

/** An IPv4 packet from 192.0.2.1 to 192.0.2.2. */
function ipv4(protocol: number, inner: Uint8Array) {
  const length = halves(false, 20 + inner.length);
  const packet = join(
    hex('4500'),
    length,
    hex('00000000 40'),
    Uint8Array.of(protocol),
    hex('0000 c0000201 c0000202'),
    inner,
  );
  let sum = 0;
  for (let i = 0; i < 20; i += 2) sum += ((packet[i] as number) << 8) | (packet[i + 1] as number);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  packet.set(halves(false, ~sum & 0xffff), 10);
  return packet;
}

/** An IPv6 packet from 2001:db8::1 to 2001:db8::2. */
function ipv6(protocol: number, inner: Uint8Array) {
  const addresses = hex('20010db8000000000000000000000001 20010db8000000000000000000000002');
  return join(hex('60000000'), halves(false, inner.length), Uint8Array.of(protocol, 64), addresses, inner);
}

function udp(port: number, inner: Uint8Array) {
  return join(halves(false, 40_000, port, 8 + inner.length, 0), inner);
}

const IP4 = 'IPv4 192.0.2.1 > 192.0.2.2';
const IP6 = 'IPv6 2001:db8::1 > 2001:db8::2';

/** Ways to carry an Ethernet frame within a frame of a link type, by name. */
export const WRAPPINGS: Readonly<
  Record<string, { linkType: number; outer: readonly string[]; wrap: (frame: Uint8Array) => Uint8Array }>
> = {
  Ethernet: { linkType: 1, outer: ['Ethernet 02:00:00:00:00:02 > 02:00:00:00:00:01'], wrap: (frame) => frame },
  'a priority tag': inEthernet(['VLAN 0, priority 3'], (frame) => tagged(frame, '8100 6000')),
  'tags of 802.1ad and 802.1Q': inEthernet(['VLAN 5', 'VLAN 7, priority 3'], (frame) =>
    tagged(frame, '88a8 0005 8100 6007'),
  ),
  'two tags of 802.1Q': inEthernet(['VLAN 5', 'VLAN 7, priority 3'], (frame) => tagged(frame, '8100 0005 8100 6007')),
  'MPLS with IP': outside(['MPLS label 100', 'MPLS label 101'], (frame) =>
    frameOf(0x8847, hex('00064040 00065140'), frame.subarray(14)),
  ),
  'MPLS with a pseudowire': tunnel(['MPLS label 100'], (frame) => frameOf(0x8847, hex('00064140 00000000'), frame)),
  VXLAN: tunnel([IP4, 'VXLAN 9'], (frame) =>
    frameOf(0x0800, ipv4(17, udp(4789, join(hex('08000000 00000900'), frame)))),
  ),
  'VXLAN over IPv6': tunnel([IP6, 'VXLAN 9'], (frame) =>
    frameOf(0x86dd, ipv6(17, udp(4789, join(hex('08000000 00000900'), frame)))),
  ),
  'GENEVE with options': tunnel([IP4, 'GENEVE 7'], (frame) =>
    frameOf(0x0800, ipv4(17, udp(6081, join(hex('0200 6558 00000700 0000000100000000'), frame)))),
  ),
  'GRE with IP': outside([IP4, 'GRE'], (frame) =>
    frameOf(0x0800, ipv4(47, join(hex('0000 0800'), frame.subarray(14)))),
  ),
  'GRE with a key and Ethernet': tunnel([IP4, 'GRE'], (frame) =>
    frameOf(0x0800, ipv4(47, join(hex('2000 6558 00000001'), frame))),
  ),
  'IP in IP': outside([IP4], (frame) => frameOf(0x0800, ipv4(4, frame.subarray(14)))),
  'ERSPAN I': tunnel([IP4, 'GRE', 'ERSPAN I'], (frame) => frameOf(0x0800, ipv4(47, join(hex('0000 88be'), frame)))),
  'ERSPAN II': tunnel([IP4, 'GRE', 'ERSPAN II session 12'], (frame) =>
    frameOf(0x0800, ipv4(47, join(hex('1000 88be 00000001 1005000c 00000000'), frame))),
  ),
  'ERSPAN III': tunnel([IP4, 'GRE', 'ERSPAN III session 12'], (frame) =>
    frameOf(0x0800, ipv4(47, join(hex('1000 22eb 00000001 2005000c 00000001 00000000'), frame))),
  ),
  'ERSPAN III with a subheader': tunnel([IP4, 'GRE', 'ERSPAN III session 12'], (frame) =>
    frameOf(0x0800, ipv4(47, join(hex('1000 22eb 00000001 2005000c 00000001 00000001 1000000000000000'), frame))),
  ),
  'Linux cooked': {
    ...{ linkType: 113, outer: ['Linux cooked capture'] },
    wrap: (frame) => join(hex('0000 0001 0006'), frame.subarray(6, 12), hex('0000'), frame.subarray(12)),
  },
  'Linux cooked with a tag': {
    ...{ linkType: 113, outer: ['Linux cooked capture', 'VLAN 5'] },
    wrap: (frame) => join(hex('0000 0001 0006'), frame.subarray(6, 12), hex('0000 8100 0005'), frame.subarray(12)),
  },
  'Linux cooked, version 2': {
    ...{ linkType: 276, outer: ['Linux cooked capture of interface 2'] },
    wrap: (frame) =>
      join(
        frame.subarray(12, 14),
        hex('0000 00000002 0001 00 06'),
        frame.subarray(6, 12),
        hex('0000'),
        frame.subarray(14),
      ),
  },
  'raw IP': { linkType: 101, outer: [], wrap: (frame) => frame.subarray(14) },
  IPv4: { linkType: 228, outer: [], wrap: (frame) => frame.subarray(14) },
  loopback: { linkType: 108, outer: ['loopback'], wrap: (frame) => join(hex('00000002'), frame.subarray(14)) },
};

type Wrapping = (typeof WRAPPINGS)[string];

/** Tags behind the addresses of the frame itself. */
function inEthernet(outer: readonly string[], wrap: (frame: Uint8Array) => Uint8Array): Wrapping {
  return { linkType: 1, outer: ['Ethernet 02:00:00:00:00:02 > 02:00:00:00:00:01', ...outer], wrap };
}

function tagged(frame: Uint8Array, tags: string) {
  return join(frame.subarray(0, 12), hex(tags), frame.subarray(12));
}

/** An outer Ethernet frame with the packet of the frame. */
function outside(outer: readonly string[], wrap: (frame: Uint8Array) => Uint8Array): Wrapping {
  return { linkType: 1, outer: ['Ethernet 02:00:00:00:00:bb > 02:00:00:00:00:aa', ...outer], wrap };
}

/** An outer Ethernet frame with the whole frame. */
function tunnel(outer: readonly string[], wrap: (frame: Uint8Array) => Uint8Array): Wrapping {
  return outside([...outer, 'Ethernet 02:00:00:00:00:02 > 02:00:00:00:00:01'], wrap);
}
