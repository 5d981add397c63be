// Memory regions, memory windows and their keys. A key is 24 bits of random index and 8 bits of tag. The local and the
// remote key of a region share the index and differ in the tag, so that one never passes for the other.
import { Access, Errno, MwType } from '../codes';
import { isInArena } from './arena';
import { Card } from './card';
import { Pd } from './pd';
import { isInCard, isInOneRegion } from './place';
import { allocate, release } from './pool';
import { random32 } from './random';
import { Table } from './table';

/** The kinds of objects that a key refers to. */
export enum MrKind {
  /** Memory registered by mrReg. */
  MEMORY,
  /** A region that a REG_MR work request registers and an invalidation unregisters (IBTA 10.6.3.7). */
  FAST,
  /** A memory window on a region, bound for its whole protection domain (type 1) or for one queue pair (type 2B). */
  WINDOW_1,
  WINDOW_2,
}

/** Access rights that a memory window can grant to a peer. */
const WINDOW_ACCESS: u32 = Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC | Access.FLUSH_GLOBAL;

/** A region whose keys may be invalidated can be registered again by a work request. */
function kindFor(access: u32): MrKind {
  return access & Access.INVALIDATE ? MrKind.FAST : MrKind.MEMORY;
}

@unmanaged
@final
export class Mr {
  pd: Pd;
  kind: MrKind;
  /** Start of the memory (host/place). */
  place: u64;
  /** Virtual address under which peers access that start. */
  iova: u64;
  length: u32;
  access: u32;
  lkey: u32;
  rkey: u32;
  /** The keys are valid: a fast region is registered, a memory window is bound. */
  isValid: bool;
  /** The local key is valid in every protection domain, as IBTA's Reserved L_Key is. */
  isForAllPds: bool;
  /** Memory windows that are bound to this region. */
  windows: u32;
  /** Of a memory window: its region, and of type 2B the number of the only queue pair that may use it. */
  region: usize;
  boundQpn: u32;

  get handle(): usize {
    return changetype<usize>(this);
  }
  get isWindow(): bool {
    return this.kind >= MrKind.WINDOW_1;
  }

  private static createWithKeys(keys: Table, pd: Pd, kind: MrKind): Mr {
    // no table: it is full
    let mr = changetype<Mr>(changetype<usize>(keys) == 0 ? <usize>0 : allocate(offsetof<Mr>()));
    if (mr.handle == 0) return mr;
    mr.kind = kind;
    mr.takeKeys(keys);
    mr.joinPd(pd);
    return mr;
  }

  private takeKeys(keys: Table): void {
    let key = random32();
    while (key >>> 8 == 0 || keys.lookup(key >>> 8) != 0) key = random32();
    this.rkey = key;
    let tag = random32() & 0xff;
    while (tag == (key & 0xff)) tag = random32() & 0xff;
    this.lkey = (key & 0xffffff00) | tag;
    keys.add(key >>> 8, this.handle);
  }

  private giveKeysBack(keys: Table): void {
    keys.remove(this.rkey >>> 8);
  }

  private joinPd(pd: Pd): void {
    this.pd = pd;
    pd.users++;
  }

  private leavePd(): void {
    this.pd.users--;
  }

  static create(keys: Table, pd: Pd, place: u64, length: u32, access: u32, iova: u64): Mr {
    let mr = Mr.createWithKeys(keys, pd, kindFor(access));
    if (mr.handle != 0) mr.setRange(place, length, access, iova);
    return mr;
  }

  /** Creates a region without memory, for fast registration. */
  static createFast(keys: Table, pd: Pd): Mr {
    return Mr.createWithKeys(keys, pd, MrKind.FAST);
  }

  /** Creates an unbound memory window. */
  static createWindow(keys: Table, pd: Pd, type: MwType): Mr {
    return Mr.createWithKeys(keys, pd, type == MwType.TYPE_1 ? MrKind.WINDOW_1 : MrKind.WINDOW_2);
  }

  private setRange(place: u64, length: u32, access: u32, iova: u64): void {
    this.place = place;
    this.length = length;
    this.access = access;
    this.iova = iova;
    this.isValid = true;
  }

  /** EBUSY while memory windows are bound to it. */
  destroy(keys: Table): Errno {
    if (this.windows != 0) return Errno.EBUSY;
    if (this.isWindow) this.unbind();
    this.giveKeysBack(keys);
    this.leavePd();
    release(this.handle);
    return Errno.OK;
  }

  /**
   * Registers other memory, with other access rights or in another domain, under the same keys or under new ones; then
   * the old keys become invalid. Nothing changes when this is refused: EBUSY while memory windows are bound, EINVAL for
   * a window and for what isRegistrable rejects.
   */
  reregister(keys: Table, pd: Pd, keepsKeys: bool, place: u64, length: u32, access: u32, iova: u64): Errno {
    if (this.windows != 0) return Errno.EBUSY;
    if (this.isWindow || !Mr.isRegistrable(place, length, access, iova)) return Errno.EINVAL;
    if (!keepsKeys) {
      this.giveKeysBack(keys);
      this.takeKeys(keys);
    }
    this.leavePd();
    this.joinPd(pd);
    this.kind = kindFor(access);
    this.setRange(place, length, access, iova);
    return Errno.OK;
  }

  /**
   * Returns whether the range lies in the application's memory, its virtual addresses do not wrap, and the access
   * rights are valid. Only the host knows how long a region outside the card is.
   */
  static isRegistrable(place: u64, length: u32, access: u32, iova: u64): bool {
    if (length == 0) return false;
    if (isInCard(place) ? !isInArena(<usize>place, length) : !isInOneRegion(place, length)) return false;
    return iova + (<u64>length - 1) >= iova && Mr.isAccessValid(access);
  }

  /** Remote write and remote atomic access need local write access (IBTA 10.6.3.2). */
  private static isAccessValid(access: u32): bool {
    let known = <u32>Access.LOCAL_WRITE | WINDOW_ACCESS | <u32>Access.MW_BIND | <u32>Access.INVALIDATE;
    if (access & ~known) return false;
    return !(access & <u32>(Access.REMOTE_WRITE | Access.REMOTE_ATOMIC)) || (access & Access.LOCAL_WRITE) != 0;
  }

  private static lookup(keys: Table, rkey: u32, pd: Pd, qpn: u32): Mr {
    let mr = changetype<Mr>(keys.lookup(rkey >>> 8));
    if (mr.handle == 0 || mr.rkey != rkey || !mr.isValid || mr.pd != pd) return changetype<Mr>(0);
    return mr.kind == MrKind.WINDOW_2 && mr.boundQpn != qpn ? changetype<Mr>(0) : mr;
  }

  /**
   * Returns the place of a peer's access; 0 = refused. Checks key, tag, validity, protection domain, access rights and
   * range, in this order.
   * @param qpn the queue pair of the access: a memory window may be bound to one queue pair
   */
  static resolveRemote(keys: Table, rkey: u32, pd: Pd, qpn: u32, va: u64, length: u32, right: u32): u64 {
    let mr = Mr.lookup(keys, rkey, pd, qpn);
    if (mr.handle == 0 || (mr.access & right) != right) return 0;
    // the subtraction may wrap; the wrapped offset is too large to pass the range check
    let offset = va - mr.iova;
    if (offset > <u64>mr.length || <u64>length > <u64>mr.length - offset) return 0;
    return mr.place + offset;
  }

  /** Returns whether a remote key is valid and grants this right, for any range. */
  static isRkeyValid(keys: Table, rkey: u32, pd: Pd, qpn: u32, right: u32): bool {
    let mr = Mr.lookup(keys, rkey, pd, qpn);
    return mr.handle != 0 && (mr.access & right) == right;
  }

  /** Returns whether an SGE lies in the region of its local key and the region grants this right. */
  static isLocalRangeValid(keys: Table, lkey: u32, pd: Pd, addr: u64, length: u32, right: u32): bool {
    let mr = changetype<Mr>(keys.lookup(lkey >>> 8));
    if (mr.handle == 0 || mr.lkey != lkey || !mr.isValid || mr.isWindow) return false;
    if (mr.pd != pd && !mr.isForAllPds) return false;
    if ((mr.access & right) != right || addr < mr.place) return false;
    let offset = addr - mr.place;
    return offset <= <u64>mr.length && <u64>length <= <u64>mr.length - offset;
  }

  /**
   * Invalidates the remote key of a fast region or of a memory window of type 2B. ENOENT when the key is unknown,
   * EINVAL when the object cannot be invalidated, or is bound to another queue pair (IBTA 10.6.5).
   */
  static invalidate(keys: Table, rkey: u32, pd: Pd, qpn: u32): Errno {
    let mr = Mr.lookup(keys, rkey, pd, qpn);
    if (mr.handle == 0) return Errno.ENOENT;
    if (mr.windows != 0) return Errno.EINVAL;
    if (mr.kind == MrKind.WINDOW_2) mr.unbind();
    else if (mr.kind == MrKind.FAST) mr.isValid = false;
    else return Errno.EINVAL;
    return Errno.OK;
  }

  /** Unbinds the memory windows of type 2B of a queue pair that is being destroyed: its number may be used again. */
  static unbindWindowsOf(keys: Table, qpn: u32): void {
    let card = Card.get();
    for (let slot: u32 = 0; slot != keys.rows && card.boundWindows != 0; slot++) {
      let mr = changetype<Mr>(keys.at(slot));
      if (mr.handle != 0 && mr.kind == MrKind.WINDOW_2 && mr.boundQpn == qpn) mr.unbind();
    }
  }

  /** Returns the local key of a fast region that was registered under this remote key. */
  static lkeyFor(rkey: u32): u32 {
    return rkey ^ 1;
  }

  /** Registers memory with a fast region that has none. `rkey` may change the tag of the keys. */
  registerFast(place: u64, length: u32, access: u32, iova: u64, rkey: u32): Errno {
    if (this.kind != MrKind.FAST || this.isValid || !this.hasSameIndex(rkey)) return Errno.EINVAL;
    if (!Mr.isRegistrable(place, length, access, iova)) return Errno.EINVAL;
    this.rkey = rkey;
    // the local key follows the remote key, so that they never become equal
    this.lkey = Mr.lkeyFor(rkey);
    this.setRange(place, length, access, iova);
    return Errno.OK;
  }

  /**
   * Binds this memory window to `length` bytes of a region, from the region's address `va` on, under a new tag (IBTA
   * 10.6.7.2). A window of type 1 may be bound again, and length 0 unbinds it. A window of type 2B must be invalidated
   * first.
   */
  bind(region: Mr, va: u64, length: u32, access: u32, rkey: u32, qpn: u32): Errno {
    if (!this.isWindow || !this.hasSameIndex(rkey)) return Errno.EINVAL;
    if (this.kind == MrKind.WINDOW_1 && length == 0) {
      this.unbind();
      this.rkey = rkey;
      return Errno.OK;
    }
    if (!this.isBindAllowed(region, va, length, access)) return Errno.EINVAL;
    this.unbind();
    this.rkey = rkey;
    this.setRange(region.place + (va - region.iova), length, access, access & Access.ZERO_BASED ? 0 : va);
    this.region = region.handle;
    this.boundQpn = qpn;
    region.windows++;
    if (this.kind == MrKind.WINDOW_2) Card.get().boundWindows++;
    return Errno.OK;
  }

  /** Returns whether a key has our index: its owner may choose the tag. */
  private hasSameIndex(rkey: u32): bool {
    return (rkey ^ this.rkey) >>> 8 == 0;
  }

  private isBindAllowed(region: Mr, va: u64, length: u32, access: u32): bool {
    if (region.handle == 0 || region.isWindow || !region.isValid || region.pd != this.pd) return false;
    if (!(region.access & Access.MW_BIND) || length == 0) return false;
    if (access & ~(WINDOW_ACCESS | <u32>Access.ZERO_BASED)) return false;
    let writes = (access & <u32>(Access.REMOTE_WRITE | Access.REMOTE_ATOMIC)) != 0;
    if (writes && !(region.access & Access.LOCAL_WRITE)) return false;
    if (access & ~region.access & Access.FLUSH_GLOBAL) return false;
    if (this.kind == MrKind.WINDOW_2 ? this.isValid : (access & Access.ZERO_BASED) != 0) return false;
    let offset = va - region.iova;
    return offset <= <u64>region.length && <u64>length <= <u64>region.length - offset;
  }

  /** Unbinds a memory window. */
  private unbind(): void {
    if (!this.isValid) return;
    this.isValid = false;
    changetype<Mr>(this.region).windows--;
    this.region = 0;
    if (this.kind == MrKind.WINDOW_2) Card.get().boundWindows--;
  }
}

/** Registers memory. When refused, returns null and sets lastErrno. */
export function registerMr(pd: Pd, place: u64, length: u32, access: u32, iova: u64): Mr {
  let card = Card.get();
  card.lastErrno = Errno.EINVAL;
  if (!Mr.isRegistrable(place, length, access, iova)) return changetype<Mr>(0);
  card.lastErrno = Errno.ENOMEM;
  if (card.keys.isFull) return changetype<Mr>(0);
  return Mr.create(card.keys, pd, place, length, access, iova);
}
