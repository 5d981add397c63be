/** Access rights of memory regions and queue pairs (ibv_access_flags). */

import { checkFlags } from '../base/options.js';
import { Access } from '../device/codes.js';

/** Name of an access right; see {@link AccessFlags}. */
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
 * Access rights (ibv_access_flags): an array of names, or the sum of `Access` bits. Local reading is always allowed.
 * - `localWrite`, of a region: receives, READs and atomics of this device may write to it.
 * - `remoteWrite`, `remoteRead`, `remoteAtomic`: the peer may WRITE, READ, or use atomics. The region and the queue
 *   pair must both have the right.
 * - `flushGlobal`: the peer may FLUSH. The region and the queue pair must both have the right.
 * - `mwBind`, of a region: memory windows may be bound to it.
 * - `zeroBased`, of a region or a type 2 window: remote addresses start at 0.
 * - `invalidate`, of a region: LOCAL_INV and the peer's SEND_WITH_INV may invalidate its keys.
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

/**
 * Returns the bits of access rights, 0 for undefined.
 * @throws TypeError for unknown names, RangeError for unknown bits
 */
export function accessBits(name: string, access: unknown): number {
  return checkFlags(name, access, NAMES);
}

/** Returns the names of access bits. */
export function accessNames(bits: number): AccessName[] {
  return (Object.keys(NAMES) as AccessName[]).filter((name) => (bits & NAMES[name]) !== 0);
}
