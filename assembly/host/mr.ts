// Memory regions, memory windows and their keys. A key is 24 bits of random index and 8 bits of tag; the local and the remote
// key of a region share the index and differ in the tag, so neither opens what the other is for.
import { Access, Errno, MwType } from '../limits';
import { Card } from './card';
import { Pd } from './pd';
import { allocate, release } from './pool';
import { random32 } from './random';
import { Table } from './table';

/** What a key may belong to. */
export enum MrKind {
  /** Memory that was registered once and for all. */
  MEMORY,
  /** Memory that a work request may register and an invalidation take away (IBTA 10.6.3.7). */
  FAST,
  /** A window on a region, bound by its owner (type 1) or to one queue pair (type 2B). */
  WINDOW_1,
  WINDOW_2,
}

/** Rights that a peer is given over a window. */
const WINDOW_RIGHTS: u32 = Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC | Access.FLUSH_GLOBAL;

/** A region whose keys may be closed can be registered again by a work request. */
function kindFor(access: u32): MrKind {
  return access & Access.INVALIDATE ? MrKind.FAST : MrKind.MEMORY;
}

@unmanaged
@final
export class Mr {
  pd: Pd;
  kind: MrKind;
  /** Start of the memory in the card. */
  ptr: usize;
  /** Address by which the wire knows that start. */
  iova: u64;
  length: u32;
  access: u32;
  lkey: u32;
  rkey: u32;
  /** Its keys open something: a fast region is registered, a window bound. */
  isValid: bool;
  /** Windows that are bound to this region. */
  windows: u32;
  /** Of a window: its region, and of type 2B the number of the only queue pair that may use it. */
  region: usize;
  boundQpn: u32;

  get address(): usize {
    return changetype<usize>(this);
  }
  get isWindow(): bool {
    return this.kind >= MrKind.WINDOW_1;
  }

  private static withKeys(keys: Table, pd: Pd, kind: MrKind): Mr {
    // no table: it is full
    let mr = changetype<Mr>(changetype<usize>(keys) == 0 ? <usize>0 : allocate(offsetof<Mr>()));
    if (mr.address == 0) return mr;
    mr.kind = kind;
    mr.join(keys, pd);
    return mr;
  }

  /** Becomes part of a domain, under new keys. */
  private join(keys: Table, pd: Pd): void {
    let key = random32();
    while (key >>> 8 == 0 || keys.find(key >>> 8) != 0) key = random32();
    this.rkey = key;
    let tag = random32() & 0xff;
    while (tag == (key & 0xff)) tag = random32() & 0xff;
    this.lkey = (key & 0xffffff00) | tag;
    keys.add(key >>> 8, this.address);
    this.pd = pd;
    pd.users++;
  }

  private leave(keys: Table): void {
    keys.remove(this.rkey >>> 8);
    this.pd.users--;
  }

  static create(keys: Table, pd: Pd, ptr: usize, length: u32, access: u32, iova: u64): Mr {
    let mr = Mr.withKeys(keys, pd, kindFor(access));
    if (mr.address != 0) mr.open(ptr, length, access, iova);
    return mr;
  }

  /** A region without memory, for a fast registration. */
  static createFast(keys: Table, pd: Pd): Mr {
    return Mr.withKeys(keys, pd, MrKind.FAST);
  }

  /** A window that is not bound. */
  static createWindow(keys: Table, pd: Pd, type: MwType): Mr {
    return Mr.withKeys(keys, pd, type == MwType.TYPE_1 ? MrKind.WINDOW_1 : MrKind.WINDOW_2);
  }

  private open(ptr: usize, length: u32, access: u32, iova: u64): void {
    this.ptr = ptr;
    this.length = length;
    this.access = access;
    this.iova = iova;
    this.isValid = true;
  }

  /** EBUSY while windows are bound to it. */
  destroy(keys: Table): Errno {
    if (this.windows != 0) return Errno.EBUSY;
    if (this.isWindow) this.unbind();
    this.leave(keys);
    release(this.address);
    return Errno.OK;
  }

  /** Registers other memory, with other rights or in another domain, under new keys; the old ones are dead. All stays as it
   * is when this is refused: EBUSY while windows are bound, EINVAL for a window and for what cannot be registered. */
  registerAgain(keys: Table, pd: Pd, ptr: usize, length: u32, access: u32, iova: u64): Errno {
    if (this.windows != 0) return Errno.EBUSY;
    if (this.isWindow || !Mr.isAllowed(ptr, length, access, iova)) return Errno.EINVAL;
    this.leave(keys);
    this.kind = kindFor(access);
    this.join(keys, pd);
    this.open(ptr, length, access, iova);
    return Errno.OK;
  }

  /** What can be registered: bytes of the card's memory, the address of the last of which exists, with rights that go together. */
  static isAllowed(ptr: usize, length: u32, access: u32, iova: u64): bool {
    if (length == 0 || <u64>ptr + length > Card.get().memoryBytes) return false;
    return iova + (<u64>length - 1) >= iova && Mr.isAccessAllowed(access);
  }

  /** Rights that can be given: remote write and atomic need local write (IBTA 10.6.3.2). */
  private static isAccessAllowed(access: u32): bool {
    let known = <u32>Access.LOCAL_WRITE | WINDOW_RIGHTS | <u32>Access.MW_BIND | <u32>Access.INVALIDATE;
    if (access & ~known) return false;
    return !(access & <u32>(Access.REMOTE_WRITE | Access.REMOTE_ATOMIC)) || (access & Access.LOCAL_WRITE) != 0;
  }

  private static find(keys: Table, rkey: u32, pd: Pd, qpn: u32): Mr {
    let mr = changetype<Mr>(keys.find(rkey >>> 8));
    if (mr.address == 0 || mr.rkey != rkey || !mr.isValid || mr.pd != pd) return changetype<Mr>(0);
    return mr.kind == MrKind.WINDOW_2 && mr.boundQpn != qpn ? changetype<Mr>(0) : mr;
  }

  /** Where a peer's access goes: key, tag, validity, domain, right and range are checked in this order; 0 = refused.
   * @param qpn the queue pair over which the access comes: a window may be open to one alone */
  static remote(keys: Table, rkey: u32, pd: Pd, qpn: u32, va: u64, length: u32, right: u32): usize {
    let mr = Mr.find(keys, rkey, pd, qpn);
    if (mr.address == 0 || (mr.access & right) != right) return 0;
    // the subtraction may wrap; what it then gives is too far away to pass the range check
    let offset = va - mr.iova;
    if (offset > <u64>mr.length || <u64>length > <u64>mr.length - offset) return 0;
    return mr.ptr + <usize>offset;
  }

  /** Whether a key opens anything to this right, whatever the range. */
  static isOpen(keys: Table, rkey: u32, pd: Pd, qpn: u32, right: u32): bool {
    let mr = Mr.find(keys, rkey, pd, qpn);
    return mr.address != 0 && (mr.access & right) == right;
  }

  /** Whether a piece of a work request lies in a region of this key with this right. */
  static isLocal(keys: Table, lkey: u32, pd: Pd, ptr: usize, length: u32, right: u32): bool {
    let mr = changetype<Mr>(keys.find(lkey >>> 8));
    if (mr.address == 0 || mr.lkey != lkey || !mr.isValid || mr.pd != pd || mr.isWindow) return false;
    if ((mr.access & right) != right || ptr < mr.ptr) return false;
    let offset = <u32>(ptr - mr.ptr);
    return offset <= mr.length && length <= mr.length - offset;
  }

  /** Closes a fast region or a window of type 2B to its remote key; ENOENT when the key is unknown, EINVAL when it cannot be
   * closed, or is bound to another queue pair (IBTA 10.6.5). */
  static invalidate(keys: Table, rkey: u32, pd: Pd, qpn: u32): Errno {
    let mr = Mr.find(keys, rkey, pd, qpn);
    if (mr.address == 0) return Errno.ENOENT;
    if (mr.windows != 0) return Errno.EINVAL;
    if (mr.kind == MrKind.WINDOW_2) mr.unbind();
    else if (mr.kind == MrKind.FAST) mr.isValid = false;
    else return Errno.EINVAL;
    return Errno.OK;
  }

  /** Closes the windows that only this queue pair may use: it goes away, and its number may come back. */
  static closeWindowsOf(keys: Table, qpn: u32): void {
    let card = Card.get();
    for (let slot: u32 = 0; slot != keys.rows && card.boundWindows != 0; slot++) {
      let mr = changetype<Mr>(keys.at(slot));
      if (mr.address != 0 && mr.kind == MrKind.WINDOW_2 && mr.boundQpn == qpn) mr.unbind();
    }
  }

  /** The local key of a fast region that was registered under this remote key. */
  static localKeyFor(rkey: u32): u32 {
    return rkey ^ 1;
  }

  /** Registers memory with a fast region that has none; `rkey` may change the tag of its keys. */
  register(ptr: usize, length: u32, access: u32, iova: u64, rkey: u32): Errno {
    if (this.kind != MrKind.FAST || this.isValid || !this.isOwnKey(rkey)) return Errno.EINVAL;
    if (!Mr.isAllowed(ptr, length, access, iova)) return Errno.EINVAL;
    this.rkey = rkey;
    // the local key follows, so that the two never become one
    this.lkey = Mr.localKeyFor(rkey);
    this.open(ptr, length, access, iova);
    return Errno.OK;
  }

  /** Opens this window on `length` bytes of a region from the region's address `va` on, under a new tag (IBTA 10.6.7.2).
   * A window of type 1 may be bound anew, and with length 0 is closed; one of type 2B must be closed first. */
  bind(region: Mr, va: u64, length: u32, access: u32, rkey: u32, qpn: u32): Errno {
    if (!this.isWindow || !this.isOwnKey(rkey)) return Errno.EINVAL;
    if (this.kind == MrKind.WINDOW_1 && length == 0) {
      this.unbind();
      this.rkey = rkey;
      return Errno.OK;
    }
    if (!this.isBindAllowed(region, va, length, access)) return Errno.EINVAL;
    this.unbind();
    this.rkey = rkey;
    this.open(region.ptr + <usize>(va - region.iova), length, access, access & Access.ZERO_BASED ? 0 : va);
    this.region = region.address;
    this.boundQpn = qpn;
    region.windows++;
    if (this.kind == MrKind.WINDOW_2) Card.get().boundWindows++;
    return Errno.OK;
  }

  /** Whether a key differs from ours in the tag alone, which its owner may choose. */
  private isOwnKey(rkey: u32): bool {
    return (rkey ^ this.rkey) >>> 8 == 0;
  }

  private isBindAllowed(region: Mr, va: u64, length: u32, access: u32): bool {
    if (region.address == 0 || region.isWindow || !region.isValid || region.pd != this.pd) return false;
    if (!(region.access & Access.MW_BIND) || length == 0) return false;
    if (access & ~(WINDOW_RIGHTS | <u32>Access.ZERO_BASED)) return false;
    let writes = (access & <u32>(Access.REMOTE_WRITE | Access.REMOTE_ATOMIC)) != 0;
    if (writes && !(region.access & Access.LOCAL_WRITE)) return false;
    if (access & ~region.access & Access.FLUSH_GLOBAL) return false;
    if (this.kind == MrKind.WINDOW_2 ? this.isValid : (access & Access.ZERO_BASED) != 0) return false;
    let offset = va - region.iova;
    return offset <= <u64>region.length && <u64>length <= <u64>region.length - offset;
  }

  /** Closes a window. */
  private unbind(): void {
    if (!this.isValid) return;
    this.isValid = false;
    changetype<Mr>(this.region).windows--;
    this.region = 0;
    if (this.kind == MrKind.WINDOW_2) Card.get().boundWindows--;
  }
}
