/** The second decoder: bytes of a frame to its object. It shares nothing with the card. All fields are big-endian. */
import { ipText, macText } from './address.js';
import {
  type Bth,
  type Decoded,
  type Eth,
  type Extensions,
  type Frame,
  type Ip4,
  type Ip6,
  ROCE_PORT,
  type Udp,
} from './frame.js';
import { numberHex } from './hex.js';
import { icrc } from './icrc.js';
import { HEADER_BYTES, type HeaderName, OPCODES } from './opcodes.js';

/** Bytes of UDP header and BTH, and of the ICRC. */
const BODY_BYTES = 8 + 12;
const ICRC_BYTES = 4;

class Reader {
  readonly #view: DataView;
  #at = 0;
  constructor(readonly bytes: Uint8Array) {
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  }
  get left(): number {
    return this.bytes.length - this.#at;
  }
  u8(): number {
    return this.#view.getUint8(this.#next(1));
  }
  u16(): number {
    return this.#view.getUint16(this.#next(2));
  }
  u24(): number {
    return (this.u8() << 16) | this.u16();
  }
  u32(): number {
    return this.#view.getUint32(this.#next(4));
  }
  u64(): bigint {
    return this.#view.getBigUint64(this.#next(8));
  }
  /** Returns a copy of the next bytes. */
  take(length: number): Uint8Array {
    if (length < 0 || length > this.left) throw new RangeError(`${length} bytes wanted, ${this.left} left`);
    const at = this.#next(length);
    return this.bytes.slice(at, at + length);
  }
  #next(length: number): number {
    const at = this.#at;
    this.#at += length;
    return at;
  }
}

type Take = { [H in HeaderName]: (from: Reader) => NonNullable<Extensions[H]> };

const TAKE: Take = {
  deth: (from) => {
    const [qkey, reserved8, srcQp] = [from.u32(), from.u8(), from.u24()];
    return { qkey, srcQp, ...(reserved8 !== 0 && { reserved8 }) };
  },
  feth: (from) => {
    const bits = from.u32();
    const reserved26 = bits >>> 6;
    return { placement: bits & 15, selectivity: (bits >>> 4) & 3, ...(reserved26 !== 0 && { reserved26 }) };
  },
  reth: (from) => ({ va: from.u64(), rkey: from.u32(), length: from.u32() }),
  atomiceth: (from) => ({ va: from.u64(), rkey: from.u32(), swapAdd: from.u64(), compare: from.u64() }),
  aeth: (from) => ({ syndrome: from.u8(), msn: from.u24() }),
  immdt: (from) => from.u32(),
  ieth: (from) => from.u32(),
  atomicack: (from) => from.u64(),
};

function takeIp(from: Reader, version: number): { ip: Ip4 | Ip6; protocol: number; length: number } {
  if (version === 4) {
    const versionLength = from.u8();
    if (versionLength !== 0x45) throw new RangeError(`IPv4 header starts with ${numberHex(versionLength)}`);
    const [tos, totalLength, id, fragment, ttl, protocol, checksum] = [
      from.u8(),
      from.u16(),
      from.u16(),
      from.u16(),
      from.u8(),
      from.u8(),
      from.u16(),
    ];
    const [src, dst] = [ipText(from.take(4)), ipText(from.take(4))];
    const ip: Ip4 = { version: 4, tos, id, fragment, ttl, src, dst, totalLength, checksum };
    return { ip, protocol, length: totalLength - 20 };
  }
  if (version !== 6) throw new RangeError(`IP has version ${version}`);
  const [first, payloadLength, protocol, hopLimit] = [from.u32(), from.u16(), from.u8(), from.u8()];
  const [src, dst] = [ipText(from.take(16)), ipText(from.take(16))];
  const [trafficClass, flowLabel] = [(first >>> 20) & 255, first & 0xfffff];
  const ip: Ip6 = { version: 6, trafficClass, flowLabel, hopLimit, src, dst, payloadLength };
  return { ip, protocol, length: payloadLength };
}

/** A packet from its IP header on, as far as it was captured. */
export interface PacketView extends Extensions {
  /** IP header. */
  readonly ip: Ip4 | Ip6;
  /** UDP header. */
  readonly udp: Udp;
  /** Base transport header. */
  readonly bth: Required<Bth>;
  /** Bytes from the IP header to the payload. */
  readonly headerBytes: number;
  /** Payload, without padding, as far as it was captured. */
  readonly payload: Uint8Array;
  /** Bytes of payload on the wire. */
  readonly payloadBytes: number;
  /** The bytes behind the payload; undefined if the packet is cut. */
  readonly tail: Pick<Decoded, 'padding' | 'icrc' | 'icrcExpected' | 'icrcOk'> | undefined;
}

/**
 * Decodes a packet from its IP header on. Lengths and checksums are those of the packet, right or wrong.
 * @param bytes may be cut by the snap length of a capture, and may have bytes after the packet
 * @throws RangeError when it is not a RoCEv2 packet, is shorter than its headers say, or is cut before its BTH ends
 */
export function decodePacket(bytes: Uint8Array): PacketView {
  const from = new Reader(bytes);
  const { ip, protocol, length } = takeIp(from, (bytes[0] ?? 0) >> 4);
  if (protocol !== 17) throw new RangeError(`IP protocol ${protocol} is not UDP`);
  const ipBytes = bytes.length - from.left;
  const isCut = length > from.left;
  const body = new Reader(from.take(Math.min(length, from.left)));
  const [sport, dport, udpLength, checksum] = [body.u16(), body.u16(), body.u16(), body.u16()];
  if (dport !== ROCE_PORT) throw new RangeError(`UDP port ${dport} is not ${ROCE_PORT}`);
  const udp: Udp = { sport, dport, length: udpLength, checksum };
  const bth = takeBth(body);
  const extensions: Record<string, unknown> = {};
  let extensionBytes = 0;
  for (const name of OPCODES.get(bth.opcode)?.headers ?? []) {
    // a header that is cut is absent, and so are those behind it
    if (!isCut || extensionBytes + HEADER_BYTES[name] <= body.bytes.length - BODY_BYTES)
      extensions[name] = TAKE[name](body);
    extensionBytes += HEADER_BYTES[name];
  }
  const payloadBytes = length - BODY_BYTES - extensionBytes - bth.pad - ICRC_BYTES;
  if (payloadBytes < 0)
    throw new RangeError(`${length} bytes after the IP header are too few for opcode ${numberHex(bth.opcode)}`);
  const isPayloadSeen = body.bytes.length - body.left === BODY_BYTES + extensionBytes;
  const payload = body.take(isPayloadSeen ? Math.min(payloadBytes, body.left) : 0);
  const headerBytes = Math.min(ipBytes + BODY_BYTES + extensionBytes, bytes.length);
  const view = { ip, udp, bth, ...(extensions as Extensions), headerBytes, payload, payloadBytes };
  if (isCut) return { ...view, tail: undefined };
  const padding = body.take(bth.pad);
  const found = body.u32();
  const expected = icrc(bytes.subarray(0, ipBytes + length - ICRC_BYTES));
  return { ...view, tail: { padding, icrc: found, icrcExpected: expected, icrcOk: found === expected } };
}

function takeBth(from: Reader): Required<Bth> {
  const [opcode, flags, pkey, congestion, destQp, ack, psn] = [
    from.u8(),
    from.u8(),
    from.u16(),
    from.u8(),
    from.u24(),
    from.u8(),
    from.u24(),
  ];
  return {
    opcode,
    solicited: (flags & 0x80) !== 0,
    migReq: (flags & 0x40) !== 0,
    pad: (flags >> 4) & 3,
    version: flags & 15,
    pkey,
    fecn: (congestion & 0x80) !== 0,
    becn: (congestion & 0x40) !== 0,
    reserved6: congestion & 0x3f,
    destQp,
    ackReq: (ack & 0x80) !== 0,
    reserved7: ack & 0x7f,
    psn,
  };
}

/**
 * Decodes a frame completely. Lengths and checksums are those of the frame, right or wrong.
 * @throws RangeError when it is not a RoCEv2 frame, or is shorter than its headers say
 */
export function decode(bytes: Uint8Array): Decoded {
  const from = new Reader(bytes);
  const eth: Eth = { dst: macText(from.take(6)), src: macText(from.take(6)) };
  let etherType = from.u16();
  if (etherType === 0x8100) {
    eth.vlan = from.u16();
    etherType = from.u16();
  }
  const packet = bytes.subarray(bytes.length - from.left);
  if (etherType !== ((packet[0] ?? 0) >> 4 === 4 ? 0x0800 : 0x86dd))
    throw new RangeError(`ethertype ${numberHex(etherType)} is not that of the IP packet`);
  const { headerBytes: _h, payloadBytes: _p, tail, ...view } = decodePacket(packet);
  if (tail === undefined) throw new RangeError(`the frame is cut: it has ${bytes.length} bytes`);
  const { ip } = view;
  const ipPacketBytes = ip.version === 4 ? (ip.totalLength as number) : 40 + (ip.payloadLength as number);
  return { eth, ...view, ...tail, trailer: packet.slice(ipPacketBytes) };
}

/** Returns the frame without the fields that encode can derive: lengths, checksum, padding, ICRC. */
export function underived(frame: Decoded): Frame {
  const { padding: _p, icrc: _i, icrcExpected: _e, icrcOk: _o, ...rest } = frame;
  const { pad: _pad, ...bth } = frame.bth;
  const { length: _l, ...udp } = frame.udp;
  if (frame.ip.version === 4) {
    const { totalLength: _t, checksum: _c, ...ip } = frame.ip;
    return { ...rest, ip, udp, bth };
  }
  const { payloadLength: _n, ...ip } = frame.ip;
  return { ...rest, ip, udp, bth };
}

/** Returns whether the frame is Ethernet, IP, and UDP to port 4791. */
export function isRoce(bytes: Uint8Array): boolean {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  let at = 12;
  if (bytes.length < 18) return false;
  if (view.getUint16(at) === 0x8100) at += 4;
  const type = view.getUint16(at);
  const ip = at + 2;
  if (type === 0x0800) return bytes.length >= ip + 28 && bytes[ip + 9] === 17 && view.getUint16(ip + 22) === ROCE_PORT;
  return type === 0x86dd && bytes.length >= ip + 48 && bytes[ip + 6] === 17 && view.getUint16(ip + 42) === ROCE_PORT;
}

/** Returns a decoded RoCEv2 frame, or undefined for any other frame and for one that is cut short. */
export function decodeRoce(frame: Uint8Array): Decoded | undefined {
  if (!isRoce(frame)) return undefined;
  try {
    return decode(frame);
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}
