// A queue pair: the state that requester, responder and completer keep between two packets.

import { QpState, Quirk } from '../codes';
import { COUNTER_BYTES, Counter, count } from '../counters';
import { Cq } from '../host/cq';
import { Pd } from '../host/pd';
import { RecvQueue } from '../host/rq';
import { RecvWqe, SendWqe } from '../host/wqe';
import { PATH_BYTES, Path } from './path';

/** The operation whose next packet the responder expects (IBTA 9.7.4.1.3). */
export enum Expect {
  FIRST,
  SEND,
  WRITE,
}

/** The NAK that the responder has sent for the expected PSN. */
export enum SentNak {
  NONE,
  SEQUENCE,
  RNR,
}

/** The ACK or NAK that the responder sends once all READ and atomic responses before it are sent. */
export enum PendingAck {
  NONE,
  SEND,
  SEND_AND_FAIL,
}

@unmanaged
@final
export class Qp {
  // Fields that are used together are next to each other, so that a message touches few cache lines: with thousands of
  // queue pairs each line has to be fetched from memory.

  // read with every message, by posting threads too, and rarely written
  qpn: u32;
  type: u32;
  /** Read and written through `state`. */
  stateWord: u32;
  pd: Pd;
  sendCq: Cq;
  recvCq: Cq;
  signalAll: bool;
  flowControl: bool;
  isAdaptive: bool;
  /** Quirk bits of the peer. */
  quirks: u32;
  pkey: u32;
  mtu: u32;
  /** Send queue: WQEs from sqTail (oldest not completed) over sqNext (next to send) to sqHead (next to post). */
  sqBase: usize;
  sqStride: u32;
  sqMask: u32;
  maxSendSge: u32;
  maxInline: u32;
  /** The receive queue, which may be shared. */
  rq: RecvQueue;
  /** WQEs of a shared receive queue that it may hold, 0 = no limit, and all that it has taken (quota.ts). */
  recvQuota: u32;
  recvTaken: u32;

  // requester and completer
  sqNext: u32;
  /** PSN of the next packet to send; older than allocPsn during a retransmission. */
  sendPsn: u32;
  /** First PSN that no message uses yet. */
  allocPsn: u32;
  /** First PSN that was never sent. */
  unsentPsn: u32;
  /** Oldest unacknowledged PSN. */
  unackedPsn: u32;
  /** Packets sent since the last one that requested an ACK. */
  packetsSinceAckReq: u32;
  /** READ and atomic requests whose response is outstanding. */
  rdAtomicInFlight: u32;
  window: u32;
  windowThreshold: u32;
  /** Packets acknowledged since the window last grew. */
  ackedSinceGrowth: u32;
  /**
   * End-to-end flow control (credit.ts): messages started, and the last message for which the peer has a receive,
   * unless it advertises no limit.
   */
  ssn: u32;
  lsn: u32;
  hasUnlimitedCredits: bool;
  /** One message beyond that limit may be started. */
  canSendUncredited: bool;
  /** The next message waits for credits. */
  isWaitingForCredits: bool;
  /**
   * The next part of a READ was requested before the response to the previous one ended; counts in rdAtomicInFlight.
   */
  isNextReadPartInFlight: bool;
  /** A READ response was missed and the READ is requested again: late responses to the first request are ignored. */
  isReadRetried: bool;
  /** A sequence NAK has made sending resume at the oldest packet: further NAKs of it were sent for the same gap. */
  isNakRetried: bool;
  /** It is being found out, or known, whether the peer keeps what arrives behind a gap (seqnak.ts). */
  isReorderTrial: bool;
  peerBuffersAhead: bool;
  retryCnt: u8;
  retryLeft: u8;
  rnrRetry: u8;
  rnrLeft: u8;
  timeouts: u32;
  rnrs: u32;

  // retries, timers and lists
  /** The PSN at which sending resumes when the retransmitted oldest packet turns out not to have been lost. */
  resumePsn: u32;
  ackDeadline: u64;
  rnrDeadline: u64;
  /** When an ACK is overdue (adaptive.ts). */
  earlyDeadline: u64;
  /** Until when the oldest packet, for which a sequence NAK has come, may still arrive by itself (seqnak.ts). */
  nakDeadline: u64;
  /** When the deferred ACK is sent in any case (deferredack.ts). */
  deferredDeadline: u64;
  timerDeadline: u64;
  /** Index in the heap of timers, from 1; 0 = not in it. */
  timerIndex: u32;
  nextReady: usize;
  isReady: bool;
  isCnpDue: bool;
  /** A packet of the peer has come since the last look, and a keep-alive is due (keepalive.ts). */
  isPeerHeard: bool;
  isKeepAliveDue: bool;
  hasRecvWqe: bool;
  lastSyndrome: u8;
  timeout: u32;
  destQpn: u32;
  /** Only the oldest packet may be sent (adaptive.ts). */
  isProbing: bool;
  /** Rate of congestion control in bit/s, 0 = no limit. */
  rate: f64;

  // responder
  ePsn: u32;
  msn: u32;
  expect: Expect;
  /** Requests that wait for a gap to be filled, a list in the order of their PSNs (reorder.ts), and their number. */
  reorderFirst: usize;
  reorderCount: u32;
  sentNak: SentNak;
  /** A sequence NAK was sent since packets wait behind a gap: the peer sends everything from the gap on again. */
  isRepetitionDue: bool;
  hasReceived: bool;
  pendingSyndrome: u8;
  /** Bytes of the arriving message placed in the current receive WQE. */
  receivedBytes: u32;
  writeRkey: u32;
  writeVa: u64;
  writeLeft: u32;
  writeLength: u32;
  access: u32;
  resourceCount: u32;
  activeResources: u32;
  pendingAck: PendingAck;
  pendingPsn: u32;
  /** The PSN of the deferred ACK, and the expected PSN since when it is deferred (deferredack.ts). */
  deferredPsn: u32;
  deferredEPsn: u32;
  /** Read and written through `advertised`. */
  advertisedWord: u32;

  // adaptive retransmission, of the requester
  /** When the packet whose round trip is measured was sent; 0 = none is. */
  rttStart: u64;
  /** Until when the short minimum timeout applies after a loss. */
  lossyUntil: u64;
  rttPsn: u32;
  /** Smoothed round-trip time in nanoseconds; 0 = not measured yet. */
  srtt: i32;
  rttvar: i32;
  /** Early retransmissions since a round trip was measured. */
  earlyRetransmits: u8;
  /** The deadline was extended because this thread was late itself. */
  isEarlyDeadlineExtended: bool;

  // fields that are used less often
  /** When the oldest packet was last retransmitted, early or for a sequence NAK. */
  retransmittedAt: u64;
  /** When the sequence NAK of the oldest packet came, and for how many nanoseconds such a NAK is waited with. */
  nakAt: u64;
  /** When the first RNR NAK of the message that waits for a receive WQE came, and when the responder sent it. */
  rnrSince: u64;
  rnrNakSince: u64;
  /** RNR NAKs that the responder has sent for the message, and whether it has raised QP_NO_RECEIVE for it. */
  rnrNaks: u32;
  isNoReceiveRaised: bool;
  reorderWait: u32;
  /** The last known round trip of a sequence NAK. */
  nakRtt: u32;
  /** The first PSN not sent when the trial began, and when sending last went back. */
  trialPsn: u32;
  recoverPsn: u32;
  /** Waits that did not help, and gaps that filled by themselves, until the peer is known to keep packets. */
  uselessWaits: u8;
  selfFilledGaps: u16;
  /** The window and its threshold before it was last halved. */
  windowBefore: u32;
  thresholdBefore: u32;
  /** Until when a message waits for credits. */
  creditDeadline: u64;
  /** A copy of the receive WQE of the arriving message. */
  recvWqe: RecvWqe;
  /** Largest window, and what the user limits it to. */
  maxWindow: u32;
  windowLimit: u32;
  maxRdAtomic: u32;
  maxDestRdAtomic: u32;
  minRnrTimer: u32;
  /** Response resources (resource.ts), a ring. */
  resources: usize;
  resourceMask: u32;
  resourceHead: u32;
  pkeyIndex: u32;
  port: u32;
  qkey: u32;
  sqPsn: u32;
  rqPsn: u32;
  isDrainEventWanted: bool;

  // congestion control
  targetRate: f64;
  alpha: f64;
  timerSteps: u32;
  byteSteps: u32;
  stepBytes: u32;
  /** Earliest time of the next cut of the rate. */
  nextCut: u64;
  /** The rate has held a packet back since its last increase by the timer. */
  wasPaced: bool;
  /** Earliest time of the next CNP. */
  nextCnp: u64;
  /** When the rate allows the next packet. */
  paceAt: u64;
  paceDeadline: u64;
  alphaDeadline: u64;
  rateDeadline: u64;

  get ptr(): usize {
    return changetype<usize>(this);
  }
  get path(): Path {
    return changetype<Path>(this.ptr + QP_FIELDS + CURSOR_BYTES);
  }
  get counters(): usize {
    return this.ptr + QP_FIELDS + CURSOR_BYTES + PATH_BYTES;
  }

  /** Only `setState` writes it. Posting threads read it: the access is atomic and orders those around it. */
  get state(): QpState {
    return atomic.load<u32>(this.ptr, offsetof<Qp>('stateWord'));
  }
  set state(value: QpState) {
    atomic.store<u32>(this.ptr, value, offsetof<Qp>('stateWord'));
  }

  // Cursors, on cache lines of their own: first what the posting thread writes, then what the card writes.
  get sqHead(): u32 {
    return atomic.load<u32>(this.ptr + QP_FIELDS);
  }
  set sqHead(value: u32) {
    atomic.store<u32>(this.ptr + QP_FIELDS, value);
  }
  /** Marks the queue pair as being in the doorbell ring (qp/doorbell). Returns the previous value. */
  setRung(value: bool): bool {
    return atomic.xchg<u32>(this.ptr + QP_FIELDS, value, 4) != 0;
  }
  /** Receive WQEs that the application has returned (quota.ts). */
  get recvReturned(): u32 {
    return atomic.load<u32>(this.ptr + QP_FIELDS, 8);
  }
  set recvReturned(value: u32) {
    atomic.store<u32>(this.ptr + QP_FIELDS, value, 8);
  }
  get sqTail(): u32 {
    return atomic.load<u32>(this.ptr + QP_FIELDS, 64);
  }
  set sqTail(value: u32) {
    atomic.store<u32>(this.ptr + QP_FIELDS, value, 64);
  }

  /**
   * Receives that were advertised to the peer and are not used yet. A posting thread looks here after it has posted
   * one, the card looks for receives after it has written 0: one of them sees the other.
   */
  get advertised(): u32 {
    return atomic.load<u32>(this.ptr, offsetof<Qp>('advertisedWord'));
  }
  set advertised(value: u32) {
    atomic.store<u32>(this.ptr, value, offsetof<Qp>('advertisedWord'));
  }

  /** The protection domain of received data: that of the receive queue (IBTA 10.2.9.1). */
  get recvPd(): Pd {
    return this.rq.isShared ? this.rq.pd : this.pd;
  }

  /** The MigReq bit of its packets. */
  get migReq(): bool {
    return (this.quirks & Quirk.MIG_REQ_ZERO) == 0;
  }

  sendWqe(n: u32): SendWqe {
    return changetype<SendWqe>(this.sqBase + <usize>(n & this.sqMask) * this.sqStride);
  }

  /** The responder owes the ACK or NAK of `psn`; it replaces the pending one. */
  setPendingAck(ack: PendingAck, syndrome: u32, psn: u32): void {
    this.pendingAck = ack;
    this.pendingSyndrome = <u8>syndrome;
    this.pendingPsn = psn;
  }

  count(counter: Counter): void {
    count(this.counters, counter, 1);
  }
  countBy(counter: Counter, by: u64): void {
    count(this.counters, counter, by);
  }
}
/** Bytes of the fields above, of the cursors behind them, and of a whole queue pair without its queues. */
const QP_FIELDS: usize = (offsetof<Qp>() + 63) & ~63;
const CURSOR_BYTES: usize = 128;
export const QP_BYTES: u64 = QP_FIELDS + CURSOR_BYTES + PATH_BYTES + COUNTER_BYTES;
