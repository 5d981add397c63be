/**
 * Packets for tests. `request`, `ack`, `nak` ... say what a packet means, without where it travels; `frame(flow, packet)`
 * puts it on the wire. A packet is also what to expect: `expect(decode(bytes)).toMatchObject(ack({ psn: 7, msn: 1 }))`.
 * The PSNs, keys and addresses are the caller's: nothing here counts or remembers.
 */
import { encode } from './encode.js';
import type { Bth, Deth, Extensions, Frame, Ip4, Ip6 } from './frame.js';
import { Op, UC, UD_SEND_ONLY, UD_SEND_ONLY_WITH_IMM } from './opcodes.js';

export { decode, isRoce, underived } from './decode.js';
export { describe } from './describe.js';
export { encode } from './encode.js';
export type { Bth, Decoded, Frame } from './frame.js';
export { icrc } from './icrc.js';
export { CNP, OPCODES, Op, UC } from './opcodes.js';

/** One direction between two queue pairs. */
export interface Flow {
  srcMac: string;
  dstMac: string;
  /** Tag control information; absent = untagged. */
  vlan?: number;
  /** Both IPv4 or both IPv6. */
  srcIp: string;
  dstIp: string;
  trafficClass: number;
  /** IPv6 only. */
  flowLabel: number;
  hopLimit: number;
  /** IPv4 only. */
  ipId: number;
  /** UDP source port. */
  sport: number;
  pkey: number;
  migReq: boolean;
  srcQp: number;
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

export function flow(changes: Partial<Flow> = {}): Flow {
  return { ...FLOW, ...changes };
}

/** The way back. */
export function reverse(there: Flow): Flow {
  const ends = { srcMac: there.dstMac, dstMac: there.srcMac, srcIp: there.dstIp, dstIp: there.srcIp };
  return { ...there, ...ends, srcQp: there.destQp, destQp: there.srcQp };
}

/** What a packet says: from the BTH to the payload. What it leaves open, the flow fills in. */
export interface Packet extends Extensions {
  bth: Pick<Bth, 'opcode' | 'psn' | 'solicited' | 'ackReq'> & Partial<Bth>;
  payload: Uint8Array;
  padding?: Uint8Array;
  icrc?: number;
}

/** @param changes replaces whole parts (`{ icrc: 0 }`, `{ padding: ... }`), for frames that break a rule */
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

/** The packet as the bytes of an Ethernet frame. */
export function frame(flow: Flow, packet: Packet, changes: Partial<Frame> = {}): Uint8Array {
  return encode(frameOf(flow, packet, changes));
}

/** What every builder takes; `bth` overrides single fields, as in `{ bth: { version: 1 } }`. */
export interface Base {
  psn: number;
  ackReq?: boolean;
  solicited?: boolean;
  payload?: Uint8Array;
  bth?: Partial<Bth>;
}
type WithImm = Base & { imm: number };
type WithInvalidate = Base & { invalidate: number };
type Remote = Base & { va: bigint; rkey: number };
type RemoteRange = Remote & { length: number };
type Atomic = Remote & { swapAdd: bigint; compare?: bigint };
/** Syndrome: 0x1f = ACK without credits. */
type Answer = Base & { msn: number; syndrome?: number };

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

/** Requests of a reliable connection; `uc` makes those of an unreliable one. Last and only packets ask for no ACK unless told. */
export const request = {
  sendFirst: (o: Base) => packet(Op.SEND_FIRST, o),
  sendMiddle: (o: Base) => packet(Op.SEND_MIDDLE, o),
  sendLast: (o: Base) => packet(Op.SEND_LAST, o),
  sendLastImm: (o: WithImm) => packet(Op.SEND_LAST_WITH_IMM, o, { immdt: o.imm }),
  sendLastInvalidate: (o: WithInvalidate) => packet(Op.SEND_LAST_WITH_INVALIDATE, o, { ieth: o.invalidate }),
  sendOnly: (o: Base) => packet(Op.SEND_ONLY, o),
  sendOnlyImm: (o: WithImm) => packet(Op.SEND_ONLY_WITH_IMM, o, { immdt: o.imm }),
  sendOnlyInvalidate: (o: WithInvalidate) => packet(Op.SEND_ONLY_WITH_INVALIDATE, o, { ieth: o.invalidate }),
  writeFirst: (o: RemoteRange) => packet(Op.RDMA_WRITE_FIRST, o, sized(o)),
  writeMiddle: (o: Base) => packet(Op.RDMA_WRITE_MIDDLE, o),
  writeLast: (o: Base) => packet(Op.RDMA_WRITE_LAST, o),
  writeLastImm: (o: WithImm) => packet(Op.RDMA_WRITE_LAST_WITH_IMM, o, { immdt: o.imm }),
  /** `length` is the payload's unless told. */
  writeOnly: (o: Remote & { length?: number }) => packet(Op.RDMA_WRITE_ONLY, o, sized(o)),
  writeOnlyImm: (o: Remote & { length?: number; imm: number }) =>
    packet(Op.RDMA_WRITE_ONLY_WITH_IMM, o, { ...sized(o), immdt: o.imm }),
  read: (o: RemoteRange) => packet(Op.RDMA_READ_REQUEST, o, sized(o)),
  compareSwap: (o: Remote & { swap: bigint; compare: bigint }) =>
    packet(Op.COMPARE_SWAP, o, atomiceth({ ...o, swapAdd: o.swap })),
  fetchAdd: (o: Remote & { add: bigint }) => packet(Op.FETCH_ADD, o, atomiceth({ ...o, swapAdd: o.add })),
  /** `length` is 8 unless told. */
  atomicWrite: (o: Remote & { length?: number }) => packet(Op.ATOMIC_WRITE, o, reth(o, o.length ?? 8)),
  flush: (o: RemoteRange & { placement: number; selectivity: number }) =>
    packet(Op.FLUSH, o, { feth: { placement: o.placement, selectivity: o.selectivity }, ...sized(o) }),
  send,
  write,
};

/** @param syndrome 0x1f (ACK, no credits) unless told */
export const ack = (o: Answer): Packet => packet(Op.ACKNOWLEDGE, o, aeth(o));

const refusal = (syndrome: number) => (o: Base & { msn?: number }) => {
  const { msn = 0 } = o;
  return ack({ ...o, msn, syndrome });
};
/** NAKs by their code (IBTA 9.7.5.2.8); `rnr` carries the timer code 0..31. MSN is 0 unless told. */
export const nak = {
  sequence: refusal(0x60),
  invalidRequest: refusal(0x61),
  remoteAccess: refusal(0x62),
  remoteOperational: refusal(0x63),
  rnr: (o: Base & { msn?: number; timer: number }): Packet => refusal(0x20 | o.timer)(o),
};

/** Answers that carry data. */
export const response = {
  readFirst: (o: Answer) => packet(Op.RDMA_READ_RESPONSE_FIRST, o, aeth(o)),
  readMiddle: (o: Base) => packet(Op.RDMA_READ_RESPONSE_MIDDLE, o),
  readLast: (o: Answer) => packet(Op.RDMA_READ_RESPONSE_LAST, o, aeth(o)),
  readOnly: (o: Answer) => packet(Op.RDMA_READ_RESPONSE_ONLY, o, aeth(o)),
  atomicAck: (o: Answer & { original: bigint }) =>
    packet(Op.ATOMIC_ACKNOWLEDGE, o, { ...aeth(o), atomicack: o.original }),
  read,
};

/** Datagrams. */
export const datagram = {
  sendOnly: (o: Base & Deth) => packet(UD_SEND_ONLY, o, deth(o)),
  sendOnlyImm: (o: WithImm & Deth) => packet(UD_SEND_ONLY_WITH_IMM, o, { ...deth(o), immdt: o.imm }),
};

/** The same packet in the unreliable connected class. */
export function uc(of: Packet): Packet {
  return { ...of, bth: { ...of.bth, opcode: of.bth.opcode + UC } };
}

/** Cuts a payload into packets of `mtu` bytes, the last one holding the rest; an empty one gives one empty packet. */
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

interface Message {
  /** Of the first packet. */
  psn: number;
  payload: Uint8Array;
  /** Payload bytes of one packet. */
  mtu: number;
}
interface RequestMessage extends Message {
  /** On the last packet; true unless told. */
  ackReq?: boolean;
  solicited?: boolean;
  imm?: number;
}

/** All packets of one SEND. */
function send(o: RequestMessage & { invalidate?: number }): Packet[] {
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

/** All packets of one RDMA WRITE. */
function write(o: RequestMessage & { va: bigint; rkey: number }): Packet[] {
  const { ackReq = true, solicited = false, imm, va, rkey } = o;
  const at = { va, rkey, length: o.payload.length };
  return cut(o.payload, o.psn, o.mtu, (piece, first, last) => {
    if (!last) return first ? request.writeFirst({ ...piece, ...at }) : request.writeMiddle(piece);
    const end = { ...piece, ackReq, solicited };
    if (imm === undefined) return first ? request.writeOnly({ ...end, ...at }) : request.writeLast(end);
    return first ? request.writeOnlyImm({ ...end, ...at, imm }) : request.writeLastImm({ ...end, imm });
  });
}

/** All responses to one RDMA READ. */
function read(o: Message & { msn: number; syndrome?: number }): Packet[] {
  const { msn, syndrome = ACK } = o;
  const answer = { msn, syndrome };
  return cut(o.payload, o.psn, o.mtu, (piece, first, last) => {
    if (first && last) return response.readOnly({ ...piece, ...answer });
    if (first) return response.readFirst({ ...piece, ...answer });
    return last ? response.readLast({ ...piece, ...answer }) : response.readMiddle(piece);
  });
}
