/** Posts work requests to the queues of the card: checks them, then writes them. Allocates nothing. */

import { bufferOf, lengthOf } from '../../base/intrinsics.js';
import { checkInteger, checkU32, checkU64, show, wrongType } from '../../base/options.js';
import type { Card } from '../../device/card.js';
import {
  Errno,
  FlushPlacement,
  FlushSelectivity,
  GSI,
  LIMITS,
  nameOf,
  SendFlag,
  WrOpcode,
} from '../../device/codes.js';
import { REGION_SPAN } from '../../device/regions.js';
import { invalidType, invalidValue, outOfRange, VerbsError } from '../../errors.js';
import { AddressHandle } from '../objects/ah.js';
import type { Domain } from '../objects/domain.js';
import { bindRequest, type KeyWrFields, registerRequest } from './keys.js';
import { swapBytes } from './wc.js';
import type { RecvWr, SendOpcode, SendWr, Sge } from './wr.js';

/** A receive queue, as posting needs it. */
export interface RecvQueue {
  readonly handle: number;
  /** Whether the handle is that of a shared receive queue. */
  readonly isShared: boolean;
  readonly maxRecvWr: number;
  readonly maxRecvSge: number;
  readonly state: string;
  /** @throws VerbsError EINVAL after close */
  assertOpen(): void;
  toString(): string;
}

/** The send and receive queue of a queue pair, as posting needs them. */
export interface WorkQueues extends RecvQueue {
  readonly isDatagram: boolean;
  /** Queue pair 1, whose datagrams name their P_Key. */
  readonly isGsi: boolean;
  /** Address handles must belong to this domain. */
  readonly pd: Domain;
  readonly maxSendWr: number;
  readonly maxSendSge: number;
  readonly maxInlineData: number;
}

/** The queue pair whose queues are posted to. */
type QueuePair = Omit<WorkQueues, 'handle' | 'isShared' | 'isDatagram' | 'isGsi'> & {
  readonly type: string;
  readonly qpNum: number;
};

/** The queues of a queue pair, with copies of the properties that posting needs, for fast access. */
export class QpQueues implements WorkQueues {
  readonly isShared = false;
  readonly isDatagram: boolean;
  readonly isGsi: boolean;
  readonly pd: Domain;
  readonly maxSendWr: number;
  readonly maxRecvWr: number;
  readonly maxSendSge: number;
  readonly maxRecvSge: number;
  readonly maxInlineData: number;
  readonly #qp: QueuePair;

  constructor(
    readonly handle: number,
    qp: QueuePair,
  ) {
    this.#qp = qp;
    this.isDatagram = qp.type === 'UD';
    this.isGsi = qp.qpNum === GSI.qpn;
    this.pd = qp.pd;
    this.maxSendWr = qp.maxSendWr;
    this.maxRecvWr = qp.maxRecvWr;
    this.maxSendSge = qp.maxSendSge;
    this.maxRecvSge = qp.maxRecvSge;
    this.maxInlineData = qp.maxInlineData;
  }

  get state(): string {
    return this.#qp.state;
  }

  assertOpen(): void {
    this.#qp.assertOpen();
  }

  toString(): string {
    return this.#qp.toString();
  }
}

/** All fields of all send work requests. */
interface SendWrFields extends KeyWrFields {
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
  ah?: AddressHandle;
  remoteQpn?: number;
  remoteQkey?: number;
  pkeyIndex?: number;
}

const REMOTE = 1;
const ATOMIC = 2;
const IMMEDIATE = 4;
const INVALIDATE = 8;
/** Sends data of sgList, which may therefore be inline. */
const GATHER = 16;
/** Sends exactly eight bytes, which are written atomically. */
const EIGHT_BYTES = 32;
const FLUSH = 64;
/** Changes keys: see keys.ts. */
const KEY_OPERATION = 128;
/** Allowed on UD; the card refuses other opcodes there. */
const UD_SEND = 256;

interface OpcodeInfo {
  readonly code: number;
  readonly fields: number;
}

/** A Map, whose look-ups are three times as fast as those of an object's properties. */
const OPCODES: ReadonlyMap<string, OpcodeInfo> = new Map<SendOpcode, OpcodeInfo>(
  Object.entries({
    SEND: { code: WrOpcode.SEND, fields: GATHER | UD_SEND },
    SEND_WITH_IMM: { code: WrOpcode.SEND_WITH_IMM, fields: GATHER | IMMEDIATE | UD_SEND },
    SEND_WITH_INV: { code: WrOpcode.SEND_WITH_INV, fields: GATHER | INVALIDATE },
    RDMA_WRITE: { code: WrOpcode.RDMA_WRITE, fields: GATHER | REMOTE },
    RDMA_WRITE_WITH_IMM: { code: WrOpcode.RDMA_WRITE_WITH_IMM, fields: GATHER | REMOTE | IMMEDIATE },
    RDMA_READ: { code: WrOpcode.RDMA_READ, fields: REMOTE },
    ATOMIC_CMP_AND_SWP: { code: WrOpcode.ATOMIC_CMP_AND_SWP, fields: REMOTE | ATOMIC },
    ATOMIC_FETCH_AND_ADD: { code: WrOpcode.ATOMIC_FETCH_AND_ADD, fields: REMOTE | ATOMIC },
    ATOMIC_WRITE: { code: WrOpcode.ATOMIC_WRITE, fields: GATHER | REMOTE | EIGHT_BYTES },
    FLUSH: { code: WrOpcode.FLUSH, fields: REMOTE | FLUSH },
    LOCAL_INV: { code: WrOpcode.LOCAL_INV, fields: INVALIDATE },
    BIND_MW: { code: WrOpcode.BIND_MW, fields: KEY_OPERATION },
    REG_MR: { code: WrOpcode.REG_MR, fields: KEY_OPERATION },
  } satisfies Record<SendOpcode, OpcodeInfo>) as [SendOpcode, OpcodeInfo][],
);

const operand = new BigUint64Array(1);
const operandWords = new Uint32Array(operand.buffer);
/** Words of an element in `sgeWords`, and their order in it behind the upper half of the address. */
const SGE_WORDS = 4;
const ADDR_LOW = 1;
const LENGTH = 2;
const LKEY = 3;
/** The elements of the work request that is being posted. */
const sgeWords = new Uint32Array(SGE_WORDS * LIMITS.maxSge);

/**
 * Posts a send work request. Every property of it is read once, before the first call of the card: a getter may return
 * something else the next time, and may close the queue.
 * @throws TypeError, RangeError; VerbsError ENOMEM, EINVAL, EMSGSIZE, EOPNOTSUPP
 */
export function postSend(card: Card, queues: WorkQueues, request: SendWr): void {
  const wr = request as SendWrFields;
  if (wr === undefined || wr === null) throw notRequest(wr);
  const { opcode } = wr;
  const form = OPCODES.get(opcode);
  if (form === undefined)
    throw invalidValue(`opcode is ${show(opcode)}, must be one of ${[...OPCODES.keys()].join(', ')}`);
  const { fields } = form;
  const { exports } = card;
  const { handle } = queues;

  const wrId = checkWrId(wr.wrId);
  const { sgList } = wr;
  const bytes = ArrayBuffer.isView(sgList) && sgList instanceof Uint8Array ? sgList : undefined;
  const inline = wr.inline === true || bytes !== undefined;
  const flags =
    (wr.signaled === true ? SendFlag.SIGNALED : 0) |
    (wr.solicited === true ? SendFlag.SOLICITED : 0) |
    (wr.fence === true ? SendFlag.FENCE : 0) |
    (inline ? SendFlag.INLINE : 0);
  let remoteAddr: number | bigint = 0;
  let rkey = 0;
  if ((fields & REMOTE) !== 0) {
    remoteAddr = checkU64('remoteAddr', wr.remoteAddr);
    rkey = checkU32('rkey', wr.rkey);
  }
  let compareAdd: number | bigint = 0;
  let swap: number | bigint = 0;
  if ((fields & ATOMIC) !== 0) {
    compareAdd = checkOperand('compareAdd', wr.compareAdd);
    if (opcode === 'ATOMIC_CMP_AND_SWP') swap = checkOperand('swap', wr.swap);
  }
  let imm = 0;
  if ((fields & IMMEDIATE) !== 0) imm = swapBytes(checkU32('immData', wr.immData));
  if ((fields & INVALIDATE) !== 0) imm = checkU32('invalidateRkey', wr.invalidateRkey);
  let length = 0;
  if ((fields & FLUSH) !== 0) {
    imm = checkSelectivity(wr);
    length = checkFlushLength(wr.length, imm);
  }
  const isDatagram = queues.isDatagram && (fields & UD_SEND) !== 0;
  let ah: AddressHandle | undefined;
  let remoteQpn = 0;
  let remoteQkey = 0;
  let pkeyIndex = 0;
  if (isDatagram) {
    ah = checkAh(wr.ah, opcode, queues);
    remoteQpn = checkQpn(wr.remoteQpn);
    remoteQkey = checkU32('remoteQkey', wr.remoteQkey);
    if (queues.isGsi) pkeyIndex = checkU32('pkeyIndex', wr.pkeyIndex);
  }
  const elements = bytes === undefined ? readSges(sgList as SgList, queues.maxSendSge, 'maxSendSge', queues) : 0;
  const key =
    (fields & KEY_OPERATION) === 0
      ? undefined
      : opcode === 'BIND_MW'
        ? bindRequest(wr, queues.pd)
        : registerRequest(wr, queues.pd);

  // From here on nothing of the program runs.
  queues.assertOpen();
  const total = bytes === undefined ? sumOfSges(elements) : lengthOf(bytes);
  if (inline) checkInline(card, queues, opcode, fields, elements, total);
  if ((fields & ATOMIC) !== 0 && total !== 8)
    throw outOfRange(`sgList of ${opcode} has ${total} bytes, must have 8 for the original value`);
  if ((fields & EIGHT_BYTES) !== 0 && total !== 8)
    throw outOfRange(`sgList of ${opcode} has ${total} bytes, must have 8`);
  const ahHandle = ah === undefined ? 0 : datagramHandle(ah, remoteQpn, queues, opcode, total);
  if (!exports.sqBegin(handle, wrId, form.code, flags)) throw beginError(card, queues, 'send', queues.maxSendWr);
  if (inline) {
    copyInline(card, exports.sqInline(handle, total), bytes, total, elements);
  } else {
    for (let i = 0; i < elements; i++) {
      const at = SGE_WORDS * i;
      const length = sgeWords[at + LENGTH] as number;
      exports.sqSge(
        handle,
        sgeWords[at] as number,
        sgeWords[at + ADDR_LOW] as number,
        length,
        sgeWords[at + LKEY] as number,
      );
    }
  }
  if ((fields & REMOTE) !== 0) {
    splitOperand(remoteAddr);
    exports.sqRemote(handle, operandWords[1] as number, operandWords[0] as number, rkey);
  }
  if ((fields & ATOMIC) !== 0) {
    splitOperand(compareAdd);
    const high = operandWords[1] as number;
    const low = operandWords[0] as number;
    splitOperand(swap);
    exports.sqAtomic(handle, high, low, operandWords[1] as number, operandWords[0] as number);
  }
  if ((fields & (IMMEDIATE | INVALIDATE)) !== 0) exports.sqImm(handle, imm);
  if ((fields & FLUSH) !== 0) exports.sqFlush(handle, length, imm);
  key?.write(card, handle);
  if (isDatagram) exports.sqDatagram(handle, ahHandle, remoteQpn, remoteQkey, pkeyIndex);
  const refused = exports.sqCommit(handle);
  if (refused !== 0) {
    key?.onRefused?.();
    throw commitError(queues, opcode, refused, total);
  }
  key?.onPosted();
}

/** @returns FlushPlacement | FlushSelectivity << 4 */
function checkSelectivity({ placement = 'global', selectivity = 'range' }: SendWrFields): number {
  if (placement !== 'global') throw invalidValue(`placement is ${show(placement)}, must be 'global'`);
  if (selectivity !== 'range' && selectivity !== 'mr')
    throw invalidValue(`selectivity is ${show(selectivity)}, must be 'range' or 'mr'`);
  return FlushPlacement.GLOBAL | ((selectivity === 'mr' ? FlushSelectivity.MR : FlushSelectivity.RANGE) << 4);
}

function notRequest(wr: unknown): TypeError {
  return wrongType('the work request', wr, 'an object');
}

function checkFlushLength(length: number | undefined, what: number): number {
  return what >>> 4 === FlushSelectivity.MR && length === undefined ? 0 : checkU32('length', length);
}

/** Posts a receive work request, as `postSend`. @throws TypeError, RangeError; VerbsError ENOMEM, EINVAL */
export function postRecv(card: Card, queue: RecvQueue, wr: RecvWr): void {
  const { exports } = card;
  const { handle, isShared } = queue;
  if (wr === undefined || wr === null) throw notRequest(wr);
  const wrId = checkWrId(wr.wrId);
  const elements = readSges(wr.sgList, queue.maxRecvSge, 'maxRecvSge', queue);
  // From here on nothing of the program runs.
  queue.assertOpen();
  const begun = isShared ? exports.srqBegin(handle, wrId) : exports.rqBegin(handle, wrId);
  if (!begun) throw beginError(card, queue, 'receive', queue.maxRecvWr);
  for (let i = 0; i < elements; i++) {
    const at = SGE_WORDS * i;
    const high = sgeWords[at] as number;
    const low = sgeWords[at + ADDR_LOW] as number;
    const length = sgeWords[at + LENGTH] as number;
    const lkey = sgeWords[at + LKEY] as number;
    if (isShared) exports.srqSge(handle, high, low, length, lkey);
    else exports.rqSge(handle, high, low, length, lkey);
  }
  const refused = isShared ? exports.srqCommit(handle) : exports.rqCommit(handle);
  if (refused !== 0) throw commitError(queue, 'RECV', refused, sumOfSges(elements));
}

function checkWrId(wrId: number | undefined): number {
  if (wrId === undefined) return 0;
  if (!Number.isSafeInteger(wrId)) throw wrongType('wrId', wrId, 'an integer of magnitude below 2^53');
  return wrId;
}

type SgList = Sge | readonly Sge[] | undefined;

/** Reads the elements of a list into `sgeWords`. @returns their number @throws TypeError, RangeError */
function readSges(sgList: SgList, max: number, limit: string, queue: RecvQueue): number {
  if (sgList === undefined) return 0;
  if (typeof sgList !== 'object' || sgList === null)
    throw wrongType('sgList', sgList, 'a scatter/gather element or an array of them');
  const list = Array.isArray(sgList) ? (sgList as readonly Sge[]) : undefined;
  const elements = list === undefined ? 1 : list.length;
  if (elements > max)
    throw outOfRange(`sgList has ${elements} elements, must have at most ${limit} ${max} of ${queue}`);
  for (let i = 0; i < elements; i++) {
    const sge = (list === undefined ? sgList : list[i]) as Sge | null | undefined;
    if (sge === undefined || sge === null) throw sgeError(sge, i);
    const { addr, length, lkey } = sge;
    const isAddress = addr >>> 0 === addr || (Number.isSafeInteger(addr) && addr >= 0);
    if (!isAddress || length >>> 0 !== length || lkey >>> 0 !== lkey) throw sgeError({ addr, length, lkey }, i);
    const at = SGE_WORDS * i;
    sgeWords[at] = addr / REGION_SPAN;
    sgeWords[at + ADDR_LOW] = addr;
    sgeWords[at + LENGTH] = length;
    sgeWords[at + LKEY] = lkey;
  }
  return elements;
}

/** Returns the total number of bytes of the elements in `sgeWords`. */
function sumOfSges(elements: number): number {
  let total = 0;
  for (let i = 0; i < elements; i++) total += sgeWords[SGE_WORDS * i + LENGTH] as number;
  return total;
}

function sgeError(sge: Sge | null | undefined, index: number): Error {
  try {
    if (sge) checkInteger(`sgList[${index}].addr`, sge.addr, 0, Number.MAX_SAFE_INTEGER);
    if (sge) for (const part of ['length', 'lkey'] as const) checkU32(`sgList[${index}].${part}`, sge[part]);
  } catch (error) {
    return error as Error;
  }
  return invalidType(`sgList[${index}] is ${show(sge)}, must have addr, length and lkey`);
}

function checkInline(
  card: Card,
  queues: WorkQueues,
  opcode: string,
  fields: number,
  elements: number,
  total: number,
): void {
  if ((fields & GATHER) === 0) throw invalidValue(`${opcode} writes to sgList, which therefore cannot be inline`);
  if (total > queues.maxInlineData)
    throw outOfRange(
      `inline data has ${total} bytes, must have at most maxInlineData ${queues.maxInlineData} of ${queues}`,
    );
  for (let i = 0; i < elements; i++) {
    const at = SGE_WORDS * i;
    const high = sgeWords[at] as number;
    const low = sgeWords[at + ADDR_LOW] as number;
    const end = low + (sgeWords[at + LENGTH] as number);
    // the table of regions knows where others end
    if (high === 0 && end > card.bytes.length)
      throw outOfRange(`sgList[${i}] ends at ${end}, must end within the card's memory of ${card.bytes.length} bytes`);
  }
}

/** @throws TypeError unless it is an address handle */
function checkAh(ah: unknown, opcode: string, queues: WorkQueues): AddressHandle {
  if (AddressHandle.isOne(ah)) return ah;
  throw wrongType('ah', ah, `an address handle of pd.createAh for ${opcode} on ${queues}`);
}

function checkQpn(remoteQpn: unknown): number {
  const qpn = checkU32('remoteQpn', remoteQpn);
  if (qpn > 0xffffff) throw outOfRange(`remoteQpn is ${qpn}, must have 24 bits (0xffffff for a multicast group)`);
  return qpn;
}

/** Checks the destination and length of a datagram, which is one packet. @returns the destination's handle */
function datagramHandle(
  ah: AddressHandle,
  remoteQpn: number,
  queues: WorkQueues,
  opcode: string,
  total: number,
): number {
  const handle = AddressHandle.handleFor(ah, queues, remoteQpn);
  if (total > ah.maxMessage)
    throw new VerbsError(
      'EMSGSIZE',
      `${opcode} has ${total} bytes, a datagram to ${ah.label} must have at most ${ah.maxMessage}`,
    );
  return handle;
}

function checkOperand(name: string, value: unknown): bigint {
  if (typeof value !== 'bigint') throw wrongType(name, value, 'a bigint');
  if (value < -0x8000000000000000n || value > 0xffffffffffffffffn)
    throw outOfRange(`${name} is ${value}n, must have 64 bits`);
  return value;
}

/**
 * Copies inline data.
 * @param to 0: the card has no room for it, and refuses the request
 * @throws RangeError: the request is not committed then
 */
function copyInline(
  { bytes: memory, regions }: Card,
  to: number,
  bytes: Uint8Array | undefined,
  total: number,
  elements: number,
): void {
  if (to === 0) return;
  if (bytes !== undefined) {
    // Another thread may make shared memory longer at any time.
    if (bufferOf(bytes) instanceof SharedArrayBuffer)
      for (let i = 0; i < total; i++) memory[to + i] = bytes[i] as number;
    else memory.set(bytes, to);
    return;
  }
  let end = to;
  for (let i = 0; i < elements; i++) {
    const at = SGE_WORDS * i;
    const high = sgeWords[at] as number;
    const low = sgeWords[at + ADDR_LOW] as number;
    const length = sgeWords[at + LENGTH] as number;
    if (high === 0) memory.copyWithin(end, low, low + length);
    else if (regions.imports.fetch(high, low, end, length) === 0)
      throw outOfRange(`sgList[${i}] has ${length} bytes at ${high * REGION_SPAN + low}, where no region is`);
    end += length;
  }
}

/** Splits a 64-bit value to `operandWords`, low word first. */
function splitOperand(value: number | bigint): void {
  if (typeof value === 'bigint') {
    operand[0] = value;
  } else {
    operandWords[0] = value;
    operandWords[1] = value / 0x100000000;
  }
}

function beginError(card: Card, queue: RecvQueue, kind: 'send' | 'receive', depth: number): VerbsError {
  const errno = card.exports.lastErrno();
  if (errno === Errno.ENOMEM) {
    const limit = kind === 'send' ? 'maxSendWr' : 'maxRecvWr';
    return new VerbsError('ENOMEM', `${kind} queue of ${queue} is full: ${limit} is ${depth}`);
  }
  const rule = kind === 'send' ? 'sends need RTS, SQD, SQE or ERR' : 'receives need any state except RESET';
  return new VerbsError('EINVAL', `${queue} is in state ${queue.state}, ${rule}`);
}

function commitError(queue: RecvQueue, opcode: string, errno: number, total: number): VerbsError {
  switch (errno) {
    case Errno.EMSGSIZE:
      return new VerbsError(
        'EMSGSIZE',
        `${opcode} has ${total} bytes, a message must have at most ${LIMITS.maxMessage}`,
      );
    case Errno.EOPNOTSUPP:
      return new VerbsError('EOPNOTSUPP', `${queue} does not support ${opcode}`);
    default:
      return new VerbsError('EINVAL', `${opcode} of ${total} bytes on ${queue} was refused (${nameOf(Errno, errno)})`);
  }
}
