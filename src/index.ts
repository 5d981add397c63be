/**
 * wasm-roce: RDMA verbs over RoCEv2 for Node, with a network card made of software.
 *
 * `openDevice` is the beginning; `device.connect` and `device.listen` are the short way. Wrong arguments throw TypeError or RangeError, calls that the device refuses throw
 * VerbsError with a `code`, and what the network or the peer refuses comes as the status of a completion.
 */
export {
  type CmAddress,
  CmError,
  type CmEvent,
  type CmEventType,
  CmId,
  type CmIdOptions,
  type CmIdState,
  type ConnectReply,
  type ConnectRequest,
  type ConnParam,
  createCmId,
  type DatagramDestination,
  type DerivedAttributes,
  type Established,
  EventChannel,
  RejectReason,
  type RejectReasonName,
  type SidrStatusName,
  UDP_QKEY,
} from './cm/index.js';
export { Connection, type ConnectionOptions, type SendOptions } from './connection/connection.js';
export { Device, openDevice } from './connection/device.js';
export type { DialOptions } from './connection/dial.js';
export type { Message } from './connection/messages.js';
export type { AtomicOptions, ReadOptions, WriteOptions } from './connection/onesided.js';
export {
  type AcceptOptions,
  ConnectionRequest,
  type ListenOptions,
  type RefuseOptions,
  Server,
} from './connection/server.js';
export {
  Access,
  EventType,
  MwType,
  QpState,
  SendFlag,
  WcFlag,
  WcOpcode,
  WcStatus,
  WrOpcode,
} from './device/codes.js';
export { type ErrorCode, VerbsError } from './errors.js';
export type { FaultOptions, FaultRates } from './link/fault.js';
export type { Link } from './link/link.js';
export { createMemoryHub, MemoryHub } from './link/memory.js';
export type { XdpOptions } from './link/xdp.js';
export type { AccessFlags, AccessName } from './verbs/access.js';
export { AddressHandle, type AhAttr, type GlobalRoute } from './verbs/ah.js';
export type { QpAttributes, QpInfo, QpProgress, QpStateName } from './verbs/attributes.js';
export { Congestion, type CongestionParameters } from './verbs/congestion.js';
export type { ConnectOptions, Endpoint } from './verbs/connect.js';
export type { Counters } from './verbs/counters.js';
export { Cq, type CqOptions } from './verbs/cq.js';
export { explainDrop } from './verbs/drops.js';
export type { AsyncEvent } from './verbs/events.js';
export { type Explanation, throwIfFailed, WcError } from './verbs/explain.js';
export { FastMr } from './verbs/fastmr.js';
export { type GidChoice, type GidEntry, gidAddress, gidText, gidToHex } from './verbs/gid.js';
export { GRH_BYTES, type GrhInfo, readGrh } from './verbs/grh.js';
export { MULTICAST_QPN } from './verbs/groups.js';
export { incRkey } from './verbs/keys.js';
export { type HostDevice, type HostDevices, listDevices } from './verbs/list.js';
export { Mr, type MrOptions, type RemoteMemory, type ReregOptions } from './verbs/mr.js';
export { Mw } from './verbs/mw.js';
export type { OpenOptions } from './verbs/open.js';
export { Pd } from './verbs/pd.js';
export type { DeviceInfo, PortInfo } from './verbs/port.js';
export { type PublishedDevice, publishedDevices, runtimeFolder } from './verbs/publish.js';
export { Qp } from './verbs/qp.js';
export type { QpOptions } from './verbs/qpoptions.js';
export type { QuirkName } from './verbs/quirks.js';
export { Srq, type SrqAttributes, type SrqInfo, type SrqOptions } from './verbs/srq.js';
export type { DeviceStat, QpStat } from './verbs/stat.js';
export { Ah } from './verbs/udah.js';
export type { WaitOptions } from './verbs/waiting.js';
export { Wc } from './verbs/wc.js';
export type { BindMw, RecvWr, SendOpcode, SendWr, Sge } from './verbs/wr.js';
