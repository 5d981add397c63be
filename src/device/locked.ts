/** A card whose turns are taken by another thread: which of its calls may meet with a turn, and which may not. */
import type { CardExports } from './card.js';

/** Keeps turns away. */
export interface Lock {
  acquire(): void;
  release(): void;
  /** The other thread has failed, perhaps in the middle of a turn: the card is not touched any more. */
  readonly hasFailed: boolean;
}

/**
 * Calls that may be made at any time, by one thread beside the one that takes the turns: all of posting.ts in assembly/,
 * and those of index.ts that read constants or what is the user's own.
 */
export const LOCK_FREE: ReadonlySet<keyof CardExports> = new Set([
  ...(['scratch', 'lastErrno', 'txRing', 'rxRing', 'counters', 'qpCounters'] as const),
  ...(['mrLkey', 'mrRkey', 'fastLkey', 'qpNumber'] as const),
  ...(['sqBegin', 'sqSge', 'sqInline', 'sqRemote', 'sqAtomic', 'sqImm', 'sqFlush', 'sqBind', 'sqRegister'] as const),
  ...(['sqDatagram', 'sqCommit', 'rqBegin', 'rqSge', 'rqCommit', 'srqBegin', 'srqSge', 'srqCommit', 'isRung'] as const),
  ...(['cqArm', 'cqIsArmed', 'cqPeek', 'cqPop', 'cqOverrun', 'eventPeek', 'eventPop'] as const),
]);

/** The same exports, the others behind the lock. Of a failed card these answer 0, so that its objects can be closed. */
export function locked(exports: CardExports, lock: Lock): CardExports {
  const all: Record<string, unknown> = {};
  // Some are inherited.
  for (const name in exports) {
    const value = exports[name as keyof CardExports] as unknown;
    const isFree = typeof value !== 'function' || LOCK_FREE.has(name as keyof CardExports);
    all[name] = isFree ? value : behind(lock, value as Call);
  }
  return all as CardExports;
}

type Call = (...args: number[]) => unknown;

function behind(lock: Lock, call: Call): Call {
  return (...args) => {
    if (lock.hasFailed) return 0;
    lock.acquire();
    try {
      return call(...args);
    } finally {
      lock.release();
    }
  };
}
