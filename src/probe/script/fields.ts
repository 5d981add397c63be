/** The fields of packets by the names that scripts use: where they are in a frame, and how wide they are. */
import type { Decoded, Frame, Ip4, Ip6 } from '../packet/frame.js';
import type { Value } from './values.js';

/** A frame under construction. `breaksIcrc` asks for a wrong ICRC. */
export type Draft = Frame & { breaksIcrc?: boolean };

/** A field of packets. `read` and `write` work on the header that a packet has; `read` returns undefined without it. */
export interface FieldRule {
  /** Bits of an integer; 1 is a flag. */
  readonly bits?: number;
  /** Other types than integers. */
  readonly type?: 'bytes' | 'text';
  /** The meaning, for documentation and messages. */
  readonly about: string;
  read(frame: Decoded): Value | undefined;
  /** Writes the field. @returns false if the packet does not have it */
  write(frame: Draft, value: never): boolean;
}

type Header = Record<string, unknown>;
type Holder = (frame: Frame) => object | undefined;

/** An integer field of a header object. */
function integer(bits: number, about: string, holder: Holder, key: string): FieldRule {
  return {
    bits,
    about,
    read(frame) {
      const value = (holder(frame) as Header | undefined)?.[key];
      return value === undefined ? undefined : BigInt(value as number | bigint | boolean);
    },
    write(frame, value: bigint) {
      const header = holder(frame) as Header | undefined;
      if (header === undefined) return false;
      const cut = BigInt.asUintN(bits, value);
      const now = header[key];
      header[key] = typeof now === 'boolean' ? cut !== 0n : typeof now === 'bigint' ? cut : Number(cut);
      return true;
    },
  };
}

/** Some bits of an integer field. */
function part(of: FieldRule, shift: number, bits: number, about: string): FieldRule {
  const mask = (1n << BigInt(bits)) - 1n;
  return {
    bits,
    about,
    read(frame) {
      const whole = of.read(frame) as bigint | undefined;
      return whole === undefined ? undefined : (whole >> BigInt(shift)) & mask;
    },
    write(frame, value: bigint) {
      const whole = of.read(frame as Decoded) as bigint | undefined;
      if (whole === undefined) return false;
      const kept = whole & ~(mask << BigInt(shift));
      return of.write(frame, (kept | ((value & mask) << BigInt(shift))) as never);
    },
  };
}

/** A field of the whole frame. */
function whole(key: 'immdt' | 'ieth' | 'atomicack' | 'icrc', bits: number, about: string): FieldRule {
  return {
    bits,
    about,
    read: (frame) => (frame[key] === undefined ? undefined : BigInt(frame[key])),
    write(frame, value: bigint) {
      if (key !== 'icrc' && frame[key] === undefined) return false;
      const cut = BigInt.asUintN(bits, value);
      Object.assign(frame, { [key]: key === 'atomicack' ? cut : Number(cut) });
      return true;
    },
  };
}

/** A field whose place depends on the version of IP. */
function ip(bits: number, about: string, v4: keyof Ip4 | undefined, v6: keyof Ip6 | undefined): FieldRule {
  const of = (version: 4 | 6, key: string | undefined): FieldRule | undefined =>
    key === undefined ? undefined : integer(bits, about, ({ ip }) => (ip.version === version ? ip : undefined), key);
  const [four, six] = [of(4, v4), of(6, v6)];
  return {
    bits,
    about,
    read: (frame) => four?.read(frame) ?? six?.read(frame),
    write: (frame, value: never) => (four?.write(frame, value) || six?.write(frame, value)) ?? false,
  };
}

/** A text field: an address. */
function text(about: string, holder: Holder, key: string): FieldRule {
  return {
    type: 'text',
    about,
    read: (frame) => (holder(frame) as Header)[key] as string,
    write(frame, value: string) {
      (holder(frame) as Header)[key] = value;
      return true;
    },
  };
}

function bytes(about: string, key: 'payload' | 'padding' | 'trailer'): FieldRule {
  return {
    type: 'bytes',
    about,
    read: (frame) => frame[key],
    write(frame, value: Uint8Array) {
      frame[key] = value;
      return true;
    },
  };
}

const bth = (bits: number, key: string, about: string) => integer(bits, about, ({ bth }) => bth, key);
const remote: Holder = ({ reth, atomiceth }) => reth ?? atomiceth;
const syndrome = integer(8, 'syndrome of the AETH', ({ aeth }) => aeth, 'syndrome');
const trafficClass = ip(8, 'type of service or traffic class', 'tos', 'trafficClass');
const fragment = ip(16, 'flags and fragment offset (IPv4)', 'fragment', undefined);

const VLAN: FieldRule = {
  bits: 16,
  about: 'tag control information of the 802.1Q tag',
  read: ({ eth }) => (eth.vlan === undefined ? undefined : BigInt(eth.vlan)),
  write(frame, value: bigint) {
    frame.eth.vlan = Number(BigInt.asUintN(16, value));
    return true;
  },
};

/** Whether the ICRC is right. Sent as 0, it makes a wrong ICRC. */
const ICRC_OK: FieldRule = {
  bits: 1,
  about: 'whether the ICRC is right',
  read: ({ icrcOk }) => BigInt(icrcOk),
  write: () => false,
};

/** All fields, in the order of the wire. */
export const FIELDS: ReadonlyMap<string, FieldRule> = new Map(
  Object.entries({
    'eth.src': text('source MAC address', ({ eth }) => eth, 'src'),
    'eth.dst': text('destination MAC address', ({ eth }) => eth, 'dst'),
    'eth.vlan': VLAN,
    'ip.src': text('source IP address', ({ ip }) => ip, 'src'),
    'ip.dst': text('destination IP address', ({ ip }) => ip, 'dst'),
    'ip.tos': trafficClass,
    'ip.ecn': part(trafficClass, 0, 2, 'ECN codepoint: not_ect, ect1, ect0, ce'),
    'ip.dscp': part(trafficClass, 2, 6, 'DSCP'),
    'ip.ttl': ip(8, 'time to live or hop limit', 'ttl', 'hopLimit'),
    'ip.id': ip(16, 'identification (IPv4)', 'id', undefined),
    'ip.df': part(fragment, 14, 1, 'do not fragment (IPv4)'),
    'ip.flowlabel': ip(20, 'flow label (IPv6)', undefined, 'flowLabel'),
    'ip.length': ip(16, 'total length (IPv4) or payload length (IPv6)', 'totalLength', 'payloadLength'),
    'ip.checksum': ip(16, 'header checksum (IPv4)', 'checksum', undefined),
    'udp.sport': integer(16, 'source port', ({ udp }) => udp, 'sport'),
    'udp.dport': integer(16, 'destination port', ({ udp }) => udp, 'dport'),
    'udp.length': integer(16, 'length of the UDP datagram', ({ udp }) => udp, 'length'),
    'udp.checksum': integer(16, 'UDP checksum', ({ udp }) => udp, 'checksum'),
    opcode: bth(8, 'opcode', 'opcode of the BTH'),
    solicited: bth(1, 'solicited', 'solicited event'),
    migreq: bth(1, 'migReq', 'migration state'),
    pad: bth(2, 'pad', 'pad count'),
    tver: bth(4, 'version', 'transport header version'),
    pkey: bth(16, 'pkey', 'partition key'),
    fecn: bth(1, 'fecn', 'forward congestion notification'),
    becn: bth(1, 'becn', 'backward congestion notification'),
    qp: bth(24, 'destQp', 'destination queue pair number'),
    ackreq: bth(1, 'ackReq', 'acknowledge request'),
    psn: bth(24, 'psn', 'packet sequence number'),
    qkey: integer(32, 'Q_Key of the DETH', ({ deth }) => deth, 'qkey'),
    srcqp: integer(24, 'source queue pair number of the DETH', ({ deth }) => deth, 'srcQp'),
    placement: integer(4, 'placement type of a FLUSH', ({ feth }) => feth, 'placement'),
    selectivity: integer(2, 'selectivity level of a FLUSH', ({ feth }) => feth, 'selectivity'),
    va: integer(64, 'virtual address', remote, 'va'),
    rkey: integer(32, 'R_Key', remote, 'rkey'),
    length: integer(32, 'DMA length of the RETH', ({ reth }) => reth, 'length'),
    swap: integer(64, 'swap or add data of an atomic', ({ atomiceth }) => atomiceth, 'swapAdd'),
    add: integer(64, 'swap or add data of an atomic', ({ atomiceth }) => atomiceth, 'swapAdd'),
    compare: integer(64, 'compare data of an atomic', ({ atomiceth }) => atomiceth, 'compare'),
    syndrome,
    credits: part(syndrome, 0, 5, 'credit count of an ACK; 31 is none given'),
    timer: part(syndrome, 0, 5, 'timer of an RNR NAK'),
    code: part(syndrome, 0, 5, 'code of a NAK: sequence, invalid_request, remote_access, remote_operational'),
    msn: integer(24, 'message sequence number', ({ aeth }) => aeth, 'msn'),
    original: whole('atomicack', 64, 'original value of an atomic'),
    imm: whole('immdt', 32, 'immediate data'),
    invalidate: whole('ieth', 32, 'R_Key to invalidate'),
    payload: bytes('payload', 'payload'),
    padding: bytes('pad bytes after the payload', 'padding'),
    icrc: whole('icrc', 32, 'invariant CRC, in the order of the wire'),
    icrcok: ICRC_OK,
    trailer: bytes('bytes after the IP packet', 'trailer'),
  } satisfies Record<string, FieldRule>),
);
