/** Queue pairs. */

import { Errno, GSI, LIMITS, nameOf, QpAttr, QpState, QpType } from '../device/codes.js';
import { VerbsError } from '../errors.js';
import { type AddressHandle, checkPathMtu, udpSourcePort } from './ah.js';
import {
  checkAttributeNames,
  type QpAttributes,
  type QpInfo,
  type QpStateName,
  qpTypeCode,
  readAttributes,
  refusal,
  writeAttributes,
} from './attributes.js';
import { checkBoolean, checkInteger, hex } from './check.js';
import { type ConnectOptions, connect, type Endpoint } from './connect.js';
import type { Device } from './context.js';
import { type Counters, readCounters } from './counters.js';
import { type Cq, checkCq } from './cq.js';
import type { Circumstances } from './explain.js';
import type { Mw } from './mw.js';
import { packetsOf } from './packets.js';
import type { Pd } from './pd.js';
import { postRecv, postSend, type Rings, ringsOf } from './post.js';
import type { QpOptions } from './qpoptions.js';
import { type QuirkName, quirkBits } from './quirks.js';
import { Resource } from './resource.js';
import { checkSrq, type Srq } from './srq.js';
import { addressOf } from './udah.js';
import type { BindMw, RecvWr, SendWr } from './wr.js';

/**
 * A queue pair: posts requests and exchanges messages. RC: with one peer, reliably and in order. UC: with one peer, whole
 * or not at all. UD: datagrams, with anybody.
 *
 * Events: `event` (an asynchronous event about this queue pair).
 */
export class Qp extends Resource {
  readonly kind = 'qp';
  readonly device: Device;
  /** Our queue pair number, 24 bits, for the peer. */
  readonly qpNum: number;
  readonly type: string;
  readonly sendCq: Cq;
  readonly recvCq: Cq;
  readonly srq: Srq | undefined;
  /** As granted; with a shared receive queue `maxRecvWr` and `maxRecvSge` are 0: not less than asked for. */
  readonly maxSendWr: number;
  readonly maxRecvWr: number;
  readonly maxSendSge: number;
  readonly maxRecvSge: number;
  readonly maxInlineData: number;
  readonly #handle: number;
  readonly #rings: Rings;
  #flowControl = false;
  #adaptiveRetransmission: boolean;
  #address: AddressHandle | undefined;
  #modifying: Promise<unknown> = Promise.resolve();
  #firstPsn: number;
  #gidIndex: number | undefined;
  #quirks: readonly QuirkName[];
  #holdsProcess = false;

  /** @internal Use `pd.createQp`. @param isGsi makes queue pair 1, of which a device has one; its type is UD */
  constructor(
    readonly pd: Pd,
    options: QpOptions,
    isGsi = false,
  ) {
    const { device } = pd;
    const { sendCq, recvCq = sendCq, srq } = options;
    checkCq('sendCq', sendCq, device);
    checkCq('recvCq', recvCq, device);
    if (srq !== undefined) checkSrq(srq, device);
    super([pd, sendCq, recvCq, ...(srq ? [srq] : [])]);
    this.srq = srq;
    this.device = device;
    this.sendCq = sendCq;
    this.recvCq = recvCq;
    const { exports } = device.card;
    const type = isGsi ? QpType.GSI : qpTypeCode(options.type ?? 'RC');
    const between = (name: keyof QpOptions, standard: number, min: number, max: number) =>
      checkInteger(name, options[name] ?? standard, min, max);
    const quirks = [...(options.quirks ?? [])];
    const bits = quirkBits(quirks);
    this.#handle = exports.qpCreate(
      pd.handle,
      type,
      sendCq.handle,
      recvCq.handle,
      between('maxSendWr', 64, 1, LIMITS.maxWr),
      between('maxRecvWr', 64, 1, LIMITS.maxWr),
      between('maxSendSge', 4, 1, LIMITS.maxSge),
      between('maxRecvSge', 4, 1, LIMITS.maxSge),
      between('maxInlineData', 64, 0, LIMITS.maxInline),
      options.sqSigAll ?? true,
      srq?.handle ?? 0,
    );
    if (this.#handle === 0) throw noQp(device);
    this.qpNum = exports.qpNumber(this.#handle);
    this.#quirks = quirks;
    exports.qpQuirks(this.#handle, bits);
    const { cap, type: name } = this.query();
    this.type = name;
    this.#adaptiveRetransmission = name === 'RC';
    this.maxSendWr = cap.maxSendWr;
    this.maxRecvWr = cap.maxRecvWr;
    this.maxSendSge = cap.maxSendSge;
    this.maxRecvSge = cap.maxRecvSge;
    this.maxInlineData = cap.maxInlineData;
    this.#rings = ringsOf(this, this.#handle);
    this.#firstPsn = exports.randomPsn();
    device.registerQp(this.#handle, this);
    this.opened();
  }

  get label(): string {
    return hex(this.qpNum, 6);
  }

  get state(): QpStateName {
    this.assertOpen();
    return nameOf(QpState, this.#stateCode) as QpStateName;
  }

  /** Quirks of the peer that are shared. They may be changed at any time. @throws TypeError for an unknown name */
  get quirks(): readonly QuirkName[] {
    return this.#quirks;
  }
  set quirks(names: readonly QuirkName[]) {
    this.assertOpen();
    this.device.card.exports.qpQuirks(this.#handle, quirkBits(names));
    this.#quirks = [...names];
  }

  /**
   * End-to-end flow control by credits (`flow_control` of rdma_conn_param): we tell the peer with each ACK how many receives are
   * posted, and send it no more messages that need one than it has told of; they wait. Off at first, as most cards have it: no limit is
   * told, and the peer's is not heeded. It may be changed at any time, and one end alone may have it: a peer that tells of no
   * limit is sent everything. With a shared receive queue no limit is told. READs and WRITEs without immediate need no credit.
   * @throws TypeError; VerbsError EINVAL for another type than RC
   */
  get flowControl(): boolean {
    return this.#flowControl;
  }
  set flowControl(isOn: boolean) {
    this.#switch('flowControl', isOn, 'qpFlowControl', 'has credits');
    this.#flowControl = isOn;
    this.device.engine.schedule();
  }

  /**
   * Adaptive retransmission, after that of ConnectX adapters: an answer that is late by the round trips so far is asked for by
   * repeating the oldest packet, long before `timeout`, which goes on as it would: from 16 ms on, and from 1 ms on where something
   * was lost in the last quarter of a second. It is no try of `retryCnt`; counter `roce_adp_retrans`. On at first, off without a
   * `timeout`. It may be changed at any time.
   * @throws TypeError; VerbsError EINVAL for another type than RC
   */
  get adaptiveRetransmission(): boolean {
    return this.#adaptiveRetransmission;
  }
  set adaptiveRetransmission(isOn: boolean) {
    this.#switch('adaptiveRetransmission', isOn, 'qpAdaptive', 'is acknowledged');
    this.#adaptiveRetransmission = isOn;
  }

  #switch(name: string, isOn: boolean, call: 'qpFlowControl' | 'qpAdaptive', why: string): void {
    this.assertOpen();
    checkBoolean(name, isOn);
    const refused = this.device.card.exports[call](this.#handle, isOn);
    if (refused !== 0) throw new VerbsError('EINVAL', `${this} has type ${this.type}: only RC ${why}`);
  }

  /** Posts a BIND_MW (ibv_bind_mw) and answers the window's new key, good once it completes. @throws as `postSend` */
  bindMw(mw: Mw, bind: BindMw): number {
    this.postSend({ opcode: 'BIND_MW', mw, ...bind });
    return mw.rkey;
  }

  /** All attributes, limits and the progress of the connection. */
  query(): QpInfo {
    this.assertOpen();
    const { card } = this.device;
    card.exports.qpQuery(this.#handle);
    return readAttributes(card, this.#address);
  }

  /** Counters of this queue pair. */
  counters(): Counters {
    this.assertOpen();
    const { card } = this.device;
    return readCounters(card, card.exports.qpCounters(this.#handle));
  }

  /**
   * Changes attributes, and with `state` the state (ibv_modify_qp). Calls on one queue pair take effect in the order in
   * which they were made.
   * @throws TypeError, RangeError for wrong values; VerbsError EINVAL naming the transition and every attribute that is
   * missing, not allowed or out of range - nothing is changed then; EHOSTUNREACH when the peer's address is not found
   */
  modify(attributes: QpAttributes): Promise<void> {
    const result = this.#modifying.then(() => this.#modify(attributes));
    this.#modifying = result.catch(() => {});
    return result;
  }

  /**
   * Posts one or more send work requests; they are carried out in order. Takes effect before the event loop goes on.
   * Allocates nothing.
   * @throws TypeError, RangeError for wrong requests; VerbsError ENOMEM (queue full), EINVAL (state), EMSGSIZE,
   * EOPNOTSUPP. Of an array the requests before the refused one are posted; the error's `badWr` is its index
   */
  postSend(wr: SendWr | readonly SendWr[]): void {
    this.assertOpen();
    const { card, engine } = this.device;
    if (!Array.isArray(wr)) {
      postSend(card, this.#rings, wr as SendWr);
    } else {
      for (let i = 0; i < wr.length; i++) {
        try {
          postSend(card, this.#rings, wr[i] as SendWr);
        } catch (error) {
          engine.posted();
          throw Object.assign(error as Error, { badWr: i });
        }
      }
    }
    engine.posted();
  }

  /**
   * Posts one or more receive work requests; messages take them in order. Allocates nothing.
   * @throws as `postSend`; VerbsError EINVAL with a shared receive queue, to which they are posted instead
   */
  postRecv(wr: RecvWr | readonly RecvWr[]): void {
    this.assertOpen();
    if (this.srq !== undefined)
      throw new VerbsError('EINVAL', `${this} takes its receives from ${this.srq}; post them there`);
    const { card, engine } = this.device;
    if (!Array.isArray(wr)) {
      postRecv(card, this.#rings, wr as RecvWr);
    } else {
      for (let i = 0; i < wr.length; i++) {
        try {
          postRecv(card, this.#rings, wr[i] as RecvWr);
        } catch (error) {
          engine.posted();
          throw Object.assign(error as Error, { badWr: i });
        }
      }
    }
    engine.posted();
  }

  /**
   * What the peer must know to connect; plain, to be sent as JSON.
   * @param peer the peer's GID or IP address, if known: it decides which of our addresses is told
   * @throws VerbsError EADDRNOTAVAIL when no address can reach it
   */
  endpoint(peer?: string): Endpoint {
    this.assertOpen();
    if (peer !== undefined || this.#gidIndex === undefined) this.#gidIndex = this.device.chooseGid(peer).index;
    const gid = this.device.gids[this.#gidIndex]?.gid as string;
    return { qpn: this.qpNum, psn: this.#firstPsn, gid, mtu: this.device.queryPort().activeMtu };
  }

  /**
   * Takes the queue pair from RESET to RTS against a peer's endpoint: the one-call way to connect when both ends have
   * told each other their `endpoint()`. Back in RESET, with a new first PSN, when it is refused.
   * @throws as `modify`
   */
  async connect(remote: Endpoint, options: ConnectOptions = {}): Promise<void> {
    await connect(this, { remote, psn: this.#firstPsn, gidIndex: this.#gidIndex }, options);
  }

  /**
   * Takes a UD queue pair from RESET to RTS, where it sends and receives.
   * @param qkey 32 bits; who sends to us must know it
   * @param pkeyIndex index of the P_Key table
   * @throws TypeError, RangeError; VerbsError EINVAL for another type or state
   */
  async activate({ qkey, pkeyIndex = 0 }: { readonly qkey: number; readonly pkeyIndex?: number }): Promise<void> {
    if (this.type !== 'UD')
      throw new VerbsError('EINVAL', `${this} has type ${this.type}: it is connected, only UD is activated`);
    await this.modify({ state: 'INIT', pkeyIndex, portNum: 1, qkey });
    await this.modify({ state: 'RTR' });
    await this.modify({ state: 'RTS', sqPsn: this.#firstPsn });
  }

  /**
   * Joins a multicast group: datagrams that are sent to it and bear our Q_Key come in, also our own.
   * @param group an address of 224.0.0.0/4 or ff00::/8, or its GID
   * @throws TypeError for what is no group; VerbsError EINVAL for a member or another type than UD, ENOMEM, EOPNOTSUPP;
   * what the link says when it cannot join
   */
  async attachMcast(group: string): Promise<void> {
    this.assertOpen();
    this.device.groups.attach(this.#handle, this.toString(), group);
  }

  /** Leaves a multicast group. @throws TypeError; VerbsError ENOENT when it is no member */
  async detachMcast(group: string): Promise<void> {
    this.assertOpen();
    this.device.groups.detach(this.#handle, this.toString(), group);
  }

  /** @internal */
  circumstances(): Circumstances {
    const { timeout, retryCnt, rnrRetry, pathMtu, destQpNum, progress } = this.query();
    const received = this.counters().rcvd_pkts;
    return {
      ...(this.#address && { peer: { address: this.#address.destination, qpn: destQpNum } }),
      ...(received !== undefined && { received }),
      timeout,
      retryCnt,
      rnrRetry,
      pathMtu,
      waitsForCredits: progress.waitsForCredits,
      drops: this.device.drops(),
      link: this.device.link.kind,
      packets: () => packetsOf(this, this.#address && { address: this.#address.destination, qpn: destQpNum }),
    };
  }

  /** @internal The card says that something happened to it. */
  onEvent(): void {
    this.#updateHold();
  }

  protected free(): void {
    const refused = this.device.card.exports.qpDestroy(this.#handle);
    if (refused !== 0) throw new VerbsError('EBUSY', `${this} is in use`);
    this.device.groups.forget(this.#handle);
    this.device.forgetQp(this.#handle);
    if (this.#holdsProcess) this.device.engine.release();
    this.#holdsProcess = false;
  }

  async #modify(attributes: QpAttributes): Promise<void> {
    this.assertOpen();
    checkAttributeNames(attributes);
    const { device } = this;
    const { card } = device;
    const address = attributes.ahAttr && (await addressOf(device, attributes.ahAttr));
    this.assertOpen();
    // A query overwrites the scratch, so it comes before the attributes are written there.
    const from = this.#stateCode;
    const destQpNum = attributes.destQpNum ?? this.#destQpNum;
    if (attributes.pathMtu !== undefined) checkPathMtu(device, attributes.pathMtu, address ?? this.#address);
    let mask = writeAttributes(card, attributes);
    if (address !== undefined) {
      const fixed = device.link.features.sourcePort;
      address.write(card, fixed || udpSourcePort(address.flowLabel, this.qpNum, destQpNum));
      mask |= 1 << QpAttr.AV;
    }
    const refused = card.exports.qpModify(this.#handle, mask);
    if (refused !== 0) throw refusal(card, this.toString(), from, attributes, refused);
    if (address !== undefined) this.#address = address;
    if (attributes.state === 'RESET') {
      this.#address = undefined;
      this.#firstPsn = card.exports.randomPsn();
    }
    this.#updateHold();
    device.engine.schedule();
  }

  get #stateCode(): number {
    return this.#attribute(QpAttr.STATE);
  }

  get #destQpNum(): number {
    return this.#attribute(QpAttr.DEST_QPN);
  }

  #attribute(attr: number): number {
    const { exports, u32 } = this.device.card;
    exports.qpQuery(this.#handle);
    return u32[(exports.scratch() >>> 2) + attr] as number;
  }

  /** With the device's `keepAlive` a queue pair of the program's that is connected keeps the process running. */
  #updateHold(): void {
    const { engine, keepAlive } = this.device;
    const state = this.#stateCode;
    const wants =
      keepAlive && this.qpNum !== GSI.qpn && (state === QpState.RTR || state === QpState.RTS || state === QpState.SQD);
    if (wants === this.#holdsProcess) return;
    this.#holdsProcess = wants;
    if (wants) engine.hold();
    else engine.release();
  }
}

function noQp({ card }: Device): VerbsError {
  const { exports, options } = card;
  if (exports.lastErrno() === Errno.EBUSY) return new VerbsError('EBUSY', 'queue pair 1 exists');
  const left = `the device has ${options.maxQp} and ${exports.memAvailable()} bytes left`;
  return new VerbsError('ENOMEM', `no room for a queue pair; ${left}`);
}
