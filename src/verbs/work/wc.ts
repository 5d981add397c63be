/** Work completions (ibv_wc). */
import { type InspectOptionsStylized, inspect } from 'node:util';
import { macOfNumber } from '../../base/address.js';
import type { Card } from '../../device/card.js';
import { CqeOffset, nameOf, WcFlag, WcOpcode, WcStatus } from '../../device/codes.js';
import { qpnText } from '../../device/decode.js';
import { inspectAs } from '../diagnose/describe.js';
import { type Explanation, explain, type FailureContext } from '../diagnose/explain.js';

/** Source of the state of queue pairs for explanations: the device. */
export interface QpDirectory {
  failureContext(handle: number, qpNum: number): FailureContext | undefined;
}

/**
 * A work completion (ibv_wc). `cq.poll` fills the given objects; `cq.next` and `for await` return new ones.
 *
 * @example
 * ```ts
 * for await (const wc of cq) {
 *   throwIfFailed(wc);
 *   if (wc.opcode === WcOpcode.RECV) console.log(wc.wrId, wc.byteLen, wc.hasImm ? wc.immData : undefined);
 * }
 * ```
 */
export class Wc {
  /** The `wrId` of the work request. */
  wrId = 0;
  /** Status, a `WcStatus`. Unless it is SUCCESS, lengths and immediate data are not valid. */
  status = 0;
  /** Operation, a `WcOpcode`. */
  opcode = 0;
  /** Bytes received (for a datagram including the 40 bytes of the GRH), or bytes read by an RDMA READ or atomic. */
  byteLen = 0;
  /** Immediate data as a 32-bit number in host byte order; valid if `hasImm`. */
  immData = 0;
  /** Remote key that the peer has invalidated; valid if `hasInvalidated`. */
  invalidatedRkey = 0;
  /** Number of our queue pair. */
  qpNum = 0;
  /** Number of the sender's queue pair, for datagrams. */
  srcQp = 0;
  /** Sum of `WcFlag` bits. */
  wcFlags = 0;
  /** AETH syndrome of the last ACK or NAK before a failure (IBTA 9.7.5.1); 0 = none received. */
  syndrome = 0;
  /** PSN of the packet that failed, 24 bits. */
  psn = 0;
  /** Expired ACK timers since the queue pair's last progress. */
  timeouts = 0;
  /** Received RNR NAKs since the queue pair's last progress. */
  rnrs = 0;
  /** The sender's MAC address as a number (macOfNumber); 0 = none. */
  #sourceMac = 0;
  /** Tag control information, and the index of the P_Key in the upper half. */
  #vlanAndPkey = 0;
  #qp = 0;
  #directory: QpDirectory | undefined;

  /** Name of the status: `SUCCESS`, `RETRY_EXC_ERR` ... */
  get statusName(): string {
    return nameOf(WcStatus, this.status);
  }

  /** Name of the operation: `SEND`, `RECV`, `RDMA_READ` ... */
  get opcodeName(): string {
    return nameOf(WcOpcode, this.opcode);
  }

  /** Whether the status is SUCCESS. */
  get ok(): boolean {
    return this.status === WcStatus.SUCCESS;
  }

  /** Whether `immData` is valid: the message carried immediate data. */
  get hasImm(): boolean {
    return (this.wcFlags & WcFlag.WITH_IMM) !== 0;
  }

  /**
   * Whether the first 40 bytes of the receive's memory are the GRH: the completion is that of a datagram. See
   * `readGrh`.
   */
  get hasGrh(): boolean {
    return (this.wcFlags & WcFlag.GRH) !== 0;
  }

  /**
   * The sender's MAC address, or that of the last router, 6 bytes; undefined unless the completion is that of a
   * datagram (ib_wc.smac of Linux). Zeroes where the link does not see it: on the `udp` link.
   */
  get sourceMac(): Uint8Array | undefined {
    return (this.wcFlags & WcFlag.GRH) === 0 ? undefined : macOfNumber(this.#sourceMac);
  }

  /** Tag control information of a datagram, 16 bits; undefined if it was not tagged (IB_WC_WITH_VLAN of Linux). */
  get vlanTci(): number | undefined {
    return (this.wcFlags & WcFlag.WITH_VLAN) === 0 ? undefined : this.#vlanAndPkey & 0xffff;
  }

  /**
   * Index of the P_Key of our table by which the datagram was taken (ibv_wc.pkey_index): that of the queue pair.
   * Undefined unless the completion is that of a datagram.
   */
  get pkeyIndex(): number | undefined {
    return (this.wcFlags & WcFlag.GRH) === 0 ? undefined : this.#vlanAndPkey >>> 16;
  }

  /** @internal The same address as a number: equal numbers are equal addresses. 0 = none. */
  get sourceMacNumber(): number {
    return this.#sourceMac;
  }

  /** Whether `invalidatedRkey` is valid: the peer sent SEND_WITH_INV. */
  get hasInvalidated(): boolean {
    return (this.wcFlags & WcFlag.WITH_INV) !== 0;
  }

  /**
   * Explains the completion: facts, likely causes and, if traced, the last packets. Call it soon after the completion.
   */
  explain(): Explanation {
    return explain(this, this.#directory?.failureContext(this.#qp, this.qpNum));
  }

  /** Returns a copy that later polls do not overwrite. */
  copy(): Wc {
    const wc = Object.assign(new Wc(), this);
    wc.#sourceMac = this.#sourceMac;
    wc.#vlanAndPkey = this.#vlanAndPkey;
    wc.#qp = this.#qp;
    wc.#directory = this.#directory;
    return wc;
  }

  /** Returns operation, `wrId`, queue pair and status as text. */
  toString(): string {
    return `${this.opcodeName} wrId ${this.wrId} on qp ${qpnText(this.qpNum)}: ${this.statusName}`;
  }

  /** Returns a short description as plain data, for `JSON.stringify` and `console.log`. */
  toJSON(): Record<string, unknown> {
    const { wrId, statusName: status, opcodeName: opcode, qpNum, byteLen } = this;
    if (!this.ok) return { wrId, status, opcode, qpNum };
    return {
      wrId,
      status,
      opcode,
      qpNum,
      byteLen,
      ...(this.hasImm && { immData: this.immData }),
      ...(this.hasInvalidated && { invalidatedRkey: this.invalidatedRkey }),
      ...(this.hasGrh && { srcQp: this.srcQp }),
    };
  }

  /** @internal */
  [inspect.custom](depth: number, options: InspectOptionsStylized): string {
    return inspectAs(this, depth, options);
  }

  /** @internal Reads a CQE from the card's memory. @param at its byte offset */
  read(card: Card, at: number, directory: QpDirectory): void {
    const { u32 } = card;
    const word = at >>> 2;
    this.wrId = card.f64[(at + CQE.wrId) >>> 3] as number;
    this.status = u32[word + CQE.status] as number;
    this.opcode = u32[word + CQE.opcode] as number;
    this.byteLen = u32[word + CQE.byteLen] as number;
    this.immData = swapBytes(u32[word + CQE.imm] as number);
    this.invalidatedRkey = u32[word + CQE.invalidatedRkey] as number;
    this.qpNum = u32[word + CQE.qpNum] as number;
    this.srcQp = u32[word + CQE.srcQp] as number;
    this.wcFlags = u32[word + CQE.flags] as number;
    this.syndrome = u32[word + CQE.syndrome] as number;
    this.psn = u32[word + CQE.psn] as number;
    if ((this.wcFlags & WcFlag.GRH) === 0) {
      this.timeouts = u32[word + CQE.timeouts] as number;
      this.rnrs = u32[word + CQE.rnrs] as number;
      this.#sourceMac = 0;
    } else {
      this.timeouts = 0;
      this.rnrs = 0;
      const mac = word + CQE.sourceMac;
      this.#sourceMac = (u32[mac] as number) + ((u32[mac + 1] as number) & 0xffff) * 2 ** 32;
      this.#vlanAndPkey = u32[word + CQE.vlanTci] as number;
    }
    this.#qp = u32[word + CQE.qp] as number;
    this.#directory = directory;
  }
}

/** Offsets of the CQE's fields: bytes for wrId, words for the others. Computed once, because this is the hot path. */
const CQE = {
  wrId: CqeOffset.WR_ID,
  status: CqeOffset.STATUS / 4,
  opcode: CqeOffset.OPCODE / 4,
  byteLen: CqeOffset.BYTE_LEN / 4,
  imm: CqeOffset.IMM / 4,
  invalidatedRkey: CqeOffset.INVALIDATED_RKEY / 4,
  qpNum: CqeOffset.QPN / 4,
  srcQp: CqeOffset.SRC_QPN / 4,
  flags: CqeOffset.FLAGS / 4,
  syndrome: CqeOffset.SYNDROME / 4,
  psn: CqeOffset.PSN / 4,
  qp: CqeOffset.QP / 4,
  timeouts: CqeOffset.TIMEOUTS / 4,
  rnrs: CqeOffset.RNRS / 4,
  sourceMac: CqeOffset.TIMEOUTS / 4,
  vlanTci: CqeOffset.VLAN_TCI / 4,
} as const;

/** Reverses the byte order of a u32. */
export function swapBytes(value: number): number {
  return ((value << 24) | ((value & 0xff00) << 8) | ((value >>> 8) & 0xff00) | (value >>> 24)) >>> 0;
}
