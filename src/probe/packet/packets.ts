/**
 * Packets for tests. `request`, `ack`, `nak` ... make a packet without addresses; `frame(flow, packet)` adds them. A
 * packet is also an expectation: `expect(decode(bytes)).toMatchObject(ack({ psn: 7, msn: 1 }))`. The caller gives all
 * PSNs, keys and addresses: nothing here keeps state.
 */
import { encode } from './encode.js';
import type { Bth, Deth, Extensions, Frame, Ip4, Ip6 } from './frame.js';
import { CNP, Op, UC, UD_SEND_ONLY, UD_SEND_ONLY_WITH_IMM } from './opcodes.js';

export { decode, isRoce, underived } from './decode.js';
export { describe } from './describe.js';
export { encode } from './encode.js';
export type { Bth, Decoded, Frame } from './frame.js';
export { icrc } from './icrc.js';
export { CNP, OPCODES, Op, UC } from './opcodes.js';

/** One direction between two queue pairs. */
export interface Flow {
  /** Source MAC address. */
  srcMac: string;
  /** Destination MAC address. */
  dstMac: string;
  /** Tag control information; absent = untagged. */
  vlan?: number;
  /** Source IP address; both addresses are IPv4 or both IPv6. */
  srcIp: string;
  /** Destination IP address. */
  dstIp: string;
  /** Type of service or traffic class, 8 bits. */
  trafficClass: number;
  /** Flow label, IPv6 only. */
  flowLabel: number;
  /** Time to live or hop limit. */
  hopLimit: number;
  /** Identification, IPv4 only. */
  ipId: number;
  /** UDP source port. */
  sport: number;
  /** Partition key. */
  pkey: number;
  /** Migration state of the BTH. */
  migReq: boolean;
  /** Queue pair number of the source: in no header but the DETH of datagrams. */
  srcQp: number;
  /** Queue pair number of the destination. */
  destQp: number;
}

export const FLOW: Readonly<Flow> = {
  srcMac: '02:00:00:00:00:02',
  dstMac: '02:00:00:00:00:01',
  srcIp: '10.0.0.2',
  dstIp: '10.0.0.1',
  trafficClass: 0,
  flowLabel: 0,
  hopLimit: 64,
  ipId: 0,
  sport: 0xc000,
  pkey: 0xffff,
  migReq: true,
  srcQp: 0x22,
  destQp: 0x11,
};

/** Returns addresses of one direction: those of an example, but for the changes. */
export function flowOf(changes: Partial<Flow> = {}): Flow {
  return { ...FLOW, ...changes };
}

/** Returns the opposite direction. */
export function reverse(there: Flow): Flow {
  const ends = { srcMac: there.dstMac, dstMac: there.srcMac, srcIp: there.dstIp, dstIp: there.srcIp };
  return { ...there, ...ends, srcQp: there.destQp, destQp: there.srcQp };
}

/** The contents of a packet, from the BTH to the payload. The flow supplies the fields that are absent. */
export interface Packet extends Extensions {
  /** Base transport header. */
  bth: Pick<Bth, 'opcode' | 'psn' | 'solicited' | 'ackReq'> & Partial<Bth>;
  /** Payload, without padding. */
  payload: Uint8Array;
  /** Bytes after the payload; zeroes up to a multiple of 4 when absent. */
  padding?: Uint8Array;
  /** The four bytes of the wire, read big-endian; computed when absent. */
  icrc?: number;
}

/** @param changes replaces whole fields (`{ icrc: 0 }`, `{ padding: ... }`), for frames that break a rule */
export function frameOf(flow: Flow, packet: Packet, changes: Partial<Frame> = {}): Frame {
  const ends = { src: flow.srcIp, dst: flow.dstIp };
  const ip: Ip4 | Ip6 = flow.srcIp.includes(':')
    ? { version: 6, ...ends, trafficClass: flow.trafficClass, flowLabel: flow.flowLabel, hopLimit: flow.hopLimit }
    : { version: 4, ...ends, tos: flow.trafficClass, id: flow.ipId, fragment: 0x4000, ttl: flow.hopLimit };
  const eth = { dst: flow.dstMac, src: flow.srcMac, ...(flow.vlan === undefined ? {} : { vlan: flow.vlan }) };
  const { pkey, migReq, destQp } = flow;
  const bth: Bth = { migReq, pkey, destQp, version: 0, fecn: false, becn: false, ...packet.bth };
  return { ...packet, eth, ip, udp: { sport: flow.sport, dport: 4791, checksum: 0 }, bth, ...changes };
}

/** Returns the packet as the bytes of an Ethernet frame. */
export function encodeFrame(flow: Flow, packet: Packet, changes: Partial<Frame> = {}): Uint8Array {
  return encode(frameOf(flow, packet, changes));
}

/** Options of every builder; `bth` overrides single fields, as in `{ bth: { version: 1 } }`. */
export interface Base {
  /** Packet sequence number. */
  psn: number;
  /** Acknowledge request. Default: false. */
  ackReq?: boolean;
  /** Solicited event. Default: false. */
  solicited?: boolean;
  /** Default: no bytes. */
  payload?: Uint8Array;
  /** Single fields of the BTH. */
  bth?: Partial<Bth>;
}
/** A packet with immediate data. */
export interface WithImm extends Base {
  /** The four bytes of the wire, read big-endian. */
  imm: number;
}
/** A packet that invalidates a key. */
export interface WithInvalidate extends Base {
  /** The remote key. */
  invalidate: number;
}
/** A packet that names remote memory. */
export interface Remote extends Base {
  /** Address. */
  va: bigint;
  /** Remote key. */
  rkey: number;
}
/** A packet that names a range of remote memory. */
export interface RemoteRange extends Remote {
  /** Bytes of the message. */
  length: number;
}
type Atomic = Remote & { swapAdd: bigint; compare?: bigint };
/** A packet with an AETH. */
export interface Answer extends Base {
  /** Message sequence number. */
  msn: number;
  /** 0x1f: an ACK without credits. */
  syndrome?: number;
}

export const ACK = 0x1f;

function packet(opcode: number, base: Base, extensions: Extensions = {}, payload = base.payload): Packet {
  const { psn, ackReq = false, solicited = false } = base;
  return { bth: { opcode, psn, ackReq, solicited, ...base.bth }, ...extensions, payload: payload ?? new Uint8Array(0) };
}
const reth = (at: Remote, length: number): Extensions => ({ reth: { va: at.va, rkey: at.rkey, length } });
const atomiceth = ({ va, rkey, swapAdd, compare = 0n }: Atomic): Extensions => ({
  atomiceth: { va, rkey, swapAdd, compare },
});
const aeth = ({ msn, syndrome = ACK }: Answer): Extensions => ({ aeth: { syndrome, msn } });
const deth = ({ qkey, srcQp }: Deth): Extensions => ({ deth: { qkey, srcQp } });
const sized = (at: Remote & { length?: number }): Extensions => reth(at, at.length ?? at.payload?.length ?? 0);

/** Requests of an RC queue pair; `uc` makes those of UC. By default last and only packets do not request an ACK. */
export const request = {
  /** First packet of a SEND. */
  sendFirst: (o: Base) => packet(Op.SEND_FIRST, o),
  /** Packet in the middle of a SEND. */
  sendMiddle: (o: Base) => packet(Op.SEND_MIDDLE, o),
  /** Last packet of a SEND. */
  sendLast: (o: Base) => packet(Op.SEND_LAST, o),
  /** Last packet of a SEND with immediate data. */
  sendLastImm: (o: WithImm) => packet(Op.SEND_LAST_WITH_IMM, o, { immdt: o.imm }),
  /** Last packet of a SEND that invalidates a key. */
  sendLastInvalidate: (o: WithInvalidate) => packet(Op.SEND_LAST_WITH_INVALIDATE, o, { ieth: o.invalidate }),
  /** SEND of one packet. */
  sendOnly: (o: Base) => packet(Op.SEND_ONLY, o),
  /** SEND of one packet, with immediate data. */
  sendOnlyImm: (o: WithImm) => packet(Op.SEND_ONLY_WITH_IMM, o, { immdt: o.imm }),
  /** SEND of one packet that invalidates a key. */
  sendOnlyInvalidate: (o: WithInvalidate) => packet(Op.SEND_ONLY_WITH_INVALIDATE, o, { ieth: o.invalidate }),
  /** First packet of a WRITE; `length` is that of the message. */
  writeFirst: (o: RemoteRange) => packet(Op.RDMA_WRITE_FIRST, o, sized(o)),
  /** Packet in the middle of a WRITE. */
  writeMiddle: (o: Base) => packet(Op.RDMA_WRITE_MIDDLE, o),
  /** Last packet of a WRITE. */
  writeLast: (o: Base) => packet(Op.RDMA_WRITE_LAST, o),
  /** Last packet of a WRITE with immediate data. */
  writeLastImm: (o: WithImm) => packet(Op.RDMA_WRITE_LAST_WITH_IMM, o, { immdt: o.imm }),
  /** WRITE of one packet. `length` defaults to that of the payload. */
  writeOnly: (o: Remote & { length?: number }) => packet(Op.RDMA_WRITE_ONLY, o, sized(o)),
  /** WRITE of one packet, with immediate data. */
  writeOnlyImm: (o: Remote & { length?: number; imm: number }) =>
    packet(Op.RDMA_WRITE_ONLY_WITH_IMM, o, { ...sized(o), immdt: o.imm }),
  /** Request of a READ. */
  read: (o: RemoteRange) => packet(Op.RDMA_READ_REQUEST, o, sized(o)),
  /** Atomic compare and swap. */
  compareSwap: (o: Remote & { swap: bigint; compare: bigint }) =>
    packet(Op.COMPARE_SWAP, o, atomiceth({ ...o, swapAdd: o.swap })),
  /** Atomic fetch and add. */
  fetchAdd: (o: Remote & { add: bigint }) => packet(Op.FETCH_ADD, o, atomiceth({ ...o, swapAdd: o.add })),
  /** WRITE of 8 bytes as a whole. `length` defaults to 8. */
  atomicWrite: (o: Remote & { length?: number }) => packet(Op.ATOMIC_WRITE, o, reth(o, o.length ?? 8)),
  /** FLUSH of a range or a memory region. */
  flush: (o: RemoteRange & { placement: number; selectivity: number }) =>
    packet(Op.FLUSH, o, { feth: { placement: o.placement, selectivity: o.selectivity }, ...sized(o) }),
  /** All packets of one SEND. */
  send,
  /** All packets of one WRITE. */
  write,
};

/** An ACK. `syndrome` defaults to 0x1f (without credits). */
export const ack = (o: Answer): Packet => packet(Op.ACKNOWLEDGE, o, aeth(o));

const refusal = (syndrome: number) => (o: Base & { msn?: number }) => {
  const { msn = 0 } = o;
  return ack({ ...o, msn, syndrome });
};
/** NAKs by their code (IBTA 9.7.5.2.8); `rnr` carries the timer code 0 to 31. The MSN defaults to 0. */
export const nak = {
  /** The PSN is beyond the expected one. */
  sequence: refusal(0x60),
  /** The request breaks a rule. */
  invalidRequest: refusal(0x61),
  /** The key, the rights or the range are wrong. */
  remoteAccess: refusal(0x62),
  /** The responder itself has an error. */
  remoteOperational: refusal(0x63),
  /** No receive is posted; `timer` is the code of the time to wait. */
  rnr: (o: Base & { msn?: number; timer: number }): Packet => refusal(0x20 | o.timer)(o),
};

/** A congestion notification packet (IBTA annex A17): BECN, PSN 0, and sixteen reserved bytes. */
export const cnp = (): Packet => ({
  bth: { opcode: CNP, psn: 0, solicited: false, ackReq: false, becn: true },
  payload: new Uint8Array(16),
});

/** Responses with data. */
export const response = {
  /** First response to a READ. */
  readFirst: (o: Answer) => packet(Op.RDMA_READ_RESPONSE_FIRST, o, aeth(o)),
  /** Response in the middle of those to a READ. */
  readMiddle: (o: Base) => packet(Op.RDMA_READ_RESPONSE_MIDDLE, o),
  /** Last response to a READ. */
  readLast: (o: Answer) => packet(Op.RDMA_READ_RESPONSE_LAST, o, aeth(o)),
  /** The one response to a READ. */
  readOnly: (o: Answer) => packet(Op.RDMA_READ_RESPONSE_ONLY, o, aeth(o)),
  /** Response to an atomic operation; `original` is the value before it. */
  atomicAck: (o: Answer & { original: bigint }) =>
    packet(Op.ATOMIC_ACKNOWLEDGE, o, { ...aeth(o), atomicack: o.original }),
  /** All responses to one READ. */
  read,
};

/** Datagrams. */
export const datagram = {
  sendOnly: (o: Base & Deth) => packet(UD_SEND_ONLY, o, deth(o)),
  sendOnlyImm: (o: WithImm & Deth) => packet(UD_SEND_ONLY_WITH_IMM, o, { ...deth(o), immdt: o.imm }),
};

/** Returns the same packet in the UC class. */
export function uc(of: Packet): Packet {
  return { ...of, bth: { ...of.bth, opcode: of.bth.opcode + UC } };
}

/**
 * Divides a payload into packets of `mtu` bytes; the last one holds the rest. An empty payload gives one empty packet.
 */
function cut<T>(
  payload: Uint8Array,
  psn: number,
  mtu: number,
  make: (piece: Base, first: boolean, last: boolean) => T,
) {
  const count = Math.max(1, Math.ceil(payload.length / mtu));
  return Array.from({ length: count }, (_, i) => {
    const piece = { psn: (psn + i) & 0xffffff, payload: payload.slice(i * mtu, (i + 1) * mtu) };
    return make(piece, i === 0, i === count - 1);
  });
}

/** A message that is divided into packets. */
export interface Pieces {
  /** PSN of the first packet. */
  psn: number;
  /** Payload of the message. */
  payload: Uint8Array;
  /** Payload bytes of one packet. */
  mtu: number;
}
/** A request that is divided into packets. */
export interface RequestPieces extends Pieces {
  /** The AckReq bit of the last packet; default true. */
  ackReq?: boolean;
  /** Solicited event of the last packet; default false. */
  solicited?: boolean;
  /** Immediate data of the last packet. */
  imm?: number;
}

/** Returns all packets of one SEND. */
function send(o: RequestPieces & { invalidate?: number }): Packet[] {
  const { ackReq = true, solicited = false, imm, invalidate } = o;
  return cut(o.payload, o.psn, o.mtu, (piece, first, last) => {
    if (!last) return first ? request.sendFirst(piece) : request.sendMiddle(piece);
    const end = { ...piece, ackReq, solicited };
    if (imm !== undefined) return first ? request.sendOnlyImm({ ...end, imm }) : request.sendLastImm({ ...end, imm });
    if (invalidate !== undefined)
      return first
        ? request.sendOnlyInvalidate({ ...end, invalidate })
        : request.sendLastInvalidate({ ...end, invalidate });
    return first ? request.sendOnly(end) : request.sendLast(end);
  });
}

/** Returns all packets of one RDMA WRITE. */
function write(o: RequestPieces & { va: bigint; rkey: number }): Packet[] {
  const { ackReq = true, solicited = false, imm, va, rkey } = o;
  const at = { va, rkey, length: o.payload.length };
  return cut(o.payload, o.psn, o.mtu, (piece, first, last) => {
    if (!last) return first ? request.writeFirst({ ...piece, ...at }) : request.writeMiddle(piece);
    const end = { ...piece, ackReq, solicited };
    if (imm === undefined) return first ? request.writeOnly({ ...end, ...at }) : request.writeLast(end);
    return first ? request.writeOnlyImm({ ...end, ...at, imm }) : request.writeLastImm({ ...end, imm });
  });
}

/** Returns all responses to one RDMA READ. */
function read(o: Pieces & { msn: number; syndrome?: number }): Packet[] {
  const { msn, syndrome = ACK } = o;
  const answer = { msn, syndrome };
  return cut(o.payload, o.psn, o.mtu, (piece, first, last) => {
    if (first && last) return response.readOnly({ ...piece, ...answer });
    if (first) return response.readFirst({ ...piece, ...answer });
    return last ? response.readLast({ ...piece, ...answer }) : response.readMiddle(piece);
  });
}
