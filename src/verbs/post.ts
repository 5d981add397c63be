/** Puts work requests into the rings of a queue pair. Checks first, then writes; allocates nothing. */

import type { Card } from '../device/card.js';
import { Errno, FlushPlacement, FlushSelectivity, LIMITS, nameOf, SendFlag, WrOpcode } from '../device/codes.js';
import { VerbsError } from '../errors.js';
import { checkU32, checkU64, show } from './check.js';
import { bindRequest, type KeyWr, registerRequest } from './keys.js';
import type { Pd } from './pd.js';
import { Ah } from './udah.js';
import type { RecvWr, SendOpcode, SendWr, Sge } from './wr.js';

/** What posting receives must know of the queue. */
export interface Receives {
  readonly handle: number;
  /** The handle is that of a shared receive queue. */
  readonly isShared: boolean;
  readonly maxRecvWr: number;
  readonly maxRecvSge: number;
  readonly state: string;
  toString(): string;
}

/** What posting must know of a queue pair. */
export interface Rings extends Receives {
  readonly isDatagram: boolean;
  /** Address handles of other domains are refused. */
  readonly pd: Pd;
  readonly maxSendWr: number;
  readonly maxSendSge: number;
  readonly maxInlineData: number;
}

/** A view for posting whose fields all lie in one plain object. */
export function ringsOf(
  qp: Omit<Rings, 'handle' | 'isShared' | 'isDatagram'> & { readonly type: string },
  handle: number,
): Rings {
  const { maxSendWr, maxRecvWr, maxSendSge, maxRecvSge, maxInlineData } = qp;
  return {
    handle,
    isShared: false,
    isDatagram: qp.type === 'UD',
    pd: qp.pd,
    maxSendWr,
    maxRecvWr,
    maxSendSge,
    maxRecvSge,
    maxInlineData,
    get state() {
      return qp.state;
    },
    toString: () => qp.toString(),
  };
}

/** Every field that a send work request may have. */
interface AnySendWr extends KeyWr {
  wrId?: number;
  opcode: SendOpcode;
  signaled?: boolean;
  solicited?: boolean;
  fence?: boolean;
  inline?: boolean;
  sgList?: Sge | readonly Sge[] | Uint8Array;
  remoteAddr?: number | bigint;
  immData?: number;
  invalidateRkey?: number;
  compareAdd?: bigint;
  swap?: bigint;
  placement?: string;
  selectivity?: string;
  ah?: Ah;
  remoteQpn?: number;
  remoteQkey?: number;
}

const REMOTE = 1;
const ATOMIC = 2;
const IMMEDIATE = 4;
const INVALIDATE = 8;
/** Carries the caller's bytes, which therefore may be inline. */
const GATHER = 16;
/** Sends the caller's bytes to be written at once. */
const EIGHT = 32;
const FLUSH = 64;
/** About keys: described by keys.ts. */
const KEY = 128;
/** What a UD queue pair sends; anything else the card refuses there. */
const DATAGRAM = 256;

interface Form {
  readonly code: number;
  readonly has: number;
}

/** A Map, which is looked up three times as fast as an object's own names. */
const FORMS: ReadonlyMap<string, Form> = new Map<SendOpcode, Form>(
  Object.entries({
    SEND: { code: WrOpcode.SEND, has: GATHER | DATAGRAM },
    SEND_WITH_IMM: { code: WrOpcode.SEND_WITH_IMM, has: GATHER | IMMEDIATE | DATAGRAM },
    SEND_WITH_INV: { code: WrOpcode.SEND_WITH_INV, has: GATHER | INVALIDATE },
    RDMA_WRITE: { code: WrOpcode.RDMA_WRITE, has: GATHER | REMOTE },
    RDMA_WRITE_WITH_IMM: { code: WrOpcode.RDMA_WRITE_WITH_IMM, has: GATHER | REMOTE | IMMEDIATE },
    RDMA_READ: { code: WrOpcode.RDMA_READ, has: REMOTE },
    ATOMIC_CMP_AND_SWP: { code: WrOpcode.ATOMIC_CMP_AND_SWP, has: REMOTE | ATOMIC },
    ATOMIC_FETCH_AND_ADD: { code: WrOpcode.ATOMIC_FETCH_AND_ADD, has: REMOTE | ATOMIC },
    ATOMIC_WRITE: { code: WrOpcode.ATOMIC_WRITE, has: GATHER | REMOTE | EIGHT },
    FLUSH: { code: WrOpcode.FLUSH, has: REMOTE | FLUSH },
    LOCAL_INV: { code: WrOpcode.LOCAL_INV, has: INVALIDATE },
    BIND_MW: { code: WrOpcode.BIND_MW, has: KEY },
    REG_MR: { code: WrOpcode.REG_MR, has: KEY },
  } satisfies Record<SendOpcode, Form>) as [SendOpcode, Form][],
);

const NO_SGES: readonly Sge[] = [];
const wide = new BigUint64Array(1);
const halves = new Uint32Array(wide.buffer);

/** @throws TypeError, RangeError for a wrong request; VerbsError ENOMEM, EINVAL, EMSGSIZE, EOPNOTSUPP when refused */
export function postSend(card: Card, rings: Rings, request: SendWr): void {
  const wr = request as AnySendWr;
  const form = FORMS.get(wr.opcode);
  if (form === undefined)
    throw new TypeError(`opcode is ${show(wr.opcode)}, must be one of ${[...FORMS.keys()].join(', ')}`);
  const { has } = form;
  const { exports } = card;
  const { handle } = rings;

  const wrId = checkWrId(wr.wrId);
  const bytes = wr.sgList instanceof Uint8Array ? wr.sgList : undefined;
  const sges = bytes === undefined ? asList(wr.sgList as Sge | readonly Sge[] | undefined) : NO_SGES;
  const total = checkSges(sges, rings.maxSendSge, 'maxSendSge', rings) + (bytes?.length ?? 0);
  const inline = bytes !== undefined || wr.inline === true;
  if (inline) checkInline(card, rings, wr.opcode, has, sges, total);
  if ((has & REMOTE) !== 0) {
    checkU64('remoteAddr', wr.remoteAddr);
    checkU32('rkey', wr.rkey);
  }
  if ((has & ATOMIC) !== 0) {
    if (total !== 8) throw new RangeError(`sgList of ${wr.opcode} has ${total} bytes, must have 8 for the old value`);
    checkOperand('compareAdd', wr.compareAdd);
    if (wr.opcode === 'ATOMIC_CMP_AND_SWP') checkOperand('swap', wr.swap);
  }
  if ((has & EIGHT) !== 0 && total !== 8)
    throw new RangeError(`sgList of ${wr.opcode} has ${total} bytes, must have 8`);
  if ((has & FLUSH) !== 0) checkFlush(wr);
  const key =
    (has & KEY) === 0 ? undefined : wr.opcode === 'BIND_MW' ? bindRequest(wr, rings.pd) : registerRequest(wr, rings.pd);
  if ((has & IMMEDIATE) !== 0) checkU32('immData', wr.immData);
  if ((has & INVALIDATE) !== 0) checkU32('invalidateRkey', wr.invalidateRkey);
  const isDatagram = rings.isDatagram && (has & DATAGRAM) !== 0;
  if (isDatagram) checkDatagram(rings, wr, total);

  const flags =
    (wr.signaled === true ? SendFlag.SIGNALED : 0) |
    (wr.solicited === true ? SendFlag.SOLICITED : 0) |
    (wr.fence === true ? SendFlag.FENCE : 0) |
    (inline ? SendFlag.INLINE : 0);
  if (!exports.sqBegin(handle, wrId, form.code, flags)) throw refusedBegin(card, rings, 'send', rings.maxSendWr);
  if (inline) {
    copyInline(card, exports.sqInline(handle, total), bytes, sges);
  } else {
    for (let i = 0; i < sges.length; i++) {
      const sge = sges[i] as Sge;
      exports.sqSge(handle, sge.addr, sge.length, sge.lkey);
    }
  }
  if ((has & REMOTE) !== 0) {
    split(wr.remoteAddr as number | bigint);
    exports.sqRemote(handle, halves[1] as number, halves[0] as number, wr.rkey as number);
  }
  if ((has & ATOMIC) !== 0) {
    split(wr.compareAdd as bigint);
    const high = halves[1] as number;
    const low = halves[0] as number;
    split(wr.swap ?? 0);
    exports.sqAtomic(handle, high, low, halves[1] as number, halves[0] as number);
  }
  if ((has & IMMEDIATE) !== 0) exports.sqImm(handle, swapBytes(wr.immData as number));
  if ((has & INVALIDATE) !== 0) exports.sqImm(handle, wr.invalidateRkey as number);
  if ((has & FLUSH) !== 0) exports.sqFlush(handle, wr.length ?? 0, flushCode(wr));
  key?.write(card, handle);
  if (isDatagram) exports.sqDatagram(handle, (wr.ah as Ah).handle, wr.remoteQpn as number, wr.remoteQkey as number);
  const refused = exports.sqCommit(handle);
  if (refused !== 0) throw refusedCommit(rings, wr.opcode, refused, total);
  key?.posted();
}

function checkFlush({ length, placement = 'global', selectivity = 'range' }: AnySendWr): void {
  if (placement !== 'global') throw new TypeError(`placement is ${show(placement)}, must be 'global'`);
  if (selectivity !== 'range' && selectivity !== 'mr')
    throw new TypeError(`selectivity is ${show(selectivity)}, must be 'range' or 'mr'`);
  if (selectivity === 'range' || length !== undefined) checkU32('length', length);
}

function flushCode({ selectivity }: AnySendWr): number {
  return FlushPlacement.GLOBAL | ((selectivity === 'mr' ? FlushSelectivity.MR : FlushSelectivity.RANGE) << 4);
}

/** @throws TypeError, RangeError for a wrong request; VerbsError ENOMEM, EINVAL when refused */
export function postRecv(card: Card, queue: Receives, wr: RecvWr): void {
  const { exports } = card;
  const { handle, isShared } = queue;
  const wrId = checkWrId(wr.wrId);
  const sges = asList(wr.sgList);
  const total = checkSges(sges, queue.maxRecvSge, 'maxRecvSge', queue);
  const begun = isShared ? exports.srqBegin(handle, wrId) : exports.rqBegin(handle, wrId);
  if (!begun) throw refusedBegin(card, queue, 'receive', queue.maxRecvWr);
  for (let i = 0; i < sges.length; i++) {
    const sge = sges[i] as Sge;
    if (isShared) exports.srqSge(handle, sge.addr, sge.length, sge.lkey);
    else exports.rqSge(handle, sge.addr, sge.length, sge.lkey);
  }
  const refused = isShared ? exports.srqCommit(handle) : exports.rqCommit(handle);
  if (refused !== 0) throw refusedCommit(queue, 'RECV', refused, total);
}

/** The four bytes of a u32 in the other order. */
export function swapBytes(value: number): number {
  return ((value << 24) | ((value & 0xff00) << 8) | ((value >>> 8) & 0xff00) | (value >>> 24)) >>> 0;
}

const single: Sge[] = [];
function asList(sgList: Sge | readonly Sge[] | undefined): readonly Sge[] {
  if (sgList === undefined) return NO_SGES;
  if (Array.isArray(sgList)) return sgList as readonly Sge[];
  if (typeof sgList !== 'object' || sgList === null)
    throw new TypeError(`sgList is ${show(sgList)}, must be a piece of registered memory or an array of them`);
  single[0] = sgList as Sge;
  return single;
}

function checkWrId(wrId: number | undefined): number {
  if (wrId === undefined) return 0;
  if (!Number.isSafeInteger(wrId)) throw new TypeError(`wrId is ${show(wrId)}, must be an integer below 2^53 in size`);
  return wrId;
}

/** @returns bytes in all */
function checkSges(sges: readonly Sge[], max: number, limit: string, rings: Receives): number {
  if (sges.length > max) throw new RangeError(`sgList has ${sges.length} pieces, ${rings} takes ${limit} ${max}`);
  let total = 0;
  for (let i = 0; i < sges.length; i++) {
    const sge = sges[i] as Sge;
    const { addr, length, lkey } = sge;
    if (addr >>> 0 !== addr || length >>> 0 !== length || lkey >>> 0 !== lkey) throw wrongSge(sge, i);
    total += length;
  }
  return total;
}

function wrongSge(sge: Sge, index: number): Error {
  try {
    for (const part of ['addr', 'length', 'lkey'] as const) checkU32(`sgList[${index}].${part}`, sge[part]);
  } catch (error) {
    return error as Error;
  }
  return new TypeError(`sgList[${index}] is ${show(sge)}, must have addr, length and lkey`);
}

function checkInline(card: Card, rings: Rings, opcode: string, has: number, sges: readonly Sge[], total: number): void {
  if ((has & GATHER) === 0) throw new TypeError(`${opcode} receives into sgList, which therefore cannot be inline`);
  if (total > rings.maxInlineData)
    throw new RangeError(`inline data has ${total} bytes, ${rings} takes maxInlineData ${rings.maxInlineData}`);
  for (let i = 0; i < sges.length; i++) {
    const { addr, length } = sges[i] as Sge;
    if (addr + length > card.bytes.length)
      throw new RangeError(`sgList[${i}] ends at ${addr + length}, the card's memory at ${card.bytes.length}`);
  }
}

/** One packet, to somebody. */
function checkDatagram(rings: Rings, { ah, remoteQpn, remoteQkey, opcode }: AnySendWr, total: number): void {
  if (!(ah instanceof Ah))
    throw new TypeError(`ah is ${show(ah)}, must be made by pd.createAh for ${opcode} on ${rings}`);
  ah.assertOpen();
  if (ah.pd !== rings.pd) throw new TypeError(`ah belongs to ${ah.pd}, ${rings} to ${rings.pd}`);
  checkU32('remoteQkey', remoteQkey);
  if (checkU32('remoteQpn', remoteQpn) > 0xffffff)
    throw new RangeError(`remoteQpn is ${remoteQpn}, must have 24 bits; 0xffffff for a group`);
  if (total > ah.maxMessage)
    throw new VerbsError(
      'EMSGSIZE',
      `${opcode} of ${total} bytes; a datagram to ${ah.label} has at most ${ah.maxMessage}`,
    );
}

function checkOperand(name: string, value: unknown): void {
  if (typeof value !== 'bigint') throw new TypeError(`${name} is ${show(value)}, must be a bigint`);
  if (value < -0x8000000000000000n || value > 0xffffffffffffffffn)
    throw new RangeError(`${name} is ${value}n, must have 64 bits`);
}

function copyInline({ bytes: memory }: Card, to: number, bytes: Uint8Array | undefined, sges: readonly Sge[]): void {
  if (bytes !== undefined) memory.set(bytes, to);
  let at = to;
  for (let i = 0; i < sges.length; i++) {
    const { addr, length } = sges[i] as Sge;
    memory.copyWithin(at, addr, addr + length);
    at += length;
  }
}

/** Leaves the halves of a 64-bit value in `halves`, low first. */
function split(value: number | bigint): void {
  if (typeof value === 'bigint') {
    wide[0] = value;
  } else {
    halves[0] = value;
    halves[1] = value / 0x100000000;
  }
}

function refusedBegin(card: Card, rings: Receives, queue: 'send' | 'receive', depth: number): VerbsError {
  const errno = card.exports.lastErrno();
  if (errno === Errno.ENOMEM) {
    const limit = queue === 'send' ? 'maxSendWr' : 'maxRecvWr';
    return new VerbsError('ENOMEM', `${queue} queue of ${rings} is full: ${limit} is ${depth}`);
  }
  const rule =
    queue === 'send' ? 'sends are posted in RTS, SQD, SQE or ERR' : 'receives are posted in any state but RESET';
  return new VerbsError('EINVAL', `${rings} is in state ${rings.state}; ${rule}`);
}

function refusedCommit(rings: Receives, opcode: string, errno: number, total: number): VerbsError {
  switch (errno) {
    case Errno.EMSGSIZE:
      return new VerbsError(
        'EMSGSIZE',
        `${opcode} of ${total} bytes; a message has at most ${LIMITS.maxMessage} bytes`,
      );
    case Errno.EOPNOTSUPP:
      return new VerbsError('EOPNOTSUPP', `${opcode} is no operation of ${rings}`);
    default:
      return new VerbsError('EINVAL', `${opcode} of ${total} bytes on ${rings} refused (${nameOf(Errno, errno)})`);
  }
}
