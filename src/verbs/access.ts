/** Rights of memory regions and queue pairs (ibv_access_flags). */
import { Access } from '../device/codes.js';
import { checkFlags } from './check.js';

export type AccessName = 'localWrite' | 'remoteWrite' | 'remoteRead' | 'remoteAtomic' | 'invalidate';
/**
 * Names, or the sum of the `Access` bits. Local reading is always allowed. `invalidate`, for regions only, lets LOCAL_INV
 * and the peer's SEND_WITH_INV close the region's keys.
 */
export type AccessFlags = number | readonly AccessName[];

const NAMES: Readonly<Record<AccessName, number>> = {
  localWrite: Access.LOCAL_WRITE,
  remoteWrite: Access.REMOTE_WRITE,
  remoteRead: Access.REMOTE_READ,
  remoteAtomic: Access.REMOTE_ATOMIC,
  invalidate: Access.INVALIDATE,
};

/** @throws TypeError, RangeError */
export function accessBits(name: string, access: AccessFlags | undefined): number {
  return checkFlags(name, access, NAMES);
}

export function accessNames(bits: number): AccessName[] {
  return (Object.keys(NAMES) as AccessName[]).filter((name) => (bits & NAMES[name]) !== 0);
}
