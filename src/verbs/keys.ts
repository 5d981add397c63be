/** Work requests about keys, which stay in the card: binding memory windows, registering fast regions. */
import type { Card } from '../device/card.js';
import { type AccessFlags, accessBits } from './access.js';
import { checkInteger, checkU32, checkU64, show } from './check.js';
import { FastMr } from './fastmr.js';
import { halves, Mr } from './mr.js';
import { Mw } from './mw.js';
import type { Pd } from './pd.js';

/** The fields of BIND_MW and REG_MR in a send work request. */
export interface KeyWr {
  mw?: Mw;
  mr?: Mr | FastMr;
  offset?: number;
  length?: number;
  access?: AccessFlags;
  rkey?: number;
  buffer?: Uint8Array | Mr;
  iova?: number | bigint;
}

/**
 * The same key with the next tag (ibv_inc_rkey): index in the upper 24 bits, tag in the lower 8, which wraps. What one binds
 * or registers anew should have a tag that its peers do not know yet.
 * @throws TypeError, RangeError unless it has 32 bits
 */
export function incRkey(rkey: number): number {
  checkU32('rkey', rkey);
  return ((rkey & 0xffffff00) | ((rkey + 1) & 0xff)) >>> 0;
}

/** A request that has been checked, to be written to the card and then noted. */
export interface KeyRequest {
  write(card: Card, qp: number): void;
  /** It is posted. */
  posted(): void;
}

/** @throws TypeError, RangeError */
export function bindRequest(wr: KeyWr, pd: Pd): KeyRequest {
  const { mw, mr } = wr;
  if (!(mw instanceof Mw)) throw new TypeError(`mw is ${show(mw)}, must be a memory window`);
  if (!(mr instanceof Mr || mr instanceof FastMr)) throw new TypeError(`mr is ${show(mr)}, must be a memory region`);
  for (const [name, object] of Object.entries({ mw, mr }))
    if (object.pd !== pd) throw new TypeError(`${name} belongs to ${object.pd}, the queue pair to ${pd}`);
  const offset = checkInteger('offset', wr.offset ?? 0, 0, mr.length);
  const length = checkInteger('length', wr.length ?? mr.length - offset, 0, mr.length - offset);
  const access = accessBits('access', wr.access);
  const rkey = ownKey(wr.rkey, mw.rkey, mw);
  const va = BigInt(mr.iova) + BigInt(offset);
  const { lkey } = mr;
  return {
    write: ({ exports }, qp) => exports.sqBind(qp, rkey, lkey, ...halves(va), length, access),
    posted: () => mw.announce(rkey),
  };
}

/** @throws TypeError, RangeError */
export function registerRequest(wr: KeyWr, pd: Pd): KeyRequest {
  const { mr } = wr;
  if (!(mr instanceof FastMr)) throw new TypeError(`mr is ${show(mr)}, must be a region of pd.allocMr`);
  if (mr.pd !== pd) throw new TypeError(`mr belongs to ${mr.pd}, the queue pair to ${pd}`);
  const bytes = wr.buffer instanceof Mr ? wr.buffer.buffer : wr.buffer;
  if (!(bytes instanceof Uint8Array)) throw new TypeError(`buffer is ${show(bytes)}, must be memory of a region`);
  mr.checkMemory(bytes);
  const access = accessBits('access', wr.access ?? ['localWrite']);
  const rkey = ownKey(wr.rkey, mr.rkey, mr);
  const iova = wr.iova === undefined ? bytes.byteOffset : checkU64('iova', wr.iova);
  return {
    write: ({ exports }, qp) => exports.sqRegister(qp, rkey, bytes.byteOffset, ...halves(iova), bytes.length, access),
    posted: () => mr.announce({ rkey, bytes, iova }),
  };
}

/** The key that a window or region gets: the next one, or one of the caller's choice with another tag. */
function ownKey(wanted: number | undefined, present: number, of: Mw | FastMr): number {
  if (wanted === undefined) return incRkey(present);
  checkU32('rkey', wanted);
  if ((wanted ^ present) >>> 8 !== 0)
    throw new RangeError(`rkey is ${wanted}, must be the key of ${of} but for its lowest 8 bits`);
  return wanted;
}
