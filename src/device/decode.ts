/** Decodes the headers of RoCEv2 frames for people to read. It does not check frames; the card does. */
import { ipText } from '../base/address.js';
import { ETHERNET_BYTES, ETHERTYPE, ROCE_PORT, VLAN_TAG_BYTES } from '../link/headers.js';
import { nameOf, Opcode, OpcodeFlag, opcodeFlags } from './codes.js';
import type { Trace } from './trace.js';

/** Header fields of a RoCEv2 packet. */
export interface PacketHeader {
  /** Source IP address. */
  readonly source: string;
  /** Destination IP address. */
  readonly destination: string;
  /** BTH opcode. */
  readonly opcode: number;
  /** Destination queue pair number. */
  readonly destQpn: number;
  /** Source queue pair number; datagrams only. */
  readonly srcQpn?: number;
  /** Packet sequence number. */
  readonly psn: number;
  /** All fields in one line: addresses, operation, queue pair, PSN, extended headers, bytes of payload. */
  readonly text: string;
}

/** A packet that a device has sent or received. */
export interface TracedPacket extends PacketHeader {
  /** Whether the device sent the packet. */
  readonly sent: boolean;
  /** Time on the device's clock (ns). */
  readonly at: number;
}

const BTH_BYTES = 12;
const ICRC_BYTES = 4;
const NAKS = ['sequence error', 'invalid request', 'remote access error', 'remote operational error'];

/** Returns the RoCEv2 packets of a trace, oldest first. */
export function tracedPackets(trace: Trace | undefined): TracedPacket[] {
  return (trace?.frames() ?? []).flatMap(({ bytes, length, sent, at }) => {
    const header = headerOf(bytes, length);
    return header ? [{ ...header, sent, at }] : [];
  });
}

/**
 * Decodes the headers of a frame.
 * @param bytes the start of the frame
 * @param length bytes of the whole frame
 * @returns undefined if the frame is not RoCEv2 or `bytes` is too short
 */
export function headerOf(bytes: Uint8Array, length: number): PacketHeader | undefined {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  try {
    return read(view, length);
  } catch (error) {
    // Read beyond the end: the frame is shorter than its headers.
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}

function read(view: DataView, length: number): PacketHeader | undefined {
  const ip = ETHERNET_BYTES + (view.getUint16(ETHERNET_BYTES - 2) === ETHERTYPE.VLAN ? VLAN_TAG_BYTES : 0);
  const type = view.getUint16(ip - 2);
  const isIpv6 = type === ETHERTYPE.IPV6;
  if (!isIpv6 && type !== ETHERTYPE.IPV4) return undefined;
  const udp = ip + (isIpv6 ? 40 : (view.getUint8(ip) & 15) * 4);
  if (view.getUint16(udp + 2) !== ROCE_PORT) return undefined;
  const address = (at: number) => {
    const size = isIpv6 ? 16 : 4;
    if (at + size > view.byteLength) throw new RangeError();
    return ipText(new Uint8Array(view.buffer, view.byteOffset + at, size));
  };
  const bth = udp + 8;
  const opcode = view.getUint8(bth);
  const destQpn = view.getUint32(bth + 4) & 0xffffff;
  const psn = view.getUint32(bth + 8) & 0xffffff;
  const source = address(ip + (isIpv6 ? 8 : 12));
  const destination = address(ip + (isIpv6 ? 24 : 16));
  const { fields, bytes, srcQpn } = extensions(view, bth + BTH_BYTES, opcode);
  const pad = (view.getUint8(bth + 1) >> 4) & 3;
  const payload = Math.max(0, length - bth - BTH_BYTES - bytes - pad - ICRC_BYTES);
  const parts = [
    `${source} > ${destination}`,
    `${operation(opcode)} qp ${qpnText(destQpn)} psn ${psn}`,
    ...(view.getUint8(bth + 8) & 0x80 ? ['ACK requested'] : []),
    ...fields,
    `${payload} bytes`,
  ];
  return { source, destination, opcode, destQpn, psn, text: parts.join(', '), ...(srcQpn !== undefined && { srcQpn }) };
}

/** Returns the names of transport and operation. The lower five bits of an opcode mean the same in all transports. */
function operation(opcode: number): string {
  const [transport, name] = [opcode >>> 5, nameOf(Opcode, opcode & 0x1f)];
  if (opcode === Opcode.CNP) return 'CNP';
  return `${['RC', 'UC', 'RD', 'UD'][transport] ?? `transport ${transport}`} ${name}`;
}

/** The headers after the BTH: their fields as text, and their bytes. */
interface Extensions {
  readonly fields: readonly string[];
  readonly bytes: number;
  readonly srcQpn?: number;
}

function extensions(view: DataView, start: number, opcode: number): Extensions {
  const flags = opcodeFlags[opcode] ?? 0;
  const fields: string[] = [];
  let at = start;
  for (const { flag, bytes, text } of HEADERS) {
    if ((flags & flag) === 0) continue;
    if (text) fields.push(text(view, at));
    at += bytes;
  }
  // the DETH comes first
  const hasDeth = (flags & OpcodeFlag.DETH) !== 0;
  return { fields, bytes: at - start, ...(hasDeth && { srcQpn: view.getUint32(start + 4) & 0xffffff }) };
}

const u64 = (view: DataView, at: number) => `0x${view.getBigUint64(at).toString(16)}`;
const remote = (view: DataView, at: number) => `va ${u64(view, at)} rkey ${hex(view.getUint32(at + 8))}`;

/**
 * The headers that may follow the BTH, in their order on the wire (IBTA 9.3, A19.4). The card's opcode table says
 * which do.
 */
const HEADERS: readonly {
  readonly flag: number;
  readonly bytes: number;
  readonly text?: (view: DataView, at: number) => string;
}[] = [
  {
    flag: OpcodeFlag.DETH,
    bytes: 8,
    text: (view, at) => `from qp ${qpnText(view.getUint32(at + 4) & 0xffffff)} qkey ${hex(view.getUint32(at))}`,
  },
  { flag: OpcodeFlag.FETH, bytes: 4 },
  {
    flag: OpcodeFlag.RETH,
    bytes: 16,
    text: (view, at) => `${remote(view, at)} length ${view.getUint32(at + 12)}`,
  },
  {
    flag: OpcodeFlag.ATOMIC_ETH,
    bytes: 28,
    text: (view, at) => `${remote(view, at)} swap/add ${u64(view, at + 12)} compare ${u64(view, at + 20)}`,
  },
  {
    flag: OpcodeFlag.AETH,
    bytes: 4,
    text: (view, at) => `${syndrome(view.getUint8(at))}, msn ${view.getUint32(at) & 0xffffff}`,
  },
  { flag: OpcodeFlag.ATOMIC_ACK_ETH, bytes: 8, text: (view, at) => `original ${u64(view, at)}` },
  { flag: OpcodeFlag.IMMDT, bytes: 4, text: (view, at) => `immediate ${hex(view.getUint32(at))}` },
  { flag: OpcodeFlag.IETH, bytes: 4, text: (view, at) => `invalidates ${hex(view.getUint32(at))}` },
];

/** An AETH syndrome in words. */
export function syndrome(value: number): string {
  const code = value & 0x1f;
  if (value >>> 5 === 0) return 'ACK';
  if (value >>> 5 === 1) return `RNR NAK, timer code ${code}`;
  if (value >>> 5 === 3) return `NAK: ${NAKS[code] ?? `code ${code}`}`;
  return `reserved syndrome ${hex(value)}`;
}

/** Returns a queue pair number as every text shows it, so that it can be searched for: `0x00001a`. */
export const qpnText = (qpn: number): string => hex(qpn, 6);

/** Returns a number as `0x1a2b3c`, with leading zeros up to `digits` digits. */
export function hex(value: number, digits = 1): string {
  return `0x${value.toString(16).padStart(digits, '0')}`;
}
