/** Queue pairs. */

import type { EventEmitter } from 'node:events';
import { checkBoolean, checkInteger, checkOptions, checkU32 } from '../../base/options.js';
import { checkWait, type WaitOptions } from '../../base/waiting.js';
import { Errno, GSI, LIMITS, nameOf, PeerSign, QpAttr, QpState, QpType } from '../../device/codes.js';
import { qpnText } from '../../device/decode.js';
import { VerbsError } from '../../errors.js';
import { checkPathMtu, type ResolvedAddress } from '../address/resolvedaddress.js';
import { sourcePortOf } from '../address/sourceport.js';
import { type Counters, readCounter, readCounters } from '../diagnose/counters.js';
import type { Description } from '../diagnose/describe.js';
import type { FailureContext } from '../diagnose/explain.js';
import { decisionsOf, recentPackets } from '../diagnose/history.js';
import { postRecv, postSend, QpQueues } from '../work/post.js';
import type { BindMw, RecvWr, SendWr } from '../work/wr.js';
import { AddressHandle, resolveAhAttr } from './ah.js';
import {
  checkAttributeNames,
  modifyError,
  type QpAttributes,
  type QpInfo,
  type QpStateName,
  qpTypeCode,
  readAttributes,
  readCap,
  writeAttributes,
} from './attributes.js';
import { connect, type Endpoint, type QpConnectOptions } from './connect.js';
import { type Cq, checkCq } from './cq.js';
import type { DeviceBase } from './devicebase.js';
import type { Mw } from './mw.js';
import type { Pd } from './pd.js';
import { QP_CHECKS, type QpOptions, type QuirkName, quirkBits } from './qpoptions.js';
import { Resource } from './resource.js';
import { checkSrq, type Srq } from './srq.js';

const NO_QUIRKS: readonly QuirkName[] = [];

/** An asynchronous event of a queue pair; see `AsyncEvent`. */
export interface QpEvent {
  /** Kind of the event. */
  readonly type:
    | 'QP_FATAL'
    | 'QP_REQ_ERR'
    | 'QP_ACCESS_ERR'
    | 'COMM_EST'
    | 'SQ_DRAINED'
    | 'QP_LAST_WQE_REACHED'
    | 'QP_NO_RECEIVE'
    | 'QP_ICRC_ERR';
  /** The queue pair concerned. */
  readonly qp: Qp;
}

export interface Qp extends EventEmitter<{ event: [event: QpEvent] }> {}

/** Destination of a datagram. */
interface DatagramTarget {
  readonly ah: AddressHandle;
  readonly remoteQpn: number;
  readonly remoteQkey: number;
  readonly pkeyIndex: number;
}

/** Offset of the frame of `qpWriteDatagram` in the scratch memory. */
const DATAGRAM_FRAME = 2048;

/**
 * A queue pair (ibv_qp). RC: reliable, ordered messages with one peer. UC: messages with one peer that arrive whole or
 * not at all. UD: datagrams to and from any peer. `pd.createQp` creates it in state RESET.
 *
 * Events: `event` (an asynchronous event of this queue pair).
 *
 * @example
 * ```ts
 * const qp = await pd.createQp({ sendCq: cq });
 * const remote: Endpoint = await exchange(qp.endpoint()); // by any channel, as JSON
 * await qp.connect(remote, { access: ['remoteWrite'] });
 * qp.postRecv({ wrId: 1, sgList: mr.sge(0, 1024) });
 * qp.postSend({ wrId: 2, opcode: 'SEND', sgList: mr.sge(1024, 5) });
 * throwIfFailed(await cq.next());
 * ```
 */
// biome-ignore lint/suspicious/noUnsafeDeclarationMerging: the base class is an emitter
export class Qp extends Resource {
  /** Always `qp`. */
  readonly kind = 'qp';
  /** Device of the queue pair. */
  readonly device: DeviceBase;
  /** Queue pair number, 24 bits. */
  readonly qpNum: number;
  /** `RC`, `UC` or `UD`. */
  readonly type: string;
  /** Completion queue of sends. */
  readonly sendCq: Cq;
  /** Completion queue of receives. */
  readonly recvCq: Cq;
  /** Shared receive queue, if any. */
  readonly srq: Srq | undefined;
  /** Work requests that the send queue holds, as granted: at least as many as requested. */
  readonly maxSendWr: number;
  /** Work requests that the receive queue holds, as granted; 0 with a shared receive queue. */
  readonly maxRecvWr: number;
  /** Scatter/gather elements per send work request, as granted. */
  readonly maxSendSge: number;
  /** Scatter/gather elements per receive work request, as granted; 0 with a shared receive queue. */
  readonly maxRecvSge: number;
  /** Bytes of inline data per send work request, as granted. */
  readonly maxInlineData: number;
  readonly #handle: number;
  readonly #queues: QpQueues;
  #flowControl = false;
  #adaptiveRetransmission: boolean;
  #windowLimit: number = LIMITS.maxWindow;
  #address: ResolvedAddress | undefined;
  #pathNumber = 0;
  #modifying: Promise<unknown> = Promise.resolve();
  #firstPsn: number;
  #gidIndex: number | undefined;
  #quirks: readonly QuirkName[];
  #keepsProcessAlive = false;
  /** @internal The library posts all work requests. */
  isPostedByLibrary = false;

  /** @internal Use `pd.createQp`. @param isGsi creates queue pair 1 (type UD), of which a device has one */
  constructor(
    /** Protection domain of the queue pair. */
    readonly pd: Pd,
    options: QpOptions,
    isGsi = false,
  ) {
    const { device } = pd;
    const checked = checkOptions('createQp', options, QP_CHECKS);
    const { sendCq, recvCq = sendCq, srq, maxSendWr = 64, maxRecvWr = 64, maxSendSge = 4, maxRecvSge = 4 } = checked;
    const type = isGsi ? QpType.GSI : qpTypeCode(checked.type ?? 'RC');
    const quirks = checked.quirks === undefined ? NO_QUIRKS : [...checked.quirks];
    const bits = quirkBits(quirks);
    checkCq('sendCq', sendCq, device);
    checkCq('recvCq', recvCq, device);
    if (srq !== undefined) checkSrq(srq, device);
    super([pd, sendCq, recvCq, ...(srq ? [srq] : [])]);
    this.srq = srq;
    this.device = device;
    this.sendCq = sendCq;
    this.recvCq = recvCq;
    const { card } = device;
    const { exports } = card;
    // One wait for the end of a turn, not one for each call.
    const { handle, typeCode, cap } = card.exclusively(() => {
      const handle = exports.qpCreate(
        pd.handle,
        type,
        sendCq.handle,
        recvCq.handle,
        maxSendWr,
        maxRecvWr,
        maxSendSge,
        maxRecvSge,
        checked.maxInlineData ?? 64,
        checked.sqSigAll ?? true,
        srq?.handle ?? 0,
      );
      if (handle === 0) throw createQpError(device);
      exports.qpQuirks(handle, bits);
      exports.qpQuery(handle);
      const typeCode = card.u32[(exports.scratch() >>> 2) + QpAttr.TYPE] as number;
      return { handle, typeCode, cap: readCap(card) };
    });
    this.#handle = handle;
    this.qpNum = exports.qpNumber(handle);
    this.#quirks = quirks;
    this.type = nameOf(QpType, typeCode);
    this.#adaptiveRetransmission = this.type === 'RC';
    this.maxSendWr = cap.maxSendWr;
    this.maxRecvWr = cap.maxRecvWr;
    this.maxSendSge = cap.maxSendSge;
    this.maxRecvSge = cap.maxRecvSge;
    this.maxInlineData = cap.maxInlineData;
    this.#queues = new QpQueues(this.#handle, this);
    this.#firstPsn = exports.randomPsn();
    device.register(this.#handle, this);
    this.addToParents();
  }

  /** The queue pair number as hexadecimal text. */
  get label(): string {
    return qpnText(this.qpNum);
  }

  /** Present state (ibv_qp_state). @throws VerbsError EINVAL after close */
  get state(): QpStateName {
    this.assertOpen();
    return nameOf(QpState, this.#stateCode) as QpStateName;
  }

  /**
   * Quirks of the peer that the queue pair accommodates. May be set at any time.
   * @throws TypeError for an unknown name
   */
  get quirks(): readonly QuirkName[] {
    return this.#quirks;
  }
  set quirks(names: readonly QuirkName[]) {
    const quirks = [...names];
    const bits = quirkBits(quirks);
    this.assertOpen();
    this.device.card.exports.qpQuirks(this.#handle, bits);
    this.#quirks = quirks;
  }

  /**
   * End-to-end flow control by credits (IBTA 9.7.7.2; `flow_control` of rdma_conn_param). Each ACK advertises the
   * number of posted receives. Messages that need a receive wait until the peer has advertised one; READs and WRITEs
   * without immediate need no credit.
   *
   * Off by default, as with most adapters: no limit is advertised, and the peer's is ignored. It may be set at any
   * time, and at one end alone: a peer that advertises no limit is sent everything. With a shared receive queue no
   * limit is advertised.
   * @throws TypeError for another value than true or false; VerbsError EINVAL for another type than RC
   */
  get flowControl(): boolean {
    return this.#flowControl;
  }
  set flowControl(isOn: boolean) {
    this.#setFeature('flowControl', isOn, 'qpFlowControl', 'has credits');
    this.#flowControl = isOn;
    this.device.engine.schedule();
  }

  /**
   * Adaptive retransmission, modelled on that of ConnectX adapters. When an ACK is overdue against the measured
   * round-trip time, the oldest packet is sent again, long before `timeout`: after 16 ms at the earliest, or 1 ms if a
   * packet was lost within the last 250 ms. `timeout` and `retryCnt` are not affected. Counter: `roce_adp_retrans`.
   *
   * On by default for RC; without effect when `timeout` is 0. It may be set at any time.
   * @throws TypeError for another value than true or false; VerbsError EINVAL for another type than RC
   */
  get adaptiveRetransmission(): boolean {
    return this.#adaptiveRetransmission;
  }
  set adaptiveRetransmission(isOn: boolean) {
    this.#setFeature('adaptiveRetransmission', isOn, 'qpAdaptive', 'is acknowledged');
    this.#adaptiveRetransmission = isOn;
  }

  /**
   * Largest in-flight window: packets that may be without an ACK, 1 to 768. The window itself is smaller at first and
   * after losses; `query().progress.window` has it. With 1 the queue pair stops and waits after each packet.
   *
   * 768 by default. It may be set at any time: what is in flight stays in flight.
   * @throws TypeError, RangeError for another value; VerbsError EINVAL for another type than RC
   */
  get windowLimit(): number {
    return this.#windowLimit;
  }
  set windowLimit(packets: number) {
    this.assertOpen();
    checkInteger('windowLimit', packets, 1, LIMITS.maxWindow);
    const refused = this.device.card.exports.qpWindowLimit(this.#handle, packets);
    if (refused !== 0) throw new VerbsError('EINVAL', `${this} has type ${this.type}: only RC has a window`);
    this.#windowLimit = packets;
    this.device.engine.schedule();
  }

  /**
   * @internal Returns the sign of the peer since the last call, a `PeerSign`. For RC queue pairs only.
   * @param asks whether a silent peer is sent a keep-alive
   */
  takePeerSign(asks: boolean): number {
    this.assertOpen();
    const sign = this.device.card.exports.qpPeerSign(this.#handle, asks);
    if (asks && sign === PeerSign.SILENT) this.device.engine.schedule();
    return sign;
  }

  /**
   * @internal Returns the frame of a datagram that the caller may send by other means than the card. It takes no send
   * work request. Undefined if the device has failed.
   * @param message a multiple of four bytes, at most 1024
   * @param sourcePort UDP source port. Default: that of the address handle
   */
  writeDatagram(message: Uint8Array, target: DatagramTarget, sourcePort = 0): Uint8Array | undefined {
    this.assertOpen();
    const { ah, remoteQpn: qpn, remoteQkey: qkey, pkeyIndex } = target;
    const { exports, bytes } = this.device.card;
    const at = exports.scratch();
    bytes.set(message, at);
    const handle = AddressHandle.handleFor(ah, this, 0);
    const { length: size } = message;
    const length = exports.qpWriteDatagram(this.#handle, handle, pkeyIndex, qpn, qkey, size, sourcePort);
    const frame = at + DATAGRAM_FRAME;
    return length === 0 ? undefined : bytes.slice(frame, frame + length);
  }

  #setFeature(name: string, isOn: boolean, call: 'qpFlowControl' | 'qpAdaptive', why: string): void {
    this.assertOpen();
    checkBoolean(name, isOn);
    const refused = this.device.card.exports[call](this.#handle, isOn);
    if (refused !== 0) throw new VerbsError('EINVAL', `${this} has type ${this.type}: only RC ${why}`);
  }

  /**
   * Posts a BIND_MW work request (ibv_bind_mw).
   * @param mw the window
   * @param bind region, range and rights
   * @returns the window's new remote key, valid once the request completes
   * @throws as `postSend`
   */
  bindMw(mw: Mw, bind: BindMw): number {
    this.postSend({ opcode: 'BIND_MW', mw, ...bind });
    return mw.rkey;
  }

  /**
   * Returns all attributes, limits and the progress of the connection (ibv_query_qp).
   * @throws VerbsError EINVAL after close
   */
  query(): QpInfo {
    this.assertOpen();
    const { card } = this.device;
    card.exports.qpQuery(this.#handle);
    return readAttributes(card, this.#address);
  }

  /** Returns the counters of this queue pair. @throws VerbsError EINVAL after close */
  counters(): Counters {
    this.assertOpen();
    const { card } = this.device;
    return readCounters(card, card.exports.qpCounters(this.#handle));
  }

  /** @internal Returns the low 32 bits of a counter. */
  counter(name: string): number {
    const { card } = this.device;
    return readCounter(card, card.exports.qpCounters(this.#handle), name);
  }

  /**
   * Changes attributes and the state (ibv_modify_qp). Calls on one queue pair take effect in order. After an error
   * nothing is changed.
   * @param wait limits the time to resolve the address of `ahAttr`
   * @throws TypeError, RangeError for wrong values; VerbsError EINVAL, whose message names the transition and every
   * attribute that is missing, not allowed or out of range; EADDRNOTAVAIL or EHOSTUNREACH when the peer's address
   * cannot be resolved, ETIMEDOUT after the wait's `timeout`; its signal's reason
   */
  modify(attributes: QpAttributes, wait: WaitOptions = {}): Promise<void> {
    const result = this.#modifying.then(() => this.#modify(attributes, wait));
    this.#modifying = result.catch(() => {});
    return result;
  }

  /**
   * Posts one or more send work requests (ibv_post_send), which are executed in order. The card processes them before
   * the event loop continues. Allocates nothing.
   *
   * After an error in an array, the requests before the refused one are posted; the error's `badWr` is its index.
   * @throws TypeError, RangeError for wrong requests; VerbsError ENOMEM when the queue is full, EINVAL in a wrong
   * state, EMSGSIZE for a message that is too long, EOPNOTSUPP for an operation that the type does not have
   */
  postSend(wr: SendWr | readonly SendWr[]): void {
    this.assertOpen();
    const { card, engine } = this.device;
    if (!Array.isArray(wr)) {
      postSend(card, this.#queues, wr as SendWr);
    } else {
      for (let i = 0; i < wr.length; i++) {
        try {
          postSend(card, this.#queues, wr[i] as SendWr);
        } catch (error) {
          engine.posted();
          throw Object.assign(error as Error, { badWr: i });
        }
      }
    }
    engine.posted();
  }

  /**
   * Posts one or more receive work requests (ibv_post_recv), which messages consume in order. Allocates nothing.
   * @throws as `postSend`; VerbsError EINVAL with a shared receive queue: post to that queue instead
   */
  postRecv(wr: RecvWr | readonly RecvWr[]): void {
    this.assertOpen();
    if (this.srq !== undefined)
      throw new VerbsError('EINVAL', `${this} takes its receives from ${this.srq}: post them there`);
    const { card, engine } = this.device;
    if (!Array.isArray(wr)) {
      postRecv(card, this.#queues, wr as RecvWr);
    } else {
      for (let i = 0; i < wr.length; i++) {
        try {
          postRecv(card, this.#queues, wr[i] as RecvWr);
        } catch (error) {
          engine.posted();
          throw Object.assign(error as Error, { badWr: i });
        }
      }
    }
    engine.posted();
  }

  /** @internal Limits the receives of the shared queue that the queue pair may hold until they are returned. */
  limitReceives(quota: number): void {
    this.device.card.exports.qpRecvQuota(this.#handle, quota);
  }

  /** @internal A receive that a message to this queue pair has taken is posted again. */
  returnReceive(): void {
    if (this.isAlive) this.device.card.exports.qpRecvReturn(this.#handle);
  }

  /**
   * Returns what the peer needs to connect to this queue pair. Plain data, to be sent as JSON.
   * @param peer the peer's GID or IP address, if known; it decides which local GID is advertised
   * @throws TypeError when `peer` is no address; VerbsError EADDRNOTAVAIL when no local address can reach it, EINVAL
   * after close
   */
  endpoint(peer?: string): Endpoint {
    this.assertOpen();
    if (peer !== undefined || this.#gidIndex === undefined) this.#gidIndex = this.device.chooseGid(peer).index;
    const gid = this.device.gids[this.#gidIndex]?.gid as string;
    return { qpNum: this.qpNum, psn: this.#firstPsn, gid, mtu: this.device.queryPort().activeMtu };
  }

  /**
   * Connects the queue pair: moves it from RESET to RTS. Both ends call it with the other's `endpoint()`. After an
   * error the queue pair is back in RESET, with a new first PSN.
   * @param remote the peer's endpoint
   * @throws as `modify`; VerbsError EINVAL for type UD, or in another state than RESET
   */
  async connect(remote: Endpoint, options: QpConnectOptions = {}): Promise<void> {
    await connect(this, { remote, psn: this.#firstPsn, gidIndex: this.#gidIndex }, options);
  }

  /**
   * Moves a UD queue pair from RESET to RTS, where it sends and receives datagrams.
   * @param options `qkey`: Q_Key, 32 bits, which datagrams to this queue pair must carry. `pkeyIndex`: index into the
   * P_Key table. Default 0
   * @throws TypeError, RangeError for wrong values; VerbsError EINVAL for another type than UD, or in another state
   * than RESET
   */
  async activate(options: { readonly qkey: number; readonly pkeyIndex?: number }): Promise<void> {
    const { qkey, pkeyIndex = 0 } = checkOptions('qp.activate', options, { qkey: checkU32, pkeyIndex: checkU32 });
    if (this.type !== 'UD')
      throw new VerbsError('EINVAL', `${this} has type ${this.type}, only UD is activated: use connect`);
    await this.modify({ state: 'INIT', pkeyIndex, portNum: 1, qkey });
    await this.modify({ state: 'RTR' });
    await this.modify({ state: 'RTS', sqPsn: this.#firstPsn });
  }

  /**
   * Joins a multicast group (ibv_attach_mcast): receives datagrams to the group that carry our Q_Key, including our
   * own.
   * @param group an address in 224.0.0.0/4 or ff00::/8, or its GID
   * @throws TypeError when `group` is no multicast group; VerbsError EINVAL for a member already or another type than
   * UD, ENOMEM when memory is exhausted, EOPNOTSUPP for a link without multicast; other errors of the link
   */
  async attachMcast(group: string): Promise<void> {
    this.assertOpen();
    this.device.groups.attach(this.#handle, this.toString(), group);
  }

  /**
   * Leaves a multicast group (ibv_detach_mcast).
   * @param group as in `attachMcast`
   * @throws TypeError when `group` is no multicast group; VerbsError ENOENT when the queue pair is no member
   */
  async detachMcast(group: string): Promise<void> {
    this.assertOpen();
    this.device.groups.detach(this.#handle, this.toString(), group);
  }

  /** @internal State of the queue pair for explanations. */
  failureContext(): FailureContext {
    const { timeout, retryCnt, rnrRetry, pathMtu, destQpNum, progress } = this.query();
    const received = this.counters().rcvd_pkts;
    return {
      ...(this.#address && { peer: { address: this.#address.destination, qpNum: destQpNum } }),
      ...(received !== undefined && { received }),
      timeout,
      retryCnt,
      rnrRetry,
      pathMtu,
      waitsForCredits: progress.waitsForCredits,
      drops: this.device.drops(),
      link: this.device.link.kind,
      decisions: () => decisionsOf(this),
      packets: () => recentPackets(this, this.#address && { address: this.#address.destination, qpNum: destQpNum }),
    };
  }

  /** @internal The card reported an asynchronous event of this queue pair. */
  onEvent(): void {
    this.#updateKeepAlive();
  }

  /** @internal The library posts all work requests: where it posts no receive, its peer is to wait. */
  postedByLibrary(): this {
    this.isPostedByLibrary = true;
    return this;
  }

  /** @internal */
  protected override describe(): Description {
    const { state, destQpNum } = this.query();
    const peer = this.#address && { peer: `${this.#address.destination} qp ${qpnText(destQpNum)}` };
    return { type: this.type, state, ...peer };
  }

  /** @internal */
  protected free(): void {
    if (this.isAlive) this.device.reportLosses(this);
    const refused = this.device.card.exports.qpDestroy(this.#handle);
    if (refused !== 0) throw new VerbsError('EBUSY', `${this} is in use`);
    this.device.groups.removeQp(this.#handle);
    this.device.unregister(this.#handle, this);
    this.device.paths.remove(this.#pathNumber);
    if (this.#keepsProcessAlive) this.device.engine.unref();
    this.#keepsProcessAlive = false;
  }

  async #modify(attributes: QpAttributes, wait: WaitOptions): Promise<void> {
    this.assertOpen();
    checkWait(wait);
    checkAttributeNames(attributes);
    const { device } = this;
    const { card } = device;
    const address = attributes.ahAttr && (await resolveAhAttr(device, attributes.ahAttr, wait));
    this.assertOpen();
    // One wait for the end of a turn, not one for each call.
    card.exclusively(() => this.#apply(attributes, address));
    // Before RTS there is nothing to send, and a turn costs as much as a small message.
    if (attributes.state !== 'INIT' && attributes.state !== 'RTR') device.engine.schedule();
  }

  /** @param address of `attributes.ahAttr` */
  #apply(attributes: QpAttributes, address: ResolvedAddress | undefined): void {
    const { device } = this;
    const { card } = device;
    const from = this.#stateCode;
    // A query overwrites the scratch memory, so it must precede writing the attributes there.
    const destQpNum = attributes.destQpNum ?? (address === undefined ? 0 : this.#destQpNum);
    if (attributes.pathMtu !== undefined)
      checkPathMtu(device.queryPort(), attributes.pathMtu, address ?? this.#address);
    let mask = writeAttributes(card, attributes);
    if (address !== undefined) {
      address.write(card, sourcePortOf(device.link, address, this.qpNum, destQpNum));
      mask |= 1 << QpAttr.AV;
    }
    const refused = card.exports.qpModify(this.#handle, mask);
    if (refused !== 0) throw modifyError(card, this.toString(), from, attributes, refused);
    if (address !== undefined) {
      this.#address = address;
      this.#pathNumber ||= device.paths.add(this);
    }
    if (attributes.state === 'RESET') {
      this.#address = undefined;
      this.#firstPsn = card.exports.randomPsn();
    }
    this.#updateKeepAlive();
  }

  /** @internal */
  get address(): ResolvedAddress | undefined {
    return this.#address;
  }

  /** @internal */
  reroute(address: ResolvedAddress): void {
    const { card, link } = this.device;
    this.#address = address;
    card.exclusively(() => {
      address.write(card, sourcePortOf(link, address, this.qpNum, this.#destQpNum));
      card.exports.qpReroute(this.#handle);
    });
  }

  get #stateCode(): number {
    return this.device.card.exports.qpState(this.#handle);
  }

  get #destQpNum(): number {
    const { exports, u32 } = this.device.card;
    exports.qpQuery(this.#handle);
    return u32[(exports.scratch() >>> 2) + QpAttr.DEST_QPN] as number;
  }

  /** With the device's `keepAlive`, a connected queue pair other than the GSI keeps the process running. */
  #updateKeepAlive(): void {
    const { engine, keepAlive } = this.device;
    const state = this.#stateCode;
    const wants =
      keepAlive && this.qpNum !== GSI.qpn && (state === QpState.RTR || state === QpState.RTS || state === QpState.SQD);
    if (wants === this.#keepsProcessAlive) return;
    this.#keepsProcessAlive = wants;
    if (wants) engine.ref();
    else engine.unref();
  }
}

function createQpError({ card }: DeviceBase): VerbsError {
  const { exports, options } = card;
  if (exports.lastErrno() === Errno.EBUSY) return new VerbsError('EBUSY', 'queue pair 1 exists already');
  const left = `the device has at most ${options.maxQp}, and ${exports.objectMemAvailable()} bytes left`;
  return new VerbsError('ENOMEM', `no memory for a queue pair: ${left}`);
}
