// Work queue entries: what a work request becomes in the card's memory.
import { Access, SendFlag } from '../limits';
import { Mr } from './mr';
import { Pd } from './pd';
import { Table } from './table';

/** A piece of local memory: | ptr u32 | length u32 | lkey u32 | */
@unmanaged
@final
export class Sge {
  ptr: u32;
  length: u32;
  lkey: u32;
}
export const SGE_BYTES: u32 = 12;

export function writePiece(pieces: usize, n: u32, ptr: usize, length: u32, lkey: u32): void {
  let sge = changetype<Sge>(pieces + <usize>n * SGE_BYTES);
  sge.ptr = <u32>ptr;
  sge.length = length;
  sge.lkey = lkey;
}

@unmanaged
@final
export class SendWqe {
  // what most messages use, on one cache line
  wrId: f64;
  /** Address at the peer. */
  va: u64;
  opcode: u32;
  flags: u32;
  /** Bytes of the message. */
  length: u32;
  rkey: u32;
  /** Immediate as it lies on the wire, or the key to invalidate. */
  imm: u32;
  sgeCount: u32;
  /** PSNs that the message takes, once it is started. */
  firstPsn: u32;
  lastPsn: u32;
  isStarted: bool;
  /** A READ that is asked for in parts, because its answer would not fit the window. */
  isSplit: bool;
  /** A part has been asked for, up to askedPsn. */
  isAsked: bool;
  /** It was started although the peer has told of no receive for it. */
  isLimited: bool;
  askedPsn: u32;
  /** Of a datagram: its address handle, the peer's queue pair and Q_Key. */
  ah: usize;
  destQpn: u32;
  // and on the next, in front of the pieces
  qkey: u32;
  /** Of a READ that is split: where the part that was asked for last begins. */
  partPsn: u32;
  compareAdd: u64;
  swap: u64;
  /** Of a registration or binding: the memory in the card, and the rights. */
  memory: usize;
  access: u32;

  get ptr(): usize {
    return changetype<usize>(this);
  }
  get pieces(): usize {
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
/** Header of a send WQE; its pieces or its inline data follow. */
export const SEND_WQE_BYTES: usize = 96;

/** Bytes of a send WQE with so many pieces, or so much inline data: whole cache lines. */
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
  get pieces(): usize {
    return changetype<usize>(this) + RECV_WQE_BYTES;
  }
}
export const RECV_WQE_BYTES: usize = 16;

/** Whether all pieces lie in regions of their keys. */
export function arePiecesLocal(keys: Table, pd: Pd, pieces: usize, count: u32, right: u32): bool {
  for (; count != 0; count--, pieces += SGE_BYTES) {
    let sge = changetype<Sge>(pieces);
    if (sge.length != 0 && !Mr.isLocal(keys, sge.lkey, pd, sge.ptr, sge.length, right)) return false;
  }
  return true;
}

/** Copies `bytes` of the list from `offset` on to `target`; false when a piece is not ours to read, unless that was looked at
 * just now. */
export function gather(
  keys: Table,
  pd: Pd,
  pieces: usize,
  count: u32,
  offset: u32,
  target: usize,
  bytes: u32,
  isLocal: bool,
): bool {
  for (; bytes != 0; count--, pieces += SGE_BYTES) {
    if (count == 0) return false;
    let sge = changetype<Sge>(pieces);
    if (offset >= sge.length) {
      offset -= sge.length;
      continue;
    }
    let part = min(sge.length - offset, bytes);
    let from = <usize>sge.ptr + offset;
    if (!isLocal && !Mr.isLocal(keys, sge.lkey, pd, from, part, 0)) return false;
    memory.copy(target, from, part);
    target += part;
    bytes -= part;
    offset = 0;
  }
  return true;
}

/** Copies `bytes` from `source` into the list from `offset` on; false when a piece is not ours to write, or is missing. */
export function scatter(keys: Table, pd: Pd, pieces: usize, count: u32, offset: u32, source: usize, bytes: u32): bool {
  for (; bytes != 0; count--, pieces += SGE_BYTES) {
    if (count == 0) return false;
    let sge = changetype<Sge>(pieces);
    if (offset >= sge.length) {
      offset -= sge.length;
      continue;
    }
    let part = min(sge.length - offset, bytes);
    let to = <usize>sge.ptr + offset;
    if (!Mr.isLocal(keys, sge.lkey, pd, to, part, Access.LOCAL_WRITE)) return false;
    memory.copy(to, source, part);
    source += part;
    bytes -= part;
    offset = 0;
  }
  return true;
}
