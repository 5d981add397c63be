/**
 * A second encoder of the communication manager's messages: every field by its offset in the specification (IBTA 12.6
 * to 12.11). It shares no code with src/cm.
 */

/** A message; offsets count from the start of its body. */
export class Mad {
  readonly bytes = new Uint8Array(256);
  readonly #view = new DataView(this.bytes.buffer);

  constructor(attribute: number, tid: bigint) {
    this.bytes.set([1, 7, 2, 3]);
    this.#view.setBigUint64(8, tid);
    this.#view.setUint16(16, attribute);
  }

  u8(at: number, value: number): this {
    this.#view.setUint8(24 + at, value);
    return this;
  }
  u16(at: number, value: number): this {
    this.#view.setUint16(24 + at, value);
    return this;
  }
  u24(at: number, value: number): this {
    return this.u8(at, value >>> 16).u16(at + 1, value & 0xffff);
  }
  u32(at: number, value: number): this {
    this.#view.setUint32(24 + at, value);
    return this;
  }
  u64(at: number, value: bigint): this {
    this.#view.setBigUint64(24 + at, value);
    return this;
  }
  put(at: number, data: ArrayLike<number>): this {
    this.bytes.set(data, 24 + at);
    return this;
  }
}

export interface ReqFields {
  tid: bigint;
  id: number;
  port: number;
  space: number;
  guid: bigint;
  qpn: number;
  resources: number;
  depth: number;
  remoteTimeout: number;
  /** 0 RC, 1 UC. */
  transport: number;
  psn: number;
  localTimeout: number;
  retries: number;
  pkey: number;
  mtu: number;
  rnr: number;
  cmRetries: number;
  /** Four bytes of IPv4 each, or sixteen of IPv6. */
  from: readonly number[];
  to: readonly number[];
  flow: number;
  tclass: number;
  sl: number;
  hops: number;
  ackTimeout: number;
  sourcePort: number;
  hdrVersion: number;
  ipVersion: number;
  privateData: readonly number[];
}

const MAPPED = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
const V4 = new Array(12).fill(0);

/** Addresses of the simulated peer and of our end. */
export const PEER_ADDRESS = '10.0.0.2';
export const OUR_ADDRESS = '10.0.0.1';
export const PEER_IP = [10, 0, 0, 2];
export const OUR_IP = [10, 0, 0, 1];
export const PEER_GUID = 0x0200_00ff_fe00_0002n;

export const REQ: Readonly<ReqFields> = {
  tid: 0x1111_0000_0000_0777n,
  id: 0x777,
  port: 7174,
  space: 0x0106,
  guid: PEER_GUID,
  qpn: 0x40,
  resources: 4,
  depth: 2,
  remoteTimeout: 20,
  transport: 0,
  psn: 0xabc,
  localTimeout: 20,
  retries: 7,
  pkey: 0xffff,
  mtu: 3,
  rnr: 6,
  cmRetries: 15,
  from: PEER_IP,
  to: OUR_IP,
  flow: 0x12345,
  tclass: 0,
  sl: 0,
  hops: 64,
  ackTimeout: 17,
  sourcePort: 40000,
  hdrVersion: 0,
  ipVersion: 0x40,
  privateData: [],
};

/** The 16 bytes of an address: an IPv4 address has others before it. */
const wide = (address: readonly number[], before: readonly number[]) =>
  address.length === 4 ? [...before, ...address] : address;

function hdr(f: Pick<ReqFields, 'hdrVersion' | 'ipVersion' | 'sourcePort' | 'from' | 'to' | 'privateData'>): number[] {
  const port = [f.sourcePort >> 8, f.sourcePort & 255];
  return [f.hdrVersion, f.ipVersion, ...port, ...wide(f.from, V4), ...wide(f.to, V4), ...f.privateData];
}

export function req(changes: Partial<ReqFields> = {}): Uint8Array {
  const f = { ...REQ, ...changes };
  return new Mad(0x10, f.tid)
    .u32(0, f.id)
    .u64(8, (BigInt(f.space) << 16n) | BigInt(f.port))
    .u64(16, f.guid)
    .u24(32, f.qpn)
    .u8(35, f.resources)
    .u8(39, f.depth)
    .u8(43, (f.remoteTimeout << 3) | (f.transport << 1))
    .u24(44, f.psn)
    .u8(47, (f.localTimeout << 3) | f.retries)
    .u16(48, f.pkey)
    .u8(50, (f.mtu << 4) | f.rnr)
    .u8(51, f.cmRetries << 4)
    .u16(52, 0xffff)
    .u16(54, 0xffff)
    .put(56, wide(f.from, MAPPED))
    .put(72, wide(f.to, MAPPED))
    .u24(88, f.flow << 4)
    .u8(92, f.tclass)
    .u8(93, f.hops)
    .u8(94, f.sl << 4)
    .u8(95, f.ackTimeout << 3)
    .put(140, hdr(f)).bytes;
}

/** Fields of all messages after the REQ; `id` is the sender's communication id. */
export interface Ids {
  tid: bigint;
  id: number;
  remote: number;
}

const after = (attribute: number, { tid, id, remote }: Ids) => new Mad(attribute, tid).u32(0, id).u32(4, remote);

export function mra(f: Ids & { subject: number; timeout: number }): Uint8Array {
  return after(0x11, f)
    .u8(8, f.subject << 6)
    .u8(9, f.timeout << 3).bytes;
}

export function rej(
  f: Ids & { subject: number; reason: number; info?: readonly number[]; privateData?: readonly number[] },
): Uint8Array {
  const info = f.info ?? [];
  return after(0x12, f)
    .u8(8, f.subject << 6)
    .u8(9, info.length << 1)
    .u16(10, f.reason)
    .put(12, info)
    .put(84, f.privateData ?? []).bytes;
}

export interface RepFields extends Ids {
  qpn: number;
  psn: number;
  resources: number;
  depth: number;
  ackDelay: number;
  rnr: number;
  guid: bigint;
  privateData: readonly number[];
}

export const REP: Omit<RepFields, keyof Ids> = {
  qpn: 0x50,
  psn: 0xdef,
  resources: 3,
  depth: 1,
  ackDelay: 15,
  rnr: 5,
  guid: PEER_GUID,
  privateData: [],
};

export function rep(changes: Ids & Partial<RepFields>): Uint8Array {
  const f = { ...REP, ...changes };
  return after(0x13, f)
    .u24(12, f.qpn)
    .u24(20, f.psn)
    .u8(24, f.resources)
    .u8(25, f.depth)
    .u8(26, f.ackDelay << 3)
    .u8(27, f.rnr << 5)
    .u64(28, f.guid)
    .put(36, f.privateData).bytes;
}

export function rtu(f: Ids & { privateData?: readonly number[] }): Uint8Array {
  return after(0x14, f).put(8, f.privateData ?? []).bytes;
}

export function dreq(f: Ids & { qpn: number; privateData?: readonly number[] }): Uint8Array {
  return after(0x15, f)
    .u24(8, f.qpn)
    .put(12, f.privateData ?? []).bytes;
}

export function drep(f: Ids & { privateData?: readonly number[] }): Uint8Array {
  return after(0x16, f).put(8, f.privateData ?? []).bytes;
}

export interface SidrReqFields {
  tid: bigint;
  id: number;
  port: number;
  space: number;
  from: readonly number[];
  to: readonly number[];
  sourcePort: number;
  hdrVersion: number;
  ipVersion: number;
  privateData: readonly number[];
}

export const SIDR_REQ: Readonly<SidrReqFields> = {
  tid: 0x2222_0000_0000_0888n,
  id: 0x888,
  port: 7174,
  space: 0x0111,
  from: PEER_IP,
  to: OUR_IP,
  sourcePort: 40001,
  hdrVersion: 0,
  ipVersion: 0x40,
  privateData: [],
};

export function sidrReq(changes: Partial<SidrReqFields> = {}): Uint8Array {
  const f = { ...SIDR_REQ, ...changes };
  return new Mad(0x17, f.tid)
    .u32(0, f.id)
    .u16(4, 0xffff)
    .u64(8, (BigInt(f.space) << 16n) | BigInt(f.port))
    .put(16, hdr(f)).bytes;
}

export function sidrRep(f: {
  tid: bigint;
  id: number;
  status: number;
  qpn: number;
  qkey: number;
  port: number;
  privateData?: readonly number[];
}): Uint8Array {
  return new Mad(0x18, f.tid)
    .u32(0, f.id)
    .u8(4, f.status)
    .u24(8, f.qpn)
    .u64(12, (0x0111n << 16n) | BigInt(f.port))
    .u32(20, f.qkey)
    .put(96, f.privateData ?? []).bytes;
}

/** Returns the 8 bytes of a number, big-endian. */
export function u64Bytes(value: bigint): number[] {
  return Array.from({ length: 8 }, (_, i) => Number((value >> BigInt(56 - 8 * i)) & 255n));
}
