/**
 * The commands and events that programs and the kernel exchange through /dev/infiniband/rdma_cm, as structures of
 * linux/rdma_user_cm.h (ABI version 4) and rdma/ib_user_verbs.h. Numbers are little-endian, as on all processors of
 * this package; addresses and ports are in network order.
 */
import { ipBytes, ipText } from '../../base/address.js';
import { gidBytes } from '../../base/gid.js';
import { mtuCode } from '../../cm/core/derive.js';
import type { CmAddress } from '../../cm/core/events.js';

export const Command = {
  CREATE_ID: 0,
  DESTROY_ID: 1,
  BIND_IP: 2,
  RESOLVE_IP: 3,
  RESOLVE_ROUTE: 4,
  QUERY_ROUTE: 5,
  CONNECT: 6,
  LISTEN: 7,
  ACCEPT: 8,
  REJECT: 9,
  DISCONNECT: 10,
  INIT_QP_ATTR: 11,
  SET_OPTION: 14,
  NOTIFY: 15,
  JOIN_IP_MCAST: 16,
  LEAVE_MCAST: 17,
  MIGRATE_ID: 18,
  BIND: 20,
  RESOLVE_ADDR: 21,
  JOIN_MCAST: 22,
} as const;

/** Numbers of events (enum rdma_cm_event_type). */
export const EventNumber = {
  ADDR_RESOLVED: 0,
  ADDR_ERROR: 1,
  ROUTE_RESOLVED: 2,
  ROUTE_ERROR: 3,
  CONNECT_REQUEST: 4,
  CONNECT_RESPONSE: 5,
  CONNECT_ERROR: 6,
  UNREACHABLE: 7,
  REJECTED: 8,
  ESTABLISHED: 9,
  DISCONNECTED: 10,
  DEVICE_REMOVAL: 11,
  MULTICAST_JOIN: 12,
  MULTICAST_ERROR: 13,
  TIMEWAIT_EXIT: 15,
} as const;

export const PortSpace = { TCP: 0x0106, UDP: 0x0111 } as const;
/** enum ibv_qp_type. */
export const QP_TYPE_UC = 3;
/** enum ibv_qp_state. */
export const QpState = { INIT: 1, RTR: 2, RTS: 3 } as const;

/** Levels and names of options (RDMA_OPTION_ID_*). */
export const OPTION_LEVEL_ID = 0;
export const Option = { TOS: 0, REUSEADDR: 1, AFONLY: 2, ACK_TIMEOUT: 3 } as const;

/** Bytes of structures. */
export const Size = {
  HEADER: 8,
  SET_OPTION: 24,
  EVENT: 336,
  QP_ATTR: 144,
  ROUTE: 208,
} as const;

const AF_INET = 2;
const AF_INET6 = 10;
const PORT_NUM = 1;

/** Returns the address of a sockaddr_in or sockaddr_in6; undefined if it is neither. */
export function readAddress(view: DataView, at: number): CmAddress | undefined {
  const family = view.getUint16(at, true);
  if (family !== AF_INET && family !== AF_INET6) return undefined;
  const [from, bytes] = family === AF_INET ? [4, 4] : [8, 16];
  const ip = new Uint8Array(view.buffer, view.byteOffset + at + from, bytes);
  return { address: ipText(ip), port: view.getUint16(at + 2) };
}

function writeAddress(view: DataView, at: number, { address, port }: CmAddress): void {
  const ip = ipBytes(address);
  const isIpv6 = ip.length === 16;
  view.setUint16(at, isIpv6 ? AF_INET6 : AF_INET, true);
  view.setUint16(at + 2, port);
  put(view, at + (isIpv6 ? 8 : 4), ip);
}

function put(view: DataView, at: number, bytes: Uint8Array): void {
  new Uint8Array(view.buffer, view.byteOffset + at, bytes.length).set(bytes);
}

/** Parameters of a connection (struct rdma_ucm_conn_param). */
export interface UserConnParam {
  readonly qpNum: number;
  readonly qkey: number;
  readonly privateData: Uint8Array;
  readonly srq: boolean;
  readonly responderResources: number;
  readonly initiatorDepth: number;
  readonly retryCnt: number;
  readonly rnrRetry: number;
}

/** Offsets of the private data of a connection, and of datagrams, and of its length. */
const CONN_DATA = { at: 8, lengthAt: 264 } as const;
const UD_DATA = { at: 40, lengthAt: 296 } as const;
const MAX_DATA = 255;

export function readConnParam(view: DataView, at: number): UserConnParam {
  const length = view.getUint8(at + CONN_DATA.lengthAt);
  const from = view.byteOffset + at + CONN_DATA.at;
  return {
    qpNum: view.getUint32(at, true),
    qkey: view.getUint32(at + 4, true),
    privateData: new Uint8Array(view.buffer, from, length),
    srq: view.getUint8(at + 265) !== 0,
    responderResources: view.getUint8(at + 266),
    initiatorDepth: view.getUint8(at + 267),
    retryCnt: Math.min(7, view.getUint8(at + 269)),
    rnrRetry: Math.min(7, view.getUint8(at + 270)),
  };
}

/** The way to a peer, as an address handle has it (struct ib_uverbs_ah_attr). */
export interface UserAddress {
  /** IP address of the peer, as text. */
  readonly destination: string;
  /** Index of the source in the program's GID table. */
  readonly sgidIndex: number;
  readonly hopLimit: number;
  readonly trafficClass: number;
  readonly flowLabel: number;
  readonly sl: number;
}

function writeAhAttr(view: DataView, at: number, address: UserAddress): void {
  put(view, at, gidBytes(address.destination));
  view.setUint32(at + 16, address.flowLabel, true);
  view.setUint8(at + 20, address.sgidIndex);
  view.setUint8(at + 21, address.hopLimit);
  view.setUint8(at + 22, address.trafficClass);
  view.setUint8(at + 26, address.sl);
  view.setUint8(at + 29, 1);
  view.setUint8(at + 30, PORT_NUM);
}

/** An event of rdma_cm (struct rdma_cm_event). */
export interface UserEvent {
  readonly type: keyof typeof EventNumber;
  /** The program's number of the id that it is for: of a request, of the listener. */
  readonly uid: bigint;
  /** Number of the id that it is about. */
  readonly id: number;
  /** 0, -errno, or the reason of a REJ. */
  readonly status: number;
  readonly privateData: Uint8Array;
  /** Of a request or a reply for a connection. */
  readonly connection?: {
    readonly qpNum: number;
    readonly responderResources: number;
    readonly initiatorDepth: number;
    readonly retryCnt?: number;
    readonly rnrRetry: number;
    readonly srq: boolean;
  };
  /** Whether the event is of a datagram service. */
  readonly isDatagram: boolean;
  /** Of a datagram service or a group. */
  readonly datagram?: { readonly qpNum: number; readonly qkey: number; readonly address: UserAddress };
}

/** Offset of the parameters in an event. */
const PARAM = 20;

/** Returns an event (struct rdma_ucm_event_resp). */
export function eventBytes(event: UserEvent): Uint8Array {
  const bytes = new Uint8Array(Size.EVENT);
  const view = new DataView(bytes.buffer);
  view.setBigUint64(0, event.uid, true);
  view.setUint32(8, event.id, true);
  view.setUint32(12, EventNumber[event.type], true);
  view.setInt32(16, event.status, true);
  const { at, lengthAt } = event.isDatagram ? UD_DATA : CONN_DATA;
  const data = event.privateData.subarray(0, MAX_DATA);
  bytes.set(data, PARAM + at);
  bytes[PARAM + lengthAt] = data.length;
  const { connection, datagram } = event;
  if (connection !== undefined) {
    view.setUint32(PARAM, connection.qpNum, true);
    view.setUint8(PARAM + 265, connection.srq ? 1 : 0);
    view.setUint8(PARAM + 266, connection.responderResources);
    view.setUint8(PARAM + 267, connection.initiatorDepth);
    view.setUint8(PARAM + 269, connection.retryCnt ?? 0);
    view.setUint8(PARAM + 270, connection.rnrRetry);
  }
  if (datagram !== undefined) {
    view.setUint32(PARAM, datagram.qpNum, true);
    view.setUint32(PARAM + 4, datagram.qkey, true);
    writeAhAttr(view, PARAM + 8, datagram.address);
  }
  return bytes;
}

/** Addresses and path of an id. */
export interface UserRoute {
  /** The device's, as ibv_get_device_guid has it: 8 bytes. */
  readonly guid: Uint8Array;
  readonly local: CmAddress | undefined;
  readonly remote: CmAddress | undefined;
  /** Whether the id is on the device: its address is known. */
  readonly isOnDevice: boolean;
  /** Path MTU in bytes, once the peer is resolved. */
  readonly pathMtu: number | undefined;
  readonly hopLimit: number;
}

/** Returns the answer to QUERY_ROUTE (struct rdma_ucm_query_route_resp). */
export function routeBytes(route: UserRoute): Uint8Array {
  const bytes = new Uint8Array(Size.ROUTE);
  const view = new DataView(bytes.buffer);
  if (route.local !== undefined) writeAddress(view, 136, route.local);
  if (route.remote !== undefined) writeAddress(view, 164, route.remote);
  if (!route.isOnDevice) return bytes;
  bytes.set(route.guid, 0);
  view.setUint8(196, PORT_NUM);
  const { local, remote, pathMtu } = route;
  if (local === undefined || remote === undefined || pathMtu === undefined) return bytes;
  view.setUint32(192, 1, true);
  put(view, 8, gidBytes(remote.address));
  put(view, 24, gidBytes(local.address));
  view.setUint32(8 + 48, mtuCode(pathMtu), true);
  view.setUint16(8 + 52, 0xffff);
  view.setUint8(8 + 54, route.hopLimit);
  return bytes;
}

/** Bits of enum ibv_qp_attr_mask. */
const Mask = {
  STATE: 1 << 0,
  ACCESS_FLAGS: 1 << 3,
  PKEY_INDEX: 1 << 4,
  PORT: 1 << 5,
  QKEY: 1 << 6,
  AV: 1 << 7,
  PATH_MTU: 1 << 8,
  TIMEOUT: 1 << 9,
  RETRY_CNT: 1 << 10,
  RNR_RETRY: 1 << 11,
  RQ_PSN: 1 << 12,
  MAX_QP_RD_ATOMIC: 1 << 13,
  MIN_RNR_TIMER: 1 << 15,
  SQ_PSN: 1 << 16,
  MAX_DEST_RD_ATOMIC: 1 << 17,
  DEST_QPN: 1 << 20,
} as const;

/** Attributes of a queue pair for one of its states. Attributes that are undefined are not set. */
export interface UserQpAttributes {
  readonly state: number;
  readonly accessFlags?: number;
  readonly qkey?: number;
  readonly pkeyIndex?: number;
  readonly address?: UserAddress;
  readonly pathMtu?: number;
  readonly rqPsn?: number;
  readonly sqPsn?: number;
  readonly destQpNum?: number;
  readonly maxRdAtomic?: number | undefined;
  readonly maxDestRdAtomic?: number | undefined;
  readonly minRnrTimer?: number | undefined;
  readonly timeout?: number | undefined;
  readonly retryCnt?: number | undefined;
  readonly rnrRetry?: number | undefined;
}

/** Returns attributes of a queue pair (struct ib_uverbs_qp_attr). */
export function qpAttributeBytes(attributes: UserQpAttributes): Uint8Array {
  const bytes = new Uint8Array(Size.QP_ATTR);
  const view = new DataView(bytes.buffer);
  let mask: number = Mask.STATE;
  const word = (at: number, bit: number, value: number | undefined) => {
    if (value === undefined) return;
    mask |= bit;
    view.setUint32(at, value, true);
  };
  const byte = (at: number, bit: number, value: number | undefined) => {
    if (value === undefined) return;
    mask |= bit;
    view.setUint8(at, value);
  };
  view.setUint32(4, attributes.state, true);
  word(12, Mask.PATH_MTU, attributes.pathMtu && mtuCode(attributes.pathMtu));
  word(20, Mask.QKEY, attributes.qkey);
  word(24, Mask.RQ_PSN, attributes.rqPsn);
  word(28, Mask.SQ_PSN, attributes.sqPsn);
  word(32, Mask.DEST_QPN, attributes.destQpNum);
  word(36, Mask.ACCESS_FLAGS, attributes.accessFlags);
  if (attributes.address !== undefined) {
    mask |= Mask.AV;
    writeAhAttr(view, 40, attributes.address);
  }
  if (attributes.pkeyIndex !== undefined) {
    mask |= Mask.PKEY_INDEX | Mask.PORT;
    view.setUint16(124, attributes.pkeyIndex, true);
  }
  byte(130, Mask.MAX_QP_RD_ATOMIC, attributes.maxRdAtomic);
  byte(131, Mask.MAX_DEST_RD_ATOMIC, attributes.maxDestRdAtomic);
  byte(132, Mask.MIN_RNR_TIMER, attributes.minRnrTimer);
  view.setUint8(133, PORT_NUM);
  byte(134, Mask.TIMEOUT, attributes.timeout);
  byte(135, Mask.RETRY_CNT, attributes.retryCnt);
  byte(136, Mask.RNR_RETRY, attributes.rnrRetry);
  view.setUint32(0, mask, true);
  return bytes;
}
