/** Messages of the communication manager (IBTA 12.6 to 12.11): the 232 bytes after the MAD header. */
import { nested, octets, uint, uint64, type Values } from './fields.js';

/** The primary or alternate path of a REQ (IBTA 12.6.1). */
const PATH = {
  localLid: uint(0, 16),
  remoteLid: uint(2, 16),
  /** GID of the sender: in RoCE v2 its IP address. */
  localGid: octets(4, 16),
  remoteGid: octets(20, 16),
  flowLabel: uint(36, 20),
  packetRate: uint(39, 6, 2),
  trafficClass: uint(40, 8),
  hopLimit: uint(41, 8),
  sl: uint(42, 4),
  subnetLocal: uint(42, 1, 4),
  /** Encoded time, see times.ts. */
  ackTimeout: uint(43, 5),
};

/** Most messages begin with the communication ids of both ends. */
const IDS = {
  localCommId: uint(0, 32),
  remoteCommId: uint(4, 32),
};

/** Request for communication (IBTA 12.6.5). */
const REQ = {
  localCommId: uint(0, 32),
  vendorId: uint(5, 24),
  serviceId: uint64(8),
  localCaGuid: uint64(16),
  localQkey: uint(28, 32),
  localQpn: uint(32, 24),
  /** READs and atomics that the sender serves at a time. */
  responderResources: uint(35, 8),
  localEecn: uint(36, 24),
  /** READs and atomics that the sender will have outstanding. */
  initiatorDepth: uint(39, 8),
  remoteEecn: uint(40, 24),
  remoteResponseTimeout: uint(43, 5),
  /** See `Transport`. */
  transport: uint(43, 2, 5),
  flowControl: uint(43, 1, 7),
  /** First PSN that the receiver of this message sends. */
  startingPsn: uint(44, 24),
  localResponseTimeout: uint(47, 5),
  retryCnt: uint(47, 3, 5),
  pkey: uint(48, 16),
  /** Code: 1 = 256 bytes to 5 = 4096. */
  pathMtu: uint(50, 4),
  rdcExists: uint(50, 1, 4),
  rnrRetry: uint(50, 3, 5),
  maxCmRetries: uint(51, 4),
  srq: uint(51, 1, 4),
  extendedTransport: uint(51, 3, 5),
  primary: nested(52, PATH),
  alternate: nested(96, PATH),
  privateData: octets(140, 92),
};

/** Message receipt acknowledgment (12.6.6): the reply will take longer. */
const MRA = {
  ...IDS,
  /** See `Subject`. */
  messageMraed: uint(8, 2),
  serviceTimeout: uint(9, 5),
  privateData: octets(10, 222),
};

/** Reject (12.6.7). */
const REJ = {
  ...IDS,
  /** See `Subject`. */
  messageRejected: uint(8, 2),
  infoLength: uint(9, 7),
  /** See reasons.ts. */
  reason: uint(10, 16),
  /** Additional rejection information; `infoLength` bytes are valid. */
  info: octets(12, 72),
  privateData: octets(84, 148),
};

/** Reply to a REQ (12.6.8). */
const REP = {
  ...IDS,
  localQkey: uint(8, 32),
  localQpn: uint(12, 24),
  vendorIdHigh: uint(15, 8),
  localEecn: uint(16, 24),
  vendorIdMiddle: uint(19, 8),
  /** First PSN that the receiver of this message sends. */
  startingPsn: uint(20, 24),
  vendorIdLow: uint(23, 8),
  responderResources: uint(24, 8),
  initiatorDepth: uint(25, 8),
  targetAckDelay: uint(26, 5),
  /** See `Failover`. */
  failoverAccepted: uint(26, 2, 5),
  flowControl: uint(26, 1, 7),
  rnrRetry: uint(27, 3),
  srq: uint(27, 1, 3),
  localCaGuid: uint64(28),
  privateData: octets(36, 196),
};

/** Ready to use (12.6.9). */
const RTU = { ...IDS, privateData: octets(8, 224) };

/** Request for communication release (12.6.10). */
const DREQ = {
  ...IDS,
  /** The receiver's queue pair. */
  remoteQpn: uint(8, 24),
  privateData: octets(12, 220),
};

/** Reply to a DREQ (12.6.11). */
const DREP = { ...IDS, privateData: octets(8, 224) };

/** Load alternate path (12.8.1). Parsed and ignored: path migration is not supported. */
const LAP = {
  ...IDS,
  remoteQpn: uint(12, 24),
  remoteResponseTimeout: uint(15, 5),
  localLid: uint(20, 16),
  remoteLid: uint(22, 16),
  localGid: octets(24, 16),
  remoteGid: octets(40, 16),
  flowLabel: uint(56, 20),
  trafficClass: uint(59, 8),
  hopLimit: uint(60, 8),
  packetRate: uint(61, 6, 2),
  sl: uint(62, 4),
  subnetLocal: uint(62, 1, 4),
  ackTimeout: uint(63, 5),
  privateData: octets(64, 168),
};

/** Alternate path response (12.8.2). */
const APR = {
  ...IDS,
  infoLength: uint(8, 8),
  status: uint(9, 8),
  info: octets(12, 72),
  privateData: octets(84, 148),
};

/** Service id resolution request (12.11.1): asks for the queue pair of a datagram service. */
const SIDR_REQ = {
  requestId: uint(0, 32),
  pkey: uint(4, 16),
  serviceId: uint64(8),
  privateData: octets(16, 216),
};

/** Service id resolution response (12.11.2). */
const SIDR_REP = {
  requestId: uint(0, 32),
  /** See reasons.ts. */
  status: uint(4, 8),
  infoLength: uint(5, 8),
  vendorIdHigh: uint(6, 16),
  qpn: uint(8, 24),
  vendorIdLow: uint(11, 8),
  serviceId: uint64(12),
  qkey: uint(20, 32),
  info: octets(24, 72),
  privateData: octets(96, 136),
};

/** Layout of each message. */
export const LAYOUTS = { REQ, MRA, REJ, REP, RTU, DREQ, DREP, SIDR_REQ, SIDR_REP, LAP, APR };

/** Name of a message. */
export type MessageName = keyof typeof LAYOUTS;

/** Attribute ids in the MAD header (IBTA 16.7.2). */
export const ATTRIBUTE: Readonly<Record<MessageName, number>> = {
  REQ: 0x10,
  MRA: 0x11,
  REJ: 0x12,
  REP: 0x13,
  RTU: 0x14,
  DREQ: 0x15,
  DREP: 0x16,
  SIDR_REQ: 0x17,
  SIDR_REP: 0x18,
  LAP: 0x19,
  APR: 0x1a,
};

/** Fields of a message. */
export type Fields<N extends MessageName> = Values<(typeof LAYOUTS)[N]>;

/** A message: its fields, its name, and its header fields. */
export type Message<N extends MessageName = MessageName> = {
  readonly [K in N]: Fields<K> & {
    readonly name: K;
    /** Transaction id. */
    readonly tid: bigint;
    /** The header's attribute modifier. */
    readonly modifier: number;
  };
}[N];

/** The message that an MRA or REJ refers to. */
export const Subject = { REQ: 0, REP: 1, OTHER: 2 } as const;

/** Transport service type of a REQ. */
export const Transport = { RC: 0, UC: 1, RD: 2, EXTENDED: 3 } as const;

/** The answer of a REP to the alternate path of its REQ (12.6.8). */
export const Failover = { ACCEPTED: 0, NOT_SUPPORTED: 1 } as const;

/** No private data, and no additional rejection information. */
export const NO_DATA: Uint8Array = new Uint8Array(0);

/**
 * Returns the size of a message's private data in bytes, including the rdma_cm header (cmahdr.ts) where there is one.
 */
export function privateDataBytes(name: MessageName): number {
  return LAYOUTS[name].privateData.length;
}
