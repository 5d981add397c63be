// A queue pair: what its requester, responder and completer know between two packets.
import { COUNTER_BYTES, Counter, count } from '../counters';
import { Cq } from '../host/cq';
import { Pd } from '../host/pd';
import { RecvQueue } from '../host/rq';
import { RecvWqe, SendWqe } from '../host/wqe';
import { QpState, Quirk } from '../limits';
import { PATH_BYTES, Path } from './path';

/** The operation whose next packet the responder expects (IBTA 9.7.4.1.3). */
export enum Expect {
  FIRST,
  SEND,
  WRITE,
}

/** What the responder has noted to say once all READ and atomic answers in front of it are out. */
export enum Answer {
  NONE,
  SPEAK,
  SPEAK_AND_FAIL,
}

@unmanaged
@final
export class Qp {
  // The fields lie in the order in which they are used together, so that a message touches few cache lines: with thousands
  // of queue pairs each line is one that has to be fetched.

  // read with every message, by posters too, and hardly ever written
  qpn: u32;
  type: u32;
  /** Read and written as `state`. */
  stateWord: u32;
  pd: Pd;
  sendCq: Cq;
  recvCq: Cq;
  signalAll: bool;
  flowControl: bool;
  isAdaptive: bool;
  /** Quirk bits. */
  quirks: u32;
  pkey: u32;
  mtu: u32;
  /** Send queue: WQEs from sqTail (oldest not completed) over sqNext (next to be sent) to sqHead (next to be posted). */
  sqBase: usize;
  sqStride: u32;
  sqMask: u32;
  maxSendSge: u32;
  maxInline: u32;
  /** The receive queue, which may be shared. */
  rq: RecvQueue;

  // requester and completer
  sqNext: u32;
  /** Next PSN to put on the wire; older than nextPsn while packets are repeated. */
  sendPsn: u32;
  /** First PSN that no message has taken yet. */
  nextPsn: u32;
  /** First PSN that was never on the wire. */
  wirePsn: u32;
  /** Oldest PSN without answer. */
  unackedPsn: u32;
  /** Packets sent since one asked for an ACK. */
  unasked: u32;
  /** READ and atomic requests without their answer. */
  rdAtomicInFlight: u32;
  window: u32;
  windowThreshold: u32;
  /** ACKed packets since the window last grew. */
  windowCredit: u32;
  /** End-to-end flow control (credit.ts): messages started, and the last that the peer has room for, unless it tells of no
   * limit. */
  ssn: u32;
  lsn: u32;
  isUnlimited: bool;
  /** One message may be started beyond that. */
  mayExceed: bool;
  /** The next message waits for news. */
  isStarved: bool;
  /** A part of a READ was asked for before the one in front of it was answered: one of rdAtomicInFlight. */
  isPartAhead: bool;
  /** A READ answer was missed and the READ is asked again: what else comes of the old answer is ignored. */
  isReadRetried: bool;
  retryCnt: u8;
  retryLeft: u8;
  rnrRetry: u8;
  rnrLeft: u8;
  timeouts: u32;
  rnrs: u32;

  // retry, timers and lists
  /** Where it goes on once the oldest packet, repeated for its late answer, turns out not to have been missing. */
  resumePsn: u32;
  ackDeadline: u64;
  rnrDeadline: u64;
  /** When an answer is late (adaptive.ts). */
  earlyDeadline: u64;
  timerDeadline: u64;
  /** Place in the heap, from 1; 0 = not in it. */
  timerPlace: u32;
  nextReady: usize;
  isReady: bool;
  isCnpDue: bool;
  isHeld: bool;
  lastSyndrome: u8;
  timeout: u32;
  destQpn: u32;
  /** Nothing is sent but the oldest packet. */
  isProbing: bool;
  /** Congestion control: bits per second, 0 = not limited. */
  rate: f64;

  // responder
  ePsn: u32;
  msn: u32;
  expect: Expect;
  /** A NAK for the PSN that is expected has been said. */
  isNakSaid: bool;
  hasReceived: bool;
  answerSyndrome: u8;
  /** Bytes of the message that arrive in the present receive WQE. */
  received: u32;
  writeRkey: u32;
  writeVa: u64;
  writeLeft: u32;
  writeLength: u32;
  access: u32;
  resultsKept: u32;
  resultsActive: u32;
  answer: Answer;
  answerPsn: u32;
  /** Read and written as `told`. */
  toldWord: u32;

  // adaptive retransmission, of the requester
  /** Since when the answer that is timed is awaited; 0 = none is. */
  timedAt: u64;
  /** A loss is so recent that answers are not awaited long. */
  lossyUntil: u64;
  timedPsn: u32;
  /** Nanoseconds, smoothed; 0 = not measured yet. */
  roundTrip: i32;
  deviation: i32;
  /** Since a round trip was measured. */
  earlyRepeats: u8;
  /** The deadline was put off, since this thread was late itself. */
  isExcused: bool;

  // what follows is asked for less often
  /** When the oldest packet was last repeated because its answer was late. */
  repeatedAt: u64;
  /** Until when it waits for credits. */
  creditDeadline: u64;
  /** A copy of the work request in which a message is arriving. */
  held: RecvWqe;
  /** Beyond this the window does not grow. */
  windowMost: u32;
  maxRdAtomic: u32;
  maxDestRdAtomic: u32;
  minRnrTimer: u32;
  /** Saved READ and atomic results, a ring (responder). */
  results: usize;
  resultMask: u32;
  resultHead: u32;
  pkeyIndex: u32;
  port: u32;
  qkey: u32;
  sqPsn: u32;
  rqPsn: u32;
  isDrainAsked: bool;

  // congestion control
  targetRate: f64;
  alpha: f64;
  timerSteps: u32;
  byteSteps: u32;
  stepBytes: u32;
  /** No CNP before this. */
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

  /** Only `setState` writes it. Posters in another thread read it, so it orders what is around it. */
  get state(): QpState {
    return atomic.load<u32>(this.ptr, offsetof<Qp>('stateWord'));
  }
  set state(value: QpState) {
    atomic.store<u32>(this.ptr, value, offsetof<Qp>('stateWord'));
  }

  // On cache lines of their own: what the poster writes, and what the card writes.
  get sqHead(): u32 {
    return atomic.load<u32>(this.ptr + QP_FIELDS);
  }
  set sqHead(value: u32) {
    atomic.store<u32>(this.ptr + QP_FIELDS, value);
  }
  /** The queue pair is in the ring of doorbells (qp/doorbell). Answers what it was before. */
  setRung(value: bool): bool {
    return atomic.xchg<u32>(this.ptr + QP_FIELDS, value, 4) != 0;
  }
  get sqTail(): u32 {
    return atomic.load<u32>(this.ptr + QP_FIELDS, 64);
  }
  set sqTail(value: u32) {
    atomic.store<u32>(this.ptr + QP_FIELDS, value, 64);
  }

  /** Receives that the peer has been told of and has not used. A poster that has posted one looks here, the card looks for
   * receives after it has written 0: one of them sees the other. */
  get told(): u32 {
    return atomic.load<u32>(this.ptr, offsetof<Qp>('toldWord'));
  }
  set told(value: u32) {
    atomic.store<u32>(this.ptr, value, offsetof<Qp>('toldWord'));
  }

  /** The domain in which received data may be placed: that of the receive queue (IBTA 10.2.9.1). */
  get recvPd(): Pd {
    return this.rq.isShared ? this.rq.pd : this.pd;
  }

  /** What its packets say of path migration. */
  get migReq(): bool {
    return (this.quirks & Quirk.MIG_REQ_ZERO) == 0;
  }

  sendWqe(n: u32): SendWqe {
    return changetype<SendWqe>(this.sqBase + <usize>(n & this.sqMask) * this.sqStride);
  }

  count(counter: Counter): void {
    count(this.counters, counter, 1);
  }
  countBy(counter: Counter, by: u64): void {
    count(this.counters, counter, by);
  }
}
/** Bytes of the fields above, of the cursors behind them, and of a whole queue pair without its rings. */
const QP_FIELDS: usize = (offsetof<Qp>() + 63) & ~63;
const CURSOR_BYTES: usize = 128;
export const QP_BYTES: u64 = QP_FIELDS + CURSOR_BYTES + PATH_BYTES + COUNTER_BYTES;
