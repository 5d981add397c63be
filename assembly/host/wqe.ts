// Work queue entries: the form of a work request in the card's memory.
import { Access, SendFlag } from '../codes';
import { Mr } from './mr';
import { Pd } from './pd';
import { fetchAllButSpan, fetchFrom, placeAt } from './place';
import { Table } from './table';

/** A scatter/gather element, as struct ibv_sge: | addr u64 | length u32 | lkey u32 | */
@unmanaged
@final
export class Sge {
  /** A place (host/place). */
  addr: u64;
  length: u32;
  lkey: u32;
}
export const SGE_BYTES: u32 = 16;

export function writeSge(sges: usize, n: u32, addr: u64, length: u32, lkey: u32): void {
  let sge = changetype<Sge>(sges + <usize>n * SGE_BYTES);
  sge.addr = addr;
  sge.length = length;
  sge.lkey = lkey;
}

@unmanaged
@final
export class SendWqe {
  // fields that most messages use, on one cache line
  wrId: f64;
  /** Remote address. */
  va: u64;
  opcode: u32;
  flags: u32;
  /** Length of the message in bytes. */
  length: u32;
  rkey: u32;
  /** Immediate data in wire order, or the key to invalidate. */
  imm: u32;
  sgeCount: u32;
  /** First and last PSN of the message, once it is started. */
  firstPsn: u32;
  lastPsn: u32;
  isStarted: bool;
  /** The READ is requested in parts, because its response would not fit the in-flight window. */
  isSplit: bool;
  /** A part of the READ was requested, up to requestedPsn. */
  isReadRequested: bool;
  /** The message was started although the peer has advertised no receive for it. */
  isUncredited: bool;
  requestedPsn: u32;
  /** Of a datagram: address handle, and the peer's queue pair and Q_Key. */
  ah: usize;
  destQpn: u32;
  // fields on the next cache line, in front of the SGEs
  qkey: u32;
  /** Of a READ in parts: first PSN of the part that was requested last. */
  partPsn: u32;
  compareAdd: u64;
  swap: u64;
  /** Of REG_MR and BIND_MW: the access rights. */
  access: u32;

  /** Of a datagram of queue pair 1: index of the P_Key that it carries. A datagram has no remote key. */
  get pkeyIndex(): u32 {
    return this.rkey;
  }
  set pkeyIndex(index: u32) {
    this.rkey = index;
  }
  /** Of REG_MR: the place of the memory. It has no operands of an atomic operation. */
  get memory(): u64 {
    return this.compareAdd;
  }
  set memory(place: u64) {
    this.compareAdd = place;
  }
  get ptr(): usize {
    return changetype<usize>(this);
  }
  get sges(): usize {
    return changetype<usize>(this) + SEND_WQE_BYTES;
  }
  get isInline(): bool {
    return (this.flags & SendFlag.INLINE) != 0;
  }
  get isFenced(): bool {
    return (this.flags & SendFlag.FENCE) != 0;
  }
  get isSolicited(): bool {
    return (this.flags & SendFlag.SOLICITED) != 0;
  }
}
/** Header of a send WQE; its SGEs or its inline data follow. */
export const SEND_WQE_BYTES: usize = 96;

/** Returns the bytes of a send WQE with this many SGEs, or this much inline data, in whole cache lines. */
export function sendStrideFor(sge: u32, inline: u32): u32 {
  return (<u32>SEND_WQE_BYTES + max(sge * SGE_BYTES, inline) + 63) & ~63;
}

@unmanaged
@final
export class RecvWqe {
  wrId: f64;
  length: u32;
  sgeCount: u32;

  get ptr(): usize {
    return changetype<usize>(this);
  }
  get sges(): usize {
    return changetype<usize>(this) + RECV_WQE_BYTES;
  }
}
export const RECV_WQE_BYTES: usize = 16;

/** Returns whether all SGEs lie in the regions of their keys and those grant the right. */
export function areSgesValid(keys: Table, pd: Pd, sges: usize, count: u32, right: u32): bool {
  for (; count != 0; count--, sges += SGE_BYTES) {
    let sge = changetype<Sge>(sges);
    if (sge.length != 0 && !Mr.isLocalRangeValid(keys, sge.lkey, pd, sge.addr, sge.length, right)) return false;
  }
  return true;
}

/** The result of `gather`. */
export enum Gathered {
  /** An SGE may not be read. */
  REFUSED,
  ALL,
  ALL_BUT_SHARE,
}

/**
 * Copies `bytes` of the SGE list from `offset` on to `target`.
 * @param isChecked areSgesValid has just accepted the list
 * @param span number of the last bytes that the link can fetch. They are left where they are if one SGE has them all
 */
export function gather(
  keys: Table,
  pd: Pd,
  sges: usize,
  count: u32,
  offset: u32,
  target: usize,
  bytes: u32,
  isChecked: bool,
  span: u32,
): Gathered {
  for (; bytes != 0; count--, sges += SGE_BYTES) {
    if (count == 0) return Gathered.REFUSED;
    let sge = changetype<Sge>(sges);
    if (offset >= sge.length) {
      offset -= sge.length;
      continue;
    }
    let part = min(sge.length - offset, bytes);
    let from = sge.addr + offset;
    if (!isChecked && !Mr.isLocalRangeValid(keys, sge.lkey, pd, from, part, 0)) return Gathered.REFUSED;
    if (span != 0 && part == bytes && part >= span) {
      return fetchAllButSpan(from, target, part, span) ? Gathered.ALL_BUT_SHARE : Gathered.REFUSED;
    }
    if (!fetchFrom(from, target, part)) return Gathered.REFUSED;
    target += part;
    bytes -= part;
    offset = 0;
  }
  return Gathered.ALL;
}

/**
 * Copies `bytes` from `source` into the SGE list from `offset` on; false when an SGE is missing or may not be written.
 */
export function scatter(keys: Table, pd: Pd, sges: usize, count: u32, offset: u32, source: usize, bytes: u32): bool {
  for (; bytes != 0; count--, sges += SGE_BYTES) {
    if (count == 0) return false;
    let sge = changetype<Sge>(sges);
    if (offset >= sge.length) {
      offset -= sge.length;
      continue;
    }
    let part = min(sge.length - offset, bytes);
    let to = sge.addr + offset;
    if (!Mr.isLocalRangeValid(keys, sge.lkey, pd, to, part, Access.LOCAL_WRITE)) return false;
    if (!placeAt(to, source, part)) return false;
    source += part;
    bytes -= part;
    offset = 0;
  }
  return true;
}
