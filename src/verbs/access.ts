/** Rights of memory regions and queue pairs (ibv_access_flags). */
import { Access } from '../device/codes.js';
import { checkFlags } from './check.js';

export type AccessName =
  | 'localWrite'
  | 'remoteWrite'
  | 'remoteRead'
  | 'remoteAtomic'
  | 'mwBind'
  | 'zeroBased'
  | 'flushGlobal'
  | 'invalidate';
/**
 * Names, or the sum of the `Access` bits. Local reading is always allowed.
 * - `flushGlobal`: the peer may FLUSH. A region and its queue pair must both have it, as the other remote rights.
 * - `mwBind`, of a region: memory windows may be bound to it.
 * - `zeroBased`, of a region or a window of type 2: the peer counts addresses from 0 on.
 * - `invalidate`, of a region: LOCAL_INV and the peer's SEND_WITH_INV may close its keys.
 */
export type AccessFlags = number | readonly AccessName[];

const NAMES: Readonly<Record<AccessName, number>> = {
  localWrite: Access.LOCAL_WRITE,
  remoteWrite: Access.REMOTE_WRITE,
  remoteRead: Access.REMOTE_READ,
  remoteAtomic: Access.REMOTE_ATOMIC,
  mwBind: Access.MW_BIND,
  zeroBased: Access.ZERO_BASED,
  flushGlobal: Access.FLUSH_GLOBAL,
  invalidate: Access.INVALIDATE,
};

/** @throws TypeError, RangeError */
export function accessBits(name: string, access: AccessFlags | undefined): number {
  return checkFlags(name, access, NAMES);
}

export function accessNames(bits: number): AccessName[] {
  return (Object.keys(NAMES) as AccessName[]).filter((name) => (bits & NAMES[name]) !== 0);
}
