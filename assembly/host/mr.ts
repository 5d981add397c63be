// Memory regions and their keys. A key is 24 bits of random index and 8 bits of random tag; the local and the remote key of
// a region share the index and differ in the tag, so neither opens what the other is for.
import { Access, Errno } from '../limits';
import { Pd } from './pd';
import { allocate, release } from './pool';
import { random32 } from './random';
import { Table } from './table';

@unmanaged
@final
export class Mr {
  pd: Pd;
  /** Start of the memory in the card. */
  ptr: usize;
  /** Address by which the wire knows that start. */
  iova: u64;
  length: u32;
  access: u32;
  lkey: u32;
  rkey: u32;
  /** False after its key was invalidated: the region stays, its keys open nothing. */
  isValid: bool;

  static create(keys: Table, pd: Pd, ptr: usize, length: u32, access: u32, iova: u64): Mr {
    let mr = changetype<Mr>(allocate(offsetof<Mr>()));
    if (changetype<usize>(mr) == 0) return mr;
    mr.pd = pd;
    mr.ptr = ptr;
    mr.iova = iova;
    mr.length = length;
    mr.access = access;
    mr.isValid = true;
    let key = random32();
    while (key >>> 8 == 0 || keys.find(key >>> 8) != 0) key = random32();
    mr.rkey = key;
    let tag = random32() & 0xff;
    while (tag == (key & 0xff)) tag = random32() & 0xff;
    mr.lkey = (key & 0xffffff00) | tag;
    keys.add(key >>> 8, changetype<usize>(mr));
    pd.users++;
    return mr;
  }

  destroy(keys: Table): void {
    keys.remove(this.rkey >>> 8);
    this.pd.users--;
    release(changetype<usize>(this));
  }

  /** Rights that can be given: remote write and atomic need local write (IBTA 10.6.3.2). */
  static isAccessAllowed(access: u32): bool {
    let known = <u32>(
      (Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC | Access.INVALIDATE)
    );
    if (access & ~known) return false;
    return !(access & <u32>(Access.REMOTE_WRITE | Access.REMOTE_ATOMIC)) || (access & Access.LOCAL_WRITE) != 0;
  }

  /** Where a peer's access goes: key, tag, validity, domain, right and range are checked in this order; 0 = refused. */
  static remote(keys: Table, rkey: u32, pd: Pd, va: u64, length: u32, right: u32): usize {
    let mr = changetype<Mr>(keys.find(rkey >>> 8));
    if (changetype<usize>(mr) == 0 || mr.rkey != rkey || !mr.isValid || mr.pd != pd) return 0;
    if ((mr.access & right) != right) return 0;
    // the subtraction may wrap; what it then gives is too far away to pass the range check
    let offset = va - mr.iova;
    if (offset > <u64>mr.length || <u64>length > <u64>mr.length - offset) return 0;
    return mr.ptr + <usize>offset;
  }

  /** Whether a piece of a work request lies in a region of this key with this right. */
  static isLocal(keys: Table, lkey: u32, pd: Pd, ptr: usize, length: u32, right: u32): bool {
    let mr = changetype<Mr>(keys.find(lkey >>> 8));
    if (changetype<usize>(mr) == 0 || mr.lkey != lkey || !mr.isValid || mr.pd != pd) return false;
    if ((mr.access & right) != right || ptr < mr.ptr) return false;
    let offset = <u32>(ptr - mr.ptr);
    return offset <= mr.length && length <= mr.length - offset;
  }

  /** Closes a region whose key may be invalidated; ENOENT when the key is unknown, EINVAL when the region forbids it. */
  static invalidate(keys: Table, rkey: u32, pd: Pd): Errno {
    let mr = changetype<Mr>(keys.find(rkey >>> 8));
    if (changetype<usize>(mr) == 0 || mr.rkey != rkey || mr.pd != pd) return Errno.ENOENT;
    if (!(mr.access & Access.INVALIDATE) || !mr.isValid) return Errno.EINVAL;
    mr.isValid = false;
    return Errno.OK;
  }
}
