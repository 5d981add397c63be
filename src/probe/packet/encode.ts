/** The second encoder: object of a frame to its bytes. It shares nothing with the card. All fields are big-endian. */
import { ipBytes, macBytes } from './address.js';
import type { Extensions, Frame, Ip4, Ip6 } from './frame.js';
import { icrc } from './icrc.js';
import { HEADER_BYTES, type HeaderName } from './opcodes.js';

class Writer {
  readonly bytes: Uint8Array;
  readonly #view: DataView;
  #at = 0;
  constructor(length: number) {
    this.bytes = new Uint8Array(length);
    this.#view = new DataView(this.bytes.buffer);
  }
  u8(value: number): this {
    this.#view.setUint8(this.#next(1), value);
    return this;
  }
  u16(value: number): this {
    this.#view.setUint16(this.#next(2), value);
    return this;
  }
  u24(value: number): this {
    return this.u8(value >>> 16).u16(value);
  }
  u32(value: number): this {
    this.#view.setUint32(this.#next(4), value);
    return this;
  }
  u64(value: bigint): this {
    this.#view.setBigUint64(this.#next(8), BigInt.asUintN(64, value));
    return this;
  }
  put(bytes: Uint8Array): this {
    this.bytes.set(bytes, this.#next(bytes.length));
    return this;
  }
  #next(length: number): number {
    const at = this.#at;
    this.#at += length;
    return at;
  }
}

type Put = { [H in HeaderName]: (out: Writer, value: NonNullable<Extensions[H]>) => void };

const PUT: Put = {
  deth: (out, v) =>
    out
      .u32(v.qkey)
      .u8(v.reserved8 ?? 0)
      .u24(v.srcQp),
  feth: (out, v) => out.u32(((v.reserved26 ?? 0) << 6) | (v.selectivity << 4) | v.placement),
  reth: (out, v) => out.u64(v.va).u32(v.rkey).u32(v.length),
  atomiceth: (out, v) => out.u64(v.va).u32(v.rkey).u64(v.swapAdd).u64(v.compare),
  aeth: (out, v) => out.u8(v.syndrome).u24(v.msn),
  immdt: (out, v) => out.u32(v),
  ieth: (out, v) => out.u32(v),
  atomicack: (out, v) => out.u64(v),
};

/** Headers in the order of the wire. An unknown opcode gets only the headers that are given. */
const ORDER: readonly HeaderName[] = ['deth', 'feth', 'reth', 'atomiceth', 'aeth', 'immdt', 'ieth', 'atomicack'];

function putHeader<H extends HeaderName>(out: Writer, name: H, value: NonNullable<Extensions[H]>): void {
  PUT[name](out, value);
}

/** Returns the Internet checksum of bytes (RFC 1071). */
export function checksum16(bytes: Uint8Array): number {
  let sum = 0;
  for (let i = 0; i < bytes.length; i += 2) sum += ((bytes[i] as number) << 8) | (bytes[i + 1] ?? 0);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return ~sum & 0xffff;
}

function ipHeader(ip: Ip4 | Ip6, payloadLength: number): Uint8Array {
  if (ip.version === 6) {
    const out = new Writer(40).u32(((6 << 28) | (ip.trafficClass << 20) | ip.flowLabel) >>> 0);
    out
      .u16(ip.payloadLength ?? payloadLength)
      .u8(17)
      .u8(ip.hopLimit);
    return out.put(ipBytes(ip.src)).put(ipBytes(ip.dst)).bytes;
  }
  const write = (checksum: number): Uint8Array => {
    const out = new Writer(20)
      .u8(0x45)
      .u8(ip.tos)
      .u16(ip.totalLength ?? 20 + payloadLength);
    out.u16(ip.id).u16(ip.fragment).u8(ip.ttl).u8(17).u16(checksum);
    return out.put(ipBytes(ip.src)).put(ipBytes(ip.dst)).bytes;
  };
  return write(ip.checksum ?? checksum16(write(0)));
}

/**
 * Returns the bytes of a frame. Absent fields are derived by the rules; given fields are written even if they are
 * wrong.
 */
export function encode(frame: Frame): Uint8Array {
  const { eth, ip, udp, bth, payload } = frame;
  const padding = frame.padding ?? new Uint8Array(-payload.length & 3);
  const headers = ORDER.filter((name) => frame[name] !== undefined);
  const headerBytes = headers.reduce((sum, name) => sum + HEADER_BYTES[name], 0);
  const udpLength = 8 + 12 + headerBytes + payload.length + padding.length + 4;
  const network = ipHeader(ip, udpLength);
  const covered = new Writer(network.length + udpLength - 4).put(network);
  covered
    .u16(udp.sport)
    .u16(udp.dport)
    .u16(udp.length ?? udpLength)
    .u16(udp.checksum);
  covered.u8(bth.opcode);
  const pad = bth.pad ?? padding.length;
  covered.u8((bth.solicited ? 0x80 : 0) | (bth.migReq ? 0x40 : 0) | (pad << 4) | bth.version);
  covered
    .u16(bth.pkey)
    .u8((bth.fecn ? 0x80 : 0) | (bth.becn ? 0x40 : 0) | (bth.reserved6 ?? 0))
    .u24(bth.destQp);
  covered.u8((bth.ackReq ? 0x80 : 0) | (bth.reserved7 ?? 0)).u24(bth.psn);
  for (const name of headers) putHeader(covered, name, frame[name] as never);
  covered.put(payload).put(padding);

  const trailer = frame.trailer ?? new Uint8Array(0);
  const ethBytes = eth.vlan === undefined ? 14 : 18;
  const out = new Writer(ethBytes + covered.bytes.length + 4 + trailer.length);
  out.put(macBytes(eth.dst)).put(macBytes(eth.src));
  if (eth.vlan !== undefined) out.u16(0x8100).u16(eth.vlan);
  out.u16(ip.version === 4 ? 0x0800 : 0x86dd);
  out.put(covered.bytes).u32(frame.icrc ?? icrc(covered.bytes));
  return out.put(trailer).bytes;
}
