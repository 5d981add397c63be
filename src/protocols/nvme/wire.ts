/**
 * NVMe over RDMA on the wire: private data of the connection manager, commands and responses. All fields are
 * little-endian.
 *
 * Source: NVM Express base specification and RDMA transport specification.
 */
import { VerbsError } from '../../index.js';
import { hasAddresses } from '../../transport/peermemory.js';
import { CommandError, Status } from './status.js';

/** Bytes of a command (submission queue entry) and of a response (completion queue entry). */
export const COMMAND_BYTES = 64;
export const RESPONSE_BYTES = 16;
/** Bytes of the data of Connect. */
export const CONNECT_BYTES = 1024;
/** Port of rdma_cm that the specification gives to NVMe. */
export const NVME_PORT = 4420;
/** The subsystem that every target has, whose log names the others. */
export const DISCOVERY_NQN = 'nqn.2014-08.org.nvmexpress.discovery';
/** Longest NVMe qualified name in bytes. */
export const MAX_NQN_BYTES = 223;
/** Namespace id that stands for all namespaces. */
export const ALL_NAMESPACES = 0xffffffff;

export enum AdminOpcode {
  GET_LOG_PAGE = 0x02,
  IDENTIFY = 0x06,
  ABORT = 0x08,
  SET_FEATURES = 0x09,
  GET_FEATURES = 0x0a,
  ASYNC_EVENT_REQUEST = 0x0c,
  KEEP_ALIVE = 0x18,
}

export enum NvmOpcode {
  FLUSH = 0x00,
  WRITE = 0x01,
  READ = 0x02,
  COMPARE = 0x05,
  WRITE_ZEROES = 0x08,
  DATASET_MANAGEMENT = 0x09,
}

/** Opcode of the commands of NVMe over Fabrics, on any queue. */
export const FABRICS_OPCODE = 0x7f;

export enum FabricsType {
  PROPERTY_SET = 0x00,
  CONNECT = 0x01,
  PROPERTY_GET = 0x04,
}

/** Properties of a controller by their offset. */
export enum Property {
  CAPABILITIES = 0x00,
  VERSION = 0x08,
  CONFIGURATION = 0x14,
  STATUS = 0x1c,
}

/** Fields of the property CONFIGURATION. */
export const ENABLE = 1;
export const SHUTDOWN_MASK = 0xc000;
export const SHUTDOWN_NORMAL = 0x4000;
/** Sizes of queue entries (2^6, 2^4 bytes), memory pages of 4 KiB, round robin, NVM command set; without EN and SHN. */
export const CONFIGURATION = 0x0046_0000;
/** Fields of the property STATUS. */
export const READY = 1;
export const FATAL = 2;
export const SHUTDOWN_COMPLETE = 8;

export enum Feature {
  VOLATILE_WRITE_CACHE = 0x06,
  QUEUE_COUNT = 0x07,
  ASYNC_EVENTS = 0x0b,
  KEEP_ALIVE_TIMER = 0x0f,
  HOST_ID = 0x81,
}

export enum LogPage {
  ERRORS = 0x01,
  HEALTH = 0x02,
  FIRMWARE = 0x03,
  CHANGED_NAMESPACES = 0x04,
  DISCOVERY = 0x70,
}

/** Bit of the feature ASYNC_EVENTS, and of OAES: namespaces that come and go are reported. */
export const NAMESPACE_NOTICES = 1 << 8;
/** Result of an Async Event Request: a notice (2) that the attribute of a namespace changed (0), see its log page. */
export const NAMESPACES_CHANGED = (LogPage.CHANGED_NAMESPACES << 16) | 2;
/** Bit of CDW10 of Get Log Page: the event of the log is not done with. */
export const RETAIN_EVENT = 1 << 15;

/** Structures of Identify (CNS). */
export enum Cns {
  NAMESPACE = 0,
  CONTROLLER = 1,
  ACTIVE_NAMESPACES = 2,
  DESCRIPTORS = 3,
  CONTROLLER_OF_COMMAND_SET = 6,
}

/** Bytes of the structures of Identify. */
export const IDENTIFY_BYTES = 4096;
/** Bit of CDW12 of Read and Write: what is read or written is durable before the response (FUA). */
export const FORCE_UNIT_ACCESS = 2 ** 30;
/** Bit of CDW11 of Dataset Management: the blocks need not be kept. */
export const DEALLOCATE = 4;
/** Bytes of a range of Dataset Management. */
export const RANGE_BYTES = 16;
/** A host connects with it to get a new controller. */
export const ANY_CONTROLLER = 0xffff;
/** Entries of an admin queue. */
export const ADMIN_ENTRIES = 32;

/** An error of a peer that does not keep to the protocol. */
export const broken = (why: string): VerbsError =>
  new VerbsError('EIO', `the peer does not keep to the protocol of NVMe over RDMA: ${why}`);

// ---- connection manager ----

/** Reasons of a target to reject a connection request (RDMA transport specification, "Status codes"). */
export enum RejectStatus {
  PRIVATE_DATA_LENGTH = 1,
  RECORD_FORMAT = 2,
  QUEUE_ID = 3,
  HOST_SEND_QUEUE_SIZE = 4,
  NO_RESOURCES = 6,
}

/** Private data of a connection request. */
export interface ConnectRequestData {
  /** 0 is the admin queue. */
  readonly qid: number;
  /** Sends that the host has outstanding at most, less 1. */
  readonly hostSendQueueSize: number;
}

const RECORD_FORMAT = 0;
const REPLY_BYTES = 32;
const MIN_REQUEST_BYTES = 32;

/** @returns the request, or why it must be rejected */
export function decodeConnectRequest(data: Uint8Array): ConnectRequestData | RejectStatus {
  if (data.length < MIN_REQUEST_BYTES) return RejectStatus.PRIVATE_DATA_LENGTH;
  const view = Buffer.from(data.buffer, data.byteOffset, data.length);
  if (view.readUInt16LE(0) !== RECORD_FORMAT) return RejectStatus.RECORD_FORMAT;
  return { qid: view.readUInt16LE(2), hostSendQueueSize: view.readUInt16LE(6) };
}

/** @param receives that the host posts for responses @param cntlid of the controller; 0 for the admin queue */
export function encodeConnectRequest(qid: number, receives: number, cntlid: number): Uint8Array {
  const data = Buffer.alloc(MIN_REQUEST_BYTES);
  data.writeUInt16LE(RECORD_FORMAT, 0);
  data.writeUInt16LE(qid, 2);
  data.writeUInt16LE(receives, 4);
  data.writeUInt16LE(receives - 1, 6);
  data.writeUInt16LE(cntlid, 8);
  return data;
}

/** @returns the reason of a target's rejection; undefined if the data has none */
export function decodeReject(data: Uint8Array): RejectStatus | undefined {
  const status = data.length < 4 ? 0 : Buffer.from(data.buffer, data.byteOffset, data.length).readUInt16LE(2);
  return status in RejectStatus ? status : undefined;
}

/** @param receives that the target has posted */
export function encodeConnectReply(receives: number): Uint8Array {
  const data = Buffer.alloc(REPLY_BYTES);
  data.writeUInt16LE(RECORD_FORMAT, 0);
  data.writeUInt16LE(receives, 2);
  return data;
}

export function encodeReject(status: RejectStatus): Uint8Array {
  const data = Buffer.alloc(4);
  data.writeUInt16LE(RECORD_FORMAT, 0);
  data.writeUInt16LE(status, 2);
  return data;
}

// ---- commands ----

/** The place of a command's data (SGL descriptor 1). */
export interface DataDescriptor {
  /** `host`: memory of the host, by address and key. `capsule`: behind the command, from `address` on. */
  readonly place: 'host' | 'capsule';
  readonly address: bigint;
  /** Bytes; 0 = no data. */
  readonly length: number;
  readonly rkey: number;
  /** The response is to invalidate the key. */
  readonly invalidates: boolean;
}

/** Data in memory of the host that the target may READ or WRITE. */
export const inMemory = (address: bigint, rkey: number, length: number, invalidates = false): DataDescriptor => ({
  place: 'host',
  address,
  length,
  rkey,
  invalidates,
});

/** Data behind the command. */
export const inCapsule = (address: bigint, length: number): DataDescriptor => ({
  place: 'capsule',
  address,
  length,
  rkey: 0,
  invalidates: false,
});

/** PSDT: the data is described by an SGL. The other bits are for fused commands. */
const FLAGS_OF_SGL = 0x40;
const [KEYED, KEYED_INVALIDATE, IN_CAPSULE] = [0x40, 0x4f, 0x01];
const KEYED_TYPE = 4;
const BLOCK_TYPE = 0;

/** Bytes of a property by ATTRIB (Fabrics Property Get and Property Set). */
const PROPERTY_BYTES: readonly number[] = [4, 8];

/** A command: 64 bytes that the caller owns. */
export class Command {
  readonly #bytes: Buffer;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get opcode(): number {
    return this.#bytes.readUInt8(0);
  }

  /** Echoed in the response, all 16 bits. */
  get cid(): number {
    return this.#bytes.readUInt16LE(2);
  }

  /** Type of a Fabrics command. */
  get fabricsType(): number {
    return this.#bytes.readUInt8(4);
  }

  get nsid(): number {
    return this.#bytes.readUInt32LE(4);
  }

  /** Of Connect. */
  get connect(): { recordFormat: number; qid: number; sqSize: number; keepAlive: number } {
    const { RECFMT, QID, SQSIZE } = CONNECT_FIELD;
    return {
      recordFormat: this.u16(RECFMT),
      qid: this.u16(QID),
      sqSize: this.u16(SQSIZE),
      keepAlive: this.dword(12),
    };
  }

  /** Of Property Get and Property Set: bytes (undefined: a reserved size), offset and value of the property. */
  get property(): { bytes: number | undefined; offset: number; value: bigint } {
    return { bytes: PROPERTY_BYTES[this.u8(40) & 7], offset: this.dword(11), value: this.u64(48) };
  }

  /** Of Identify: the structure, and the command set. */
  get structure(): { cns: number; commandSet: number } {
    return { cns: this.dword(10) & 0xff, commandSet: this.dword(11) >>> 24 };
  }

  /** Of Get Log Page: its bytes from an offset on, and whether the event that it tells of is not done with. */
  get log(): { page: number; isRetained: boolean; offset: bigint; bytes: number } {
    const word = this.dword(10);
    const dwords = (word >>> 16) + (this.dword(11) & 0xffff) * 0x10000 + 1;
    return { page: word & 0xff, isRetained: (word & RETAIN_EVENT) !== 0, offset: this.u64(48), bytes: 4 * dwords };
  }

  /** Of Set Features and Get Features. */
  get feature(): { id: number; value: number } {
    return { id: this.dword(10) & 0xff, value: this.dword(11) };
  }

  /** First block of a command that names blocks (SLBA). */
  get firstBlock(): bigint {
    return this.u64(40);
  }

  /** Number of these blocks (NLB, less 1). */
  get blockCount(): number {
    return this.u16(48) + 1;
  }

  /** Whether what these blocks get is durable before the response (FUA). */
  get isForced(): boolean {
    return (this.dword(12) & FORCE_UNIT_ACCESS) !== 0;
  }

  /** Of Dataset Management: the number of ranges, and whether their blocks need not be kept. */
  get dataset(): { ranges: number; isDeallocation: boolean } {
    return { ranges: (this.dword(10) & 0xff) + 1, isDeallocation: (this.dword(11) & DEALLOCATE) !== 0 };
  }

  u8(offset: number): number {
    return this.#bytes.readUInt8(offset);
  }

  u16(offset: number): number {
    return this.#bytes.readUInt16LE(offset);
  }

  u64(offset: number): bigint {
    return this.#bytes.readBigUInt64LE(offset);
  }

  /** Command dword 10 to 15. */
  dword(number: number): number {
    return this.#bytes.readUInt32LE(4 * number);
  }

  /** @throws CommandError for flags or a descriptor that the transport does not have, or memory without addresses */
  get data(): DataDescriptor {
    const bytes = this.#bytes;
    if (bytes.readUInt8(1) !== FLAGS_OF_SGL) throw new CommandError(Status.INVALID_FIELD);
    const type = bytes.readUInt8(39);
    const address = bytes.readBigUInt64LE(24);
    if (type === KEYED || type === KEYED_INVALIDATE) {
      const length = bytes.readUIntLE(32, 3);
      if (!hasAddresses(address, length)) throw new CommandError(Status.INVALID_FIELD);
      return inMemory(address, bytes.readUInt32LE(35), length, type === KEYED_INVALIDATE && length > 0);
    }
    if (type === IN_CAPSULE) return inCapsule(address, bytes.readUInt32LE(32));
    const isKnown = type >> 4 === KEYED_TYPE || type >> 4 === BLOCK_TYPE;
    throw new CommandError(isKnown ? Status.INVALID_FIELD : Status.SGL_DESCRIPTOR_TYPE_INVALID);
  }
}

/** The fields of a command; those that are not given are 0. */
export interface CommandFields {
  readonly opcode: number;
  readonly nsid?: number;
  /** Type of a Fabrics command. */
  readonly fabricsType?: number;
  /** Command dwords 10 to 15. */
  readonly dwords?: readonly number[];
  readonly data?: DataDescriptor;
}

/** @returns 64 bytes */
export function encodeCommand(
  { opcode, nsid = 0, fabricsType, dwords = [], data }: CommandFields,
  cid: number,
): Buffer {
  const bytes = Buffer.alloc(COMMAND_BYTES);
  bytes[0] = opcode;
  bytes[1] = FLAGS_OF_SGL;
  bytes.writeUInt16LE(cid, 2);
  bytes.writeUInt32LE(fabricsType ?? nsid, 4);
  for (const [i, dword] of dwords.entries()) bytes.writeUInt32LE(dword >>> 0, 40 + 4 * i);
  bytes.writeBigUInt64LE(data?.address ?? 0n, 24);
  if (data?.place === 'capsule') bytes.writeUInt32LE(data.length, 32);
  else if (data !== undefined) {
    bytes.writeUIntLE(data.length, 32, 3);
    bytes.writeUInt32LE(data.rkey, 35);
  }
  bytes[39] = data?.place === 'capsule' ? IN_CAPSULE : data?.invalidates ? KEYED_INVALIDATE : KEYED;
  return bytes;
}

/** The fields of a response. */
export interface Response {
  readonly cid: number;
  readonly status: Status;
  readonly result: bigint;
  readonly sqid: number;
  readonly sqHead: number;
}

const DO_NOT_RETRY = 0x8000;

export function encodeResponse({ cid, status, result, sqid, sqHead }: Response): Uint8Array {
  const bytes = Buffer.alloc(RESPONSE_BYTES);
  bytes.writeBigUInt64LE(result, 0);
  bytes.writeUInt16LE(sqHead, 8);
  bytes.writeUInt16LE(sqid, 10);
  bytes.writeUInt16LE(cid, 12);
  bytes.writeUInt16LE((status << 1) | (status === Status.SUCCESS ? 0 : DO_NOT_RETRY), 14);
  return bytes;
}

export function decodeResponse(bytes: Buffer): Response {
  return {
    result: bytes.readBigUInt64LE(0),
    sqHead: bytes.readUInt16LE(8),
    sqid: bytes.readUInt16LE(10),
    cid: bytes.readUInt16LE(12),
    status: (bytes.readUInt16LE(14) >> 1) & 0x7ff,
  };
}

/** The data of Connect. */
export interface ConnectData {
  readonly hostId: Buffer;
  /** 0xffff asks for a new controller. */
  readonly cntlid: number;
  readonly subsystemNqn: string;
  readonly hostNqn: string;
}

/** Offsets of fields of the command Connect, which a refusal names. */
export const CONNECT_FIELD = { RECFMT: 40, QID: 42, SQSIZE: 44 } as const;

/** Offsets of the fields of the data of Connect, which a refusal names. */
export const CONNECT_OFFSET = { cntlid: 16, subsystemNqn: 256, hostNqn: 512 } as const;

export function decodeConnectData(data: Buffer): ConnectData {
  return {
    hostId: Buffer.from(data.subarray(0, 16)),
    cntlid: data.readUInt16LE(CONNECT_OFFSET.cntlid),
    subsystemNqn: textAt(data, CONNECT_OFFSET.subsystemNqn),
    hostNqn: textAt(data, CONNECT_OFFSET.hostNqn),
  };
}

export function encodeConnectData({ hostId, cntlid, subsystemNqn, hostNqn }: ConnectData): Buffer {
  const data = Buffer.alloc(CONNECT_BYTES);
  data.set(hostId.subarray(0, 16));
  data.writeUInt16LE(cntlid, CONNECT_OFFSET.cntlid);
  data.write(subsystemNqn, CONNECT_OFFSET.subsystemNqn, 'utf8');
  data.write(hostNqn, CONNECT_OFFSET.hostNqn, 'utf8');
  return data;
}

/** Returns a text that ends with a zero byte within 224 bytes, or '' if it does not. */
function textAt(data: Buffer, offset: number): string {
  const field = data.subarray(offset, offset + MAX_NQN_BYTES + 1);
  const end = field.indexOf(0);
  return end < 0 ? '' : field.toString('utf8', 0, end);
}
