/**
 * wasm-roce: a software RoCEv2 adapter for Node.js, with RDMA verbs, rdma_cm and connections.
 *
 * Start with `openDevice`. `device.connect` and `device.listen` exchange messages and remote memory without the
 * verbs API. Wrong arguments throw TypeError or RangeError. Calls that the device refuses throw `VerbsError` with
 * a `code`. What the network or the peer refuses is reported as the status of a completion (`Wc`).
 *
 * @packageDocumentation
 */

export { gidAddress, gidText } from './base/gid.js';
export type { WaitOptions } from './base/waiting.js';
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
  type Ece,
  type Established,
  EventChannel,
  RejectReason,
  type RejectReasonName,
  type SidrStatusName,
  UDP_QKEY,
} from './cm/index.js';
export type { DatagramAddress, DatagramMessage, RemoteInfo } from './datagram/inbox.js';
export {
  DatagramSocket,
  type DatagramSocketAddress,
  type DatagramSocketEvents,
  type DatagramSocketOptions,
} from './datagram/socket.js';
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
export type {
  Decision,
  FailureDecision,
  NakDecision,
  RecoveryDecision,
  RetransmitDecision,
  StateDecision,
} from './device/decisions.js';
export type { Mode } from './device/engine.js';
export { type CallDetails, type ErrorCode, type IcmpErrorCode, VerbsError } from './errors.js';
export { type FaultOptions, type FaultRates, MAX_FAULT_RULES } from './link/fault/options.js';
export type { Frames, Ring } from './link/frames.js';
export type {
  CardRoom,
  ErrorSocket,
  HostNames,
  IcmpError,
  Link,
  LinkCounters,
  LinkFeatures,
  LinkInterface,
  Resolved,
  SharedPort,
  SourcePath,
} from './link/link.js';
export { MemoryHub, type MemoryHubOptions } from './link/memory/link.js';
export type { AttachedProgram, XdpFeatures } from './link/xdp/features.js';
export type { XdpOptions } from './link/xdp/link.js';
export type { XdpMode } from './link/xdp/program.js';
export { Device, openDevice } from './opendevice.js';
export type { DeviceConnectOptions } from './protocols/message/connect.js';
export { Connection, type SendOptions } from './protocols/message/connection.js';
export type { Message } from './protocols/message/messages.js';
export type { AtomicOptions, ReadOptions, WriteOptions } from './protocols/message/onesided.js';
export type { ConnectionOptions } from './protocols/message/options.js';
export { type AcceptOptions, ConnectionRequest, type RejectOptions } from './protocols/message/request.js';
export { type ListenOptions, Server, type ServerEvents } from './protocols/message/server.js';
export type { AccessFlags, AccessName } from './verbs/access.js';
export type { GidChoice, GidEntry } from './verbs/address/gid.js';
export { GRH_BYTES, type GrhInfo, readGrh } from './verbs/address/grh.js';
export { MULTICAST_QPN } from './verbs/address/groups.js';
export type { DeviceInfo, PortInfo } from './verbs/address/port.js';
export { type AhAttr, type GlobalRoute, ResolvedAddress } from './verbs/address/resolvedaddress.js';
export type { FaultState } from './verbs/diagnose/control.js';
export { type RemoteDevice, type RemoteFaultOptions, remoteDevices } from './verbs/diagnose/controller.js';
export type { Counters } from './verbs/diagnose/counters.js';
export { explainDrop } from './verbs/diagnose/drops.js';
export { type Explanation, throwIfFailed, WcError } from './verbs/diagnose/explain.js';
export type { DeviceFault, FaultRuleOptions } from './verbs/diagnose/faults.js';
export { type PublishedDevice, publishedDevices } from './verbs/diagnose/publish.js';
export type { DeviceStat, QpStat } from './verbs/diagnose/stat.js';
export { createMemoryHub } from './verbs/hub.js';
export { type HostDevice, type HostDevices, listDevices } from './verbs/list.js';
export { AddressHandle } from './verbs/objects/ah.js';
export type { QpAttributes, QpInfo, QpProgress, QpStateName } from './verbs/objects/attributes.js';
export { Congestion, type CongestionParameters } from './verbs/objects/congestion.js';
export type { Endpoint, QpConnectOptions } from './verbs/objects/connect.js';
export type { Context, SharedMemory } from './verbs/objects/context.js';
export { Cq, type CqEvent, type CqOptions } from './verbs/objects/cq.js';
export type { DeviceBase } from './verbs/objects/devicebase.js';
export type { Domain } from './verbs/objects/domain.js';
export type { AsyncEvent, DeviceEvents, DeviceFatalEvent, PortEvent } from './verbs/objects/events.js';
export { FastMr } from './verbs/objects/fastmr.js';
export type { MemorySource } from './verbs/objects/memorysource.js';
export { Mr, type MrOptions, type RemoteMemory, type ReregOptions } from './verbs/objects/mr.js';
export { Mw } from './verbs/objects/mw.js';
export { Pd } from './verbs/objects/pd.js';
export { Qp, type QpEvent } from './verbs/objects/qp.js';
export type { QpOptions, QuirkName } from './verbs/objects/qpoptions.js';
export { Srq, type SrqAttributes, type SrqEvent, type SrqInfo, type SrqOptions } from './verbs/objects/srq.js';
export type { OpenOptions } from './verbs/open.js';
export { Wc } from './verbs/work/wc.js';
export type {
  Bind,
  BindMw,
  Datagram,
  Flush,
  Gather,
  Immediate,
  Invalidate,
  RecvWr,
  Register,
  Remote,
  Scatter,
  SendCommon,
  SendOpcode,
  SendWr,
  Sge,
  Solicited,
} from './verbs/work/wr.js';
