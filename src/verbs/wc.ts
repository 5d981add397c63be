/** Work completions: what a program polls. */
import type { Card } from '../device/card.js';
import { CqeOffset, nameOf, WcFlag, WcOpcode, WcStatus } from '../device/codes.js';
import { hex } from './check.js';
import { type Circumstances, type Explanation, explain } from './explain.js';
import { swapBytes } from './post.js';

/** Who knows the circumstances of a queue pair. */
export interface QpDirectory {
  circumstances(handle: number, qpNum: number): Circumstances | undefined;
}

/** A completion. `cq.poll` fills the objects that it is given; `cq.next` and `for await` give new ones. */
export class Wc {
  /** As posted. */
  wrId = 0;
  /** A `WcStatus`. When it is not SUCCESS, lengths and immediates describe nothing. */
  status = 0;
  /** A `WcOpcode`. */
  opcode = 0;
  /** Bytes received, for a datagram with the 40 in front, or read by an RDMA READ or atomic. */
  byteLen = 0;
  /** The immediate as a 32-bit number, when `hasImm`. */
  immData = 0;
  /** The key that the peer invalidated, when `hasInvalidated`. */
  invalidatedRkey = 0;
  /** Our queue pair. */
  qpNum = 0;
  /** The peer's, for datagrams. */
  srcQp = 0;
  /** Sum of `WcFlag` bits. */
  wcFlags = 0;
  /** AETH syndrome of the last answer before a failure; 0 = none came. */
  syndrome = 0;
  /** PSN that a failure is about. */
  psn = 0;
  /** ACK timers that expired, and RNR NAKs that came, since the queue pair's last progress. */
  timeouts = 0;
  rnrs = 0;
  #qp = 0;
  #directory: QpDirectory | undefined;

  /** `SUCCESS`, `RETRY_EXC_ERR` ... */
  get statusName(): string {
    return nameOf(WcStatus, this.status);
  }

  /** `SEND`, `RECV`, `RDMA_READ` ... */
  get opcodeName(): string {
    return nameOf(WcOpcode, this.opcode);
  }

  get ok(): boolean {
    return this.status === WcStatus.SUCCESS;
  }

  get hasImm(): boolean {
    return (this.wcFlags & WcFlag.WITH_IMM) !== 0;
  }

  /** A datagram: the first 40 bytes of its memory are of its way. */
  get hasGrh(): boolean {
    return (this.wcFlags & WcFlag.GRH) !== 0;
  }

  get hasInvalidated(): boolean {
    return (this.wcFlags & WcFlag.WITH_INV) !== 0;
  }

  /** What happened, as far as the card knows, and the likely causes. */
  explain(): Explanation {
    return explain(this, this.#directory?.circumstances(this.#qp, this.qpNum));
  }

  /** A completion of its own, which later polls leave alone. */
  copy(): Wc {
    const wc = Object.assign(new Wc(), this);
    wc.#qp = this.#qp;
    wc.#directory = this.#directory;
    return wc;
  }

  toString(): string {
    return `${this.opcodeName} wrId ${this.wrId} on qp ${hex(this.qpNum)}: ${this.statusName}`;
  }

  /** @internal Takes over a completion of the card's ring. */
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
    this.timeouts = u32[word + CQE.timeouts] as number;
    this.rnrs = u32[word + CQE.rnrs] as number;
    this.#qp = u32[word + CQE.qp] as number;
    this.#directory = directory;
  }
}

/** Places of the fields in a completion: bytes for wrId, words for the others. Looked up once; this is the hot path. */
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
} as const;
