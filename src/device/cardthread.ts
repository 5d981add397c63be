/** The contract of the thread that takes the turns in mode `worker`. There are two: nativethread.ts and v8thread.ts. */
import type { LinkTransfer } from '../link/transfer.js';
import type { Card } from './card.js';
import type { Trace } from './trace.js';
import type { TurnLock } from './turnlock.js';

/** A thread that takes turns until the stop that the TurnLock requests. */
export interface CardThread {
  /** Resolves when the thread takes turns. Rejects with VerbsError EIO if it does not start. */
  running(): Promise<void>;
  /** Releases the thread after the stop was requested. @param hasStopped false: it does not respond, and is ended */
  close(hasStopped: boolean): void;
  /** Resolves when the thread has ended and uses nothing any more. */
  readonly ended: Promise<void>;
}

/** Everything that a thread works with. */
export interface ThreadPlan {
  readonly card: Card;
  readonly turnLock: TurnLock;
  readonly transfer: LinkTransfer;
  /** The eventfd that wakes the card's thread. */
  readonly workerEventfd: number;
  /** The eventfd that wakes the application's thread. */
  readonly appEventfd: number;
  /** Maximum time to poll for work before a sleep (ns). */
  readonly spinNs: number;
  readonly trace: Trace | undefined;
  /** Value of process.hrtime when the device's clock is 0 (ns). */
  readonly clockOrigin: bigint;
}
