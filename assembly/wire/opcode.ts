// The opcode table (IBTA table 38): the properties of each BTH opcode and the headers that follow it. Packet formats
// are data: nothing else in the card switches on opcode numbers. The rows are in the card's memory because every
// instance of the module would write static data again.
import { OPCODE_TABLE } from '../memorymap';
import { AETH_BYTES } from './aeth';
import { ATOMIC_ACK_ETH_BYTES, ATOMIC_ETH_BYTES } from './atomiceth';
import { BTH_BYTES } from './bth';
import { DETH_BYTES } from './deth';
import { FETH_BYTES } from './feth';
import { IETH_BYTES } from './ieth';
import { IMMDT_BYTES } from './immdt';
import { RETH_BYTES } from './reth';

/** RC opcodes. UC and UD have the same operations in another class. */
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
export enum OpcodeFlag {
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
  return (row(opcode) & OpcodeFlag.KNOWN) != 0;
}
/** Begins a message (also the ONLY packet of one). */
export function isFirst(opcode: u32): bool {
  return (row(opcode) & OpcodeFlag.FIRST) != 0;
}
/** Ends a message (also the ONLY packet of one). */
export function isLast(opcode: u32): bool {
  return (row(opcode) & OpcodeFlag.LAST) != 0;
}
export function isSend(opcode: u32): bool {
  return (row(opcode) & OpcodeFlag.SEND) != 0;
}
export function isWrite(opcode: u32): bool {
  return (row(opcode) & OpcodeFlag.WRITE) != 0;
}
export function isRead(opcode: u32): bool {
  return (row(opcode) & OpcodeFlag.READ) != 0;
}
export function isAtomic(opcode: u32): bool {
  return (row(opcode) & OpcodeFlag.ATOMIC) != 0;
}
export function isFlush(opcode: u32): bool {
  return (row(opcode) & OpcodeFlag.FLUSH) != 0;
}
export function isAtomicWrite(opcode: u32): bool {
  return (row(opcode) & OpcodeFlag.ATOMIC_WRITE) != 0;
}
/** A request with a response of its own, which is kept in case it is lost. */
export function isAnswered(opcode: u32): bool {
  return (row(opcode) & (OpcodeFlag.READ | OpcodeFlag.ATOMIC | OpcodeFlag.FLUSH | OpcodeFlag.ATOMIC_WRITE)) != 0;
}
export function isResponse(opcode: u32): bool {
  return (row(opcode) & OpcodeFlag.RESPONSE) != 0;
}
export function isReadResponse(opcode: u32): bool {
  return (row(opcode) & OpcodeFlag.READ_RESPONSE) != 0;
}
export function hasPayload(opcode: u32): bool {
  return (row(opcode) & OpcodeFlag.PAYLOAD) != 0;
}
export function hasImm(opcode: u32): bool {
  return (row(opcode) & OpcodeFlag.IMMDT) != 0;
}
export function hasInvalidate(opcode: u32): bool {
  return (row(opcode) & OpcodeFlag.IETH) != 0;
}
export function hasAeth(opcode: u32): bool {
  return (row(opcode) & OpcodeFlag.AETH) != 0;
}
/** An RC request that the card does not support or that is not defined: rejected, not ignored (IBTA 9.7.4.1.1). */
export function isReserved(opcode: u32): bool {
  return (row(opcode) & OpcodeFlag.RESERVED) != 0;
}
/** Returns the OpcodeFlag bits of an opcode; 0 = an opcode that the card does not know. */
export function flagsOf(opcode: u32): u32 {
  return row(opcode) & 0xffffff;
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
  if (bits & OpcodeFlag.DETH) bytes += DETH_BYTES;
  if (bits & OpcodeFlag.FETH) bytes += FETH_BYTES;
  if (bits & OpcodeFlag.RETH) bytes += RETH_BYTES;
  if (bits & OpcodeFlag.AETH) bytes += AETH_BYTES;
  if (bits & OpcodeFlag.IMMDT) bytes += IMMDT_BYTES;
  if (bits & OpcodeFlag.IETH) bytes += IETH_BYTES;
  if (bits & OpcodeFlag.ATOMIC_ETH) bytes += ATOMIC_ETH_BYTES;
  if (bits & OpcodeFlag.ATOMIC_ACK_ETH) bytes += ATOMIC_ACK_ETH_BYTES;
  store<u32>(OPCODE_TABLE + ((<usize>opcode) << 2), bits | OpcodeFlag.KNOWN | (bytes << 24));
}

export function initOpcodes(): void {
  memory.fill(OPCODE_TABLE, 0, 1024);
  const only = OpcodeFlag.FIRST | OpcodeFlag.LAST;
  const send = OpcodeFlag.SEND | OpcodeFlag.PAYLOAD;
  const write = OpcodeFlag.WRITE | OpcodeFlag.PAYLOAD;
  const readResponse = OpcodeFlag.RESPONSE | OpcodeFlag.READ_RESPONSE | OpcodeFlag.PAYLOAD;
  // SEND and RDMA WRITE: the same rows for RC and, one class higher, for UC
  for (let base: u32 = 0; base <= 0x20; base += 0x20) {
    set(base + Opcode.SEND_FIRST, send | OpcodeFlag.FIRST);
    set(base + Opcode.SEND_MIDDLE, send);
    set(base + Opcode.SEND_LAST, send | OpcodeFlag.LAST);
    set(base + Opcode.SEND_LAST_WITH_IMM, send | OpcodeFlag.LAST | OpcodeFlag.IMMDT);
    set(base + Opcode.SEND_ONLY, send | only);
    set(base + Opcode.SEND_ONLY_WITH_IMM, send | only | OpcodeFlag.IMMDT);
    set(base + Opcode.RDMA_WRITE_FIRST, write | OpcodeFlag.FIRST | OpcodeFlag.RETH);
    set(base + Opcode.RDMA_WRITE_MIDDLE, write);
    set(base + Opcode.RDMA_WRITE_LAST, write | OpcodeFlag.LAST);
    set(base + Opcode.RDMA_WRITE_LAST_WITH_IMM, write | OpcodeFlag.LAST | OpcodeFlag.IMMDT);
    set(base + Opcode.RDMA_WRITE_ONLY, write | only | OpcodeFlag.RETH);
    set(base + Opcode.RDMA_WRITE_ONLY_WITH_IMM, write | only | OpcodeFlag.RETH | OpcodeFlag.IMMDT);
  }
  set(Opcode.RDMA_READ_REQUEST, OpcodeFlag.READ | only | OpcodeFlag.RETH);
  set(Opcode.RDMA_READ_RESPONSE_FIRST, readResponse | OpcodeFlag.FIRST | OpcodeFlag.AETH);
  set(Opcode.RDMA_READ_RESPONSE_MIDDLE, readResponse);
  set(Opcode.RDMA_READ_RESPONSE_LAST, readResponse | OpcodeFlag.LAST | OpcodeFlag.AETH);
  set(Opcode.RDMA_READ_RESPONSE_ONLY, readResponse | only | OpcodeFlag.AETH);
  set(Opcode.ACKNOWLEDGE, OpcodeFlag.RESPONSE | only | OpcodeFlag.AETH);
  set(Opcode.ATOMIC_ACKNOWLEDGE, OpcodeFlag.RESPONSE | only | OpcodeFlag.AETH | OpcodeFlag.ATOMIC_ACK_ETH);
  set(Opcode.COMPARE_SWAP, OpcodeFlag.ATOMIC | only | OpcodeFlag.ATOMIC_ETH);
  set(Opcode.FETCH_ADD, OpcodeFlag.ATOMIC | only | OpcodeFlag.ATOMIC_ETH);
  set(Opcode.SEND_LAST_WITH_INVALIDATE, send | OpcodeFlag.LAST | OpcodeFlag.IETH);
  set(Opcode.SEND_ONLY_WITH_INVALIDATE, send | only | OpcodeFlag.IETH);
  set(Opcode.FLUSH, OpcodeFlag.FLUSH | only | OpcodeFlag.FETH | OpcodeFlag.RETH);
  set(Opcode.ATOMIC_WRITE, OpcodeFlag.ATOMIC_WRITE | only | OpcodeFlag.RETH | OpcodeFlag.PAYLOAD);
  // the headers of a reserved opcode are unknown: everything behind the BTH counts as payload
  for (let opcode: u32 = Opcode.FETCH_ADD + 1; opcode < 0x20; opcode++)
    if (!isKnown(opcode)) set(opcode, OpcodeFlag.RESERVED | only | OpcodeFlag.PAYLOAD);
  set(Opcode.UD_SEND_ONLY, send | only | OpcodeFlag.DETH);
  set(Opcode.UD_SEND_ONLY_WITH_IMM, send | only | OpcodeFlag.DETH | OpcodeFlag.IMMDT);
  // a CNP carries 16 reserved bytes, which count as its payload
  set(Opcode.CNP, only | OpcodeFlag.PAYLOAD);
}
