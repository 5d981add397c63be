// The opcode table (IBTA table 38): what each BTH opcode is and which headers follow. Packet shape is data: nothing else
// in the card switches on opcode numbers. The rows live in the card's memory because static data would be written again
// by every instance that looks at it.
import { OPCODE_TABLE } from '../limits';
import { AETH_BYTES } from './aeth';
import { ATOMIC_ACK_ETH_BYTES, ATOMIC_ETH_BYTES } from './atomiceth';
import { BTH_BYTES } from './bth';
import { DETH_BYTES } from './deth';
import { FETH_BYTES } from './feth';
import { IETH_BYTES } from './ieth';
import { IMMDT_BYTES } from './immdt';
import { RETH_BYTES } from './reth';

/** RC opcodes; those of UC and UD are the same operation under another class. */
export enum Opcode {
  SEND_FIRST = 0x00,
  SEND_MIDDLE = 0x01,
  SEND_LAST = 0x02,
  SEND_LAST_WITH_IMM = 0x03,
  SEND_ONLY = 0x04,
  SEND_ONLY_WITH_IMM = 0x05,
  RDMA_WRITE_FIRST = 0x06,
  RDMA_WRITE_MIDDLE = 0x07,
  RDMA_WRITE_LAST = 0x08,
  RDMA_WRITE_LAST_WITH_IMM = 0x09,
  RDMA_WRITE_ONLY = 0x0a,
  RDMA_WRITE_ONLY_WITH_IMM = 0x0b,
  RDMA_READ_REQUEST = 0x0c,
  RDMA_READ_RESPONSE_FIRST = 0x0d,
  RDMA_READ_RESPONSE_MIDDLE = 0x0e,
  RDMA_READ_RESPONSE_LAST = 0x0f,
  RDMA_READ_RESPONSE_ONLY = 0x10,
  ACKNOWLEDGE = 0x11,
  ATOMIC_ACKNOWLEDGE = 0x12,
  COMPARE_SWAP = 0x13,
  FETCH_ADD = 0x14,
  SEND_LAST_WITH_INVALIDATE = 0x16,
  SEND_ONLY_WITH_INVALIDATE = 0x17,
  FLUSH = 0x1c,
  ATOMIC_WRITE = 0x1d,
  UD_SEND_ONLY = 0x64,
  UD_SEND_ONLY_WITH_IMM = 0x65,
  CNP = 0x81,
}

/** Transport class: the upper three bits of an opcode. */
export enum OpcodeClass {
  RC = 0,
  UC = 1,
  UD = 3,
  CNP = 4,
}

/** Bits of a row. Its top byte is the length of all headers from the BTH on. */
enum Row {
  KNOWN = 1,
  FIRST = 2,
  LAST = 4,
  SEND = 8,
  WRITE = 16,
  READ = 32,
  ATOMIC = 64,
  RESPONSE = 128,
  READ_RESPONSE = 256,
  PAYLOAD = 512,
  DETH = 1024,
  RETH = 2048,
  AETH = 4096,
  IMMDT = 8192,
  IETH = 16384,
  ATOMIC_ETH = 32768,
  ATOMIC_ACK_ETH = 65536,
  RESERVED = 131072,
  FLUSH = 262144,
  ATOMIC_WRITE = 524288,
  FETH = 1048576,
}

function row(opcode: u32): u32 {
  return load<u32>(OPCODE_TABLE + ((<usize>opcode) << 2));
}

export function isKnown(opcode: u32): bool {
  return (row(opcode) & Row.KNOWN) != 0;
}
/** Begins a message (also the ONLY packet of one). */
export function isFirst(opcode: u32): bool {
  return (row(opcode) & Row.FIRST) != 0;
}
/** Ends a message (also the ONLY packet of one). */
export function isLast(opcode: u32): bool {
  return (row(opcode) & Row.LAST) != 0;
}
export function isSend(opcode: u32): bool {
  return (row(opcode) & Row.SEND) != 0;
}
export function isWrite(opcode: u32): bool {
  return (row(opcode) & Row.WRITE) != 0;
}
export function isRead(opcode: u32): bool {
  return (row(opcode) & Row.READ) != 0;
}
export function isAtomic(opcode: u32): bool {
  return (row(opcode) & Row.ATOMIC) != 0;
}
export function isFlush(opcode: u32): bool {
  return (row(opcode) & Row.FLUSH) != 0;
}
export function isAtomicWrite(opcode: u32): bool {
  return (row(opcode) & Row.ATOMIC_WRITE) != 0;
}
/** A request that has an answer of its own, which is kept for the case that it is lost. */
export function isAnswered(opcode: u32): bool {
  return (row(opcode) & (Row.READ | Row.ATOMIC | Row.FLUSH | Row.ATOMIC_WRITE)) != 0;
}
export function isResponse(opcode: u32): bool {
  return (row(opcode) & Row.RESPONSE) != 0;
}
export function isReadResponse(opcode: u32): bool {
  return (row(opcode) & Row.READ_RESPONSE) != 0;
}
export function hasPayload(opcode: u32): bool {
  return (row(opcode) & Row.PAYLOAD) != 0;
}
export function hasImm(opcode: u32): bool {
  return (row(opcode) & Row.IMMDT) != 0;
}
export function hasInvalidate(opcode: u32): bool {
  return (row(opcode) & Row.IETH) != 0;
}
export function hasAeth(opcode: u32): bool {
  return (row(opcode) & Row.AETH) != 0;
}
/** An RC request that this card has not, or that nobody has: refused, not ignored (IBTA 9.7.4.1.1). */
export function isReserved(opcode: u32): bool {
  return (row(opcode) & Row.RESERVED) != 0;
}
/** Bytes from the BTH to the payload. */
export function headerBytes(opcode: u32): u32 {
  return row(opcode) >> 24;
}
export function classOf(opcode: u32): u32 {
  return opcode >> 5;
}

function set(opcode: u32, bits: u32): void {
  let bytes = BTH_BYTES;
  if (bits & Row.DETH) bytes += DETH_BYTES;
  if (bits & Row.FETH) bytes += FETH_BYTES;
  if (bits & Row.RETH) bytes += RETH_BYTES;
  if (bits & Row.AETH) bytes += AETH_BYTES;
  if (bits & Row.IMMDT) bytes += IMMDT_BYTES;
  if (bits & Row.IETH) bytes += IETH_BYTES;
  if (bits & Row.ATOMIC_ETH) bytes += ATOMIC_ETH_BYTES;
  if (bits & Row.ATOMIC_ACK_ETH) bytes += ATOMIC_ACK_ETH_BYTES;
  store<u32>(OPCODE_TABLE + ((<usize>opcode) << 2), bits | Row.KNOWN | (bytes << 24));
}

export function initOpcodes(): void {
  memory.fill(OPCODE_TABLE, 0, 1024);
  const only = Row.FIRST | Row.LAST;
  const send = Row.SEND | Row.PAYLOAD;
  const write = Row.WRITE | Row.PAYLOAD;
  const readResponse = Row.RESPONSE | Row.READ_RESPONSE | Row.PAYLOAD;
  // SEND and RDMA WRITE: the same rows for RC and, one class higher, for UC
  for (let base: u32 = 0; base <= 0x20; base += 0x20) {
    set(base + Opcode.SEND_FIRST, send | Row.FIRST);
    set(base + Opcode.SEND_MIDDLE, send);
    set(base + Opcode.SEND_LAST, send | Row.LAST);
    set(base + Opcode.SEND_LAST_WITH_IMM, send | Row.LAST | Row.IMMDT);
    set(base + Opcode.SEND_ONLY, send | only);
    set(base + Opcode.SEND_ONLY_WITH_IMM, send | only | Row.IMMDT);
    set(base + Opcode.RDMA_WRITE_FIRST, write | Row.FIRST | Row.RETH);
    set(base + Opcode.RDMA_WRITE_MIDDLE, write);
    set(base + Opcode.RDMA_WRITE_LAST, write | Row.LAST);
    set(base + Opcode.RDMA_WRITE_LAST_WITH_IMM, write | Row.LAST | Row.IMMDT);
    set(base + Opcode.RDMA_WRITE_ONLY, write | only | Row.RETH);
    set(base + Opcode.RDMA_WRITE_ONLY_WITH_IMM, write | only | Row.RETH | Row.IMMDT);
  }
  set(Opcode.RDMA_READ_REQUEST, Row.READ | only | Row.RETH);
  set(Opcode.RDMA_READ_RESPONSE_FIRST, readResponse | Row.FIRST | Row.AETH);
  set(Opcode.RDMA_READ_RESPONSE_MIDDLE, readResponse);
  set(Opcode.RDMA_READ_RESPONSE_LAST, readResponse | Row.LAST | Row.AETH);
  set(Opcode.RDMA_READ_RESPONSE_ONLY, readResponse | only | Row.AETH);
  set(Opcode.ACKNOWLEDGE, Row.RESPONSE | only | Row.AETH);
  set(Opcode.ATOMIC_ACKNOWLEDGE, Row.RESPONSE | only | Row.AETH | Row.ATOMIC_ACK_ETH);
  set(Opcode.COMPARE_SWAP, Row.ATOMIC | only | Row.ATOMIC_ETH);
  set(Opcode.FETCH_ADD, Row.ATOMIC | only | Row.ATOMIC_ETH);
  set(Opcode.SEND_LAST_WITH_INVALIDATE, send | Row.LAST | Row.IETH);
  set(Opcode.SEND_ONLY_WITH_INVALIDATE, send | only | Row.IETH);
  set(Opcode.FLUSH, Row.FLUSH | only | Row.FETH | Row.RETH);
  set(Opcode.ATOMIC_WRITE, Row.ATOMIC_WRITE | only | Row.RETH | Row.PAYLOAD);
  // what follows the BTH of a reserved one is not known: all of it counts as payload
  for (let opcode: u32 = Opcode.FETCH_ADD + 1; opcode < 0x20; opcode++)
    if (!isKnown(opcode)) set(opcode, Row.RESERVED | only | Row.PAYLOAD);
  set(Opcode.UD_SEND_ONLY, send | only | Row.DETH);
  set(Opcode.UD_SEND_ONLY_WITH_IMM, send | only | Row.DETH | Row.IMMDT);
  // a CNP carries 16 reserved bytes, which we treat as its payload
  set(Opcode.CNP, only | Row.PAYLOAD);
}
