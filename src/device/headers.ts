/** The headers of a RoCEv2 frame, read for people. The card itself judges frames; this only tells what stands in them. */
import { ipText } from '../link/address.js';
import { nameOf, Opcode } from './codes.js';
import type { Trace } from './trace.js';

export interface PacketHeader {
  /** IP addresses. */
  readonly source: string;
  readonly destination: string;
  readonly opcode: number;
  /** Queue pair number that the packet is for. */
  readonly destQpn: number;
  /** Of a datagram: the sender's queue pair. */
  readonly srcQpn?: number;
  readonly psn: number;
  /** All in one line: operation, queue pair, PSN, what else its headers say, bytes of payload. */
  readonly text: string;
}

/** A packet that came or went. */
export interface TracedPacket extends PacketHeader {
  /** It left this device. */
  readonly sent: boolean;
  /** Nanoseconds of the device's clock. */
  readonly at: number;
}

const ETHERTYPE = { VLAN: 0x8100, IPV4: 0x0800, IPV6: 0x86dd } as const;
const ROCE_PORT = 4791;
const BTH_BYTES = 12;
const ICRC_BYTES = 4;
const UD = 3;
const NAKS = ['sequence error', 'invalid request', 'remote access error', 'remote operational error'];

/** What is kept, oldest first; frames that are no RoCE are left out. */
export function tracedPackets(trace: Trace | undefined): TracedPacket[] {
  return (trace?.frames() ?? []).flatMap(({ bytes, length, sent, at }) => {
    const header = headerOf(bytes, length);
    return header ? [{ ...header, sent, at }] : [];
  });
}

/**
 * @param bytes the start of a frame
 * @param length bytes of the whole frame
 * @returns undefined when it is no RoCEv2, or too short
 */
export function headerOf(bytes: Uint8Array, length: number): PacketHeader | undefined {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  try {
    return read(view, length);
  } catch (error) {
    // Reading behind the end: the frame is shorter than its headers say.
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}

function read(view: DataView, length: number): PacketHeader | undefined {
  const ip = view.getUint16(12) === ETHERTYPE.VLAN ? 18 : 14;
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
  const { words, bytes, srcQpn } = extensions(view, bth + BTH_BYTES, opcode);
  const pad = (view.getUint8(bth + 1) >> 4) & 3;
  const payload = Math.max(0, length - bth - BTH_BYTES - bytes - pad - ICRC_BYTES);
  const parts = [
    `${source} > ${destination}`,
    `${operation(opcode)} qp ${hex(destQpn)} psn ${psn}`,
    ...(view.getUint8(bth + 8) & 0x80 ? ['asks for an ACK'] : []),
    ...words,
    `${payload} bytes`,
  ];
  return { source, destination, opcode, destQpn, psn, text: parts.join(', '), ...(srcQpn !== undefined && { srcQpn }) };
}

/** Name of the transport and of the operation. The lower five bits mean the same in all transports. */
function operation(opcode: number): string {
  const [transport, name] = [opcode >>> 5, nameOf(Opcode, opcode & 0x1f)];
  if (opcode === Opcode.CNP) return 'CNP';
  return `${['RC', 'UC', 'RD', 'UD'][transport] ?? `transport ${transport}`} ${name}`;
}

interface Extensions {
  readonly words: readonly string[];
  readonly bytes: number;
  readonly srcQpn?: number;
}

function extensions(view: DataView, start: number, opcode: number): Extensions {
  const words: string[] = [];
  let at = start;
  let srcQpn: number | undefined;
  const u64 = (from: number) => `0x${view.getBigUint64(from).toString(16)}`;
  if (opcode >>> 5 === UD) {
    srcQpn = view.getUint32(at + 4) & 0xffffff;
    words.push(`from qp ${hex(srcQpn)} qkey ${hex(view.getUint32(at))}`);
    at += 8;
  }
  const rest = HEADERS[opcode & 0x1f] ?? '';
  for (const header of rest) {
    if (header === 'F') at += 4;
    if (header === 'R') {
      words.push(`va ${u64(at)} rkey ${hex(view.getUint32(at + 8))} length ${view.getUint32(at + 12)}`);
      at += 16;
    }
    if (header === 'A') {
      words.push(`va ${u64(at)} rkey ${hex(view.getUint32(at + 8))} swap/add ${u64(at + 12)} compare ${u64(at + 20)}`);
      at += 28;
    }
    if (header === 'S') {
      words.push(`${syndrome(view.getUint8(at))}, msn ${view.getUint32(at) & 0xffffff}`);
      at += 4;
    }
    if (header === 'O') {
      words.push(`original ${u64(at)}`);
      at += 8;
    }
    if (header === 'I') {
      words.push(`immediate ${hex(view.getUint32(at))}`);
      at += 4;
    }
    if (header === 'K') {
      words.push(`invalidates ${hex(view.getUint32(at))}`);
      at += 4;
    }
  }
  return { words, bytes: at - start, ...(srcQpn !== undefined && { srcQpn }) };
}

/** Headers behind the BTH by the lower five bits of the opcode: FETH, RETH, AtomicETH, AETH (S), AtomicAckETH (O), ImmDt,
 * IETH (K). */
const HEADERS: Readonly<Record<number, string>> = {
  3: 'I',
  5: 'I',
  6: 'R',
  9: 'I',
  10: 'R',
  11: 'RI',
  12: 'R',
  13: 'S',
  15: 'S',
  16: 'S',
  17: 'S',
  18: 'SO',
  19: 'A',
  20: 'A',
  22: 'K',
  23: 'K',
  28: 'FR',
  29: 'R',
};

function syndrome(value: number): string {
  const code = value & 0x1f;
  if (value >>> 5 === 0) return 'ACK';
  if (value >>> 5 === 1) return `RNR NAK, timer code ${code}`;
  if (value >>> 5 === 3) return `NAK: ${NAKS[code] ?? `code ${code}`}`;
  return `reserved syndrome ${hex(value)}`;
}

const hex = (value: number) => `0x${value.toString(16)}`;
