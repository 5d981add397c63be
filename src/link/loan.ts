/**
 * Links whose frames are moved by another thread than the one that opened them. What passes between the two threads is
 * plain data: the card's memory is shared, and the addon's sockets are found by number.
 */
import { VerbsError } from '../errors.js';
import { native } from '../native.js';
import { Capture, type CapturePlan, writeTo } from './capture.js';
import { FaultMover, type FaultPlan } from './faultmover.js';
import type { FrameMover, Link } from './link.js';
import { XdpMover, type XdpPlan } from './xdpmover.js';

/** How another thread comes to a link's frames; plain data. `fd` is readable when there may be something to receive. */
export type Loan = SocketLoan | XdpLoan | FaultLoan | CaptureLoan;

export interface SocketLoan {
  readonly kind: 'socket';
  /** The addon's number for it. */
  readonly id: number;
  readonly fd: number;
  /** An i32, not 0 when the kernel has refused a run. */
  readonly news: SharedArrayBuffer;
}

export interface XdpLoan {
  readonly kind: 'xdp';
  readonly fd: number;
  readonly plan: XdpPlan;
}

export interface FaultLoan {
  readonly kind: 'fault';
  readonly inner: Loan;
  readonly fd: number;
  readonly plan: FaultPlan;
}

export interface CaptureLoan {
  readonly kind: 'pcap';
  readonly inner: Loan;
  readonly fd: number;
  readonly plan: CapturePlan;
}

/** @throws VerbsError EOPNOTSUPP for a link that works in its own thread only */
export function lendLink(link: Link): Loan {
  if (link.lend) return link.lend();
  throw new VerbsError(
    'EOPNOTSUPP',
    `the ${link.kind} link works in the thread that has opened it, so the device's mode must be 'inline'`,
  );
}

/**
 * For the other thread.
 * @param memory the card's
 * @param onNews has the first thread call `onLoanNews`
 */
export function borrow(loan: Loan, memory: Uint8Array, onNews: () => void): FrameMover {
  switch (loan.kind) {
    case 'socket':
      return borrowSocket(loan, onNews);
    case 'xdp':
      return new XdpMover(memory, loan.plan);
    case 'fault': {
      const { plan } = loan;
      return new FaultMover(plan.options, plan.counts, borrow(loan.inner, memory, onNews)).join(memory, plan);
    }
    case 'pcap':
      return new Capture(memory, loan.plan, writeTo(loan.plan.fd), borrow(loan.inner, memory, onNews));
  }
}

function borrowSocket({ id, news }: SocketLoan, onNews: () => void): FrameMover {
  const socket = new (native().Borrowed)(id);
  return {
    send() {
      const taken = socket.send();
      if (taken >= 0) return taken;
      Atomics.store(new Int32Array(news), 0, 1);
      onNews();
      return ~taken;
    },
    receive: () => socket.receive(),
    nextDeadline: () => 0,
  };
}
