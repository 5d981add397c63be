/** Work requests that change keys and send no packet: binding memory windows, registering fast regions. */

import { checkInteger, checkU32, checkU64, wrongType } from '../../base/options.js';
import type { Card } from '../../device/card.js';
import { invalidValue, outOfRange } from '../../errors.js';
import { type AccessFlags, accessBits } from '../access.js';
import type { Domain } from '../objects/domain.js';
import { FastMr, type FastRegistration } from '../objects/fastmr.js';
import { holdMemory, type MemorySource, registrable } from '../objects/memorysource.js';
import { isWritable, Mr, memoryOf, splitU64 } from '../objects/mr.js';
import { Mw } from '../objects/mw.js';

/** The fields of BIND_MW and REG_MR in a send work request. */
export interface KeyWrFields {
  mw?: Mw;
  mr?: Mr | FastMr;
  offset?: number;
  length?: number;
  access?: AccessFlags;
  rkey?: number;
  buffer?: MemorySource | Mr;
  iova?: number | bigint;
}

/**
 * Returns the key with the next tag (ibv_inc_rkey). The upper 24 bits are the index, the lower 8 the tag, which wraps.
 * Rebinding a window or re-registering a fast region should use a new tag, so that peers with the old key lose access.
 * @param rkey an rkey, 32 bits
 * @throws TypeError, RangeError unless it is an unsigned 32-bit number
 */
export function incRkey(rkey: number): number {
  checkU32('rkey', rkey);
  return ((rkey & 0xffffff00) | ((rkey + 1) & 0xff)) >>> 0;
}

/** A checked request: written to the card, then recorded by its window or region. */
export interface KeyRequest {
  write(card: Card, qp: number): void;
  /** Called once the request is posted. */
  onPosted(): void;
  /** Called if it was written, and then refused. */
  onRefused?(): void;
}

/** Checks a BIND_MW. Reads each property once. @throws TypeError, RangeError */
export function bindRequest(wr: KeyWrFields, pd: Domain): KeyRequest {
  const { mw, mr, offset: start, length: wanted, access: rights, rkey: newKey } = wr;
  if (!(mw instanceof Mw)) throw wrongType('mw', mw, 'a memory window');
  if (!(mr instanceof Mr || mr instanceof FastMr)) throw wrongType('mr', mr, 'a memory region');
  for (const [name, object] of Object.entries({ mw, mr }))
    if (object.pd !== pd) throw invalidValue(`${name} belongs to ${object.pd}, the queue pair to ${pd}`);
  const { length: whole, lkey, iova } = mr;
  const offset = checkInteger('offset', start ?? 0, 0, whole);
  const length = checkInteger('length', wanted ?? whole - offset, 0, whole - offset);
  const access = accessBits('access', rights);
  const rkey = nextKey(newKey, mw.rkey, mw);
  const va = splitU64(BigInt(iova) + BigInt(offset));
  return {
    write: ({ exports }, qp) => exports.sqBind(qp, rkey, lkey, ...va, length, access),
    onPosted: () => mw.onBindPosted(rkey),
  };
}

/** Checks a REG_MR. Reads each property once; the memory comes last. @throws TypeError, RangeError */
export function registerRequest(wr: KeyWrFields, pd: Domain): KeyRequest {
  const { mr, buffer, access: rights, rkey: newKey, iova: wanted } = wr;
  if (!(mr instanceof FastMr)) throw wrongType('mr', mr, 'a fast region of pd.allocMr');
  if (mr.pd !== pd) throw invalidValue(`mr belongs to ${mr.pd}, the queue pair to ${pd}`);
  const access = accessBits('access', rights ?? ['localWrite']);
  const rkey = nextKey(newKey, mr.rkey, mr);
  const requestedIova = wanted === undefined ? undefined : checkU64('iova', wanted);
  const { memory } = pd.device;
  const bytes = registrable(memory, memoryOf(memory, buffer as MemorySource | Mr), 'buffer');
  let registration: FastRegistration;
  return {
    write({ exports }, qp) {
      const { allocation, addr, length } = holdMemory(memory, bytes, isWritable(access));
      const iova = requestedIova ?? addr;
      exports.sqRegister(qp, rkey, ...splitU64(addr), ...splitU64(iova), length, access);
      registration = { rkey, allocation, addr, length, iova };
    },
    onPosted: () => mr.onRegistrationPosted(registration),
    onRefused: () => memory.unref(registration.allocation),
  };
}

/** Returns the new key of a window or region: the given one, which may differ in the tag only, or the next. */
function nextKey(wanted: number | undefined, present: number, of: Mw | FastMr): number {
  if (wanted === undefined) return incRkey(present);
  checkU32('rkey', wanted);
  if ((wanted ^ present) >>> 8 !== 0)
    throw outOfRange(`rkey is ${wanted}, must equal the key of ${of} in its upper 24 bits`);
  return wanted;
}
