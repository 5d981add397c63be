/** Calls of a card whose turns another thread takes: which of them may run during a turn, and which need the lock. */
import type { CardExports } from './card.js';

/** Keeps the card's thread from taking a turn. */
export interface Lock {
  acquire(): void;
  release(): void;
  /** Whether the card's thread has failed, perhaps within a turn. The card is not used any more. */
  readonly hasFailed: boolean;
}

/**
 * Calls that one other thread may make during a turn: all of assembly/posting.ts, and those of assembly/index.ts that
 * read constants, data that only the application's thread changes, or one word.
 */
export const LOCK_FREE: ReadonlySet<keyof CardExports> = new Set([
  ...(['scratch', 'lastErrno', 'txRing', 'rxRing', 'counters', 'qpCounters'] as const),
  ...(['mrLkey', 'mrRkey', 'fastLkey', 'qpNumber', 'qpState', 'randomPsn'] as const),
  ...(['sqBegin', 'sqSge', 'sqInline', 'sqRemote', 'sqAtomic', 'sqImm', 'sqFlush', 'sqBind', 'sqRegister'] as const),
  ...([
    'sqDatagram',
    'sqCommit',
    'rqBegin',
    'rqSge',
    'rqCommit',
    'srqBegin',
    'srqSge',
    'srqCommit',
    'qpRecvReturn',
    'isDoorbellRung',
  ] as const),
  ...(['cqArm', 'cqIsArmed', 'cqPeek', 'cqPop', 'cqOverrun', 'eventPeek', 'eventPop'] as const),
]);

/**
 * Returns exports that hold the lock in all other calls. For a failed card these return 0, so that objects can be
 * closed.
 */
export function locked(exports: CardExports, lock: Lock): CardExports {
  const all: Record<string, unknown> = {};
  // for...in also visits inherited exports.
  for (const name in exports) {
    const value = exports[name as keyof CardExports] as unknown;
    const isFree = typeof value !== 'function' || LOCK_FREE.has(name as keyof CardExports);
    all[name] = isFree ? value : withLock(lock, value as Call);
  }
  return all as CardExports;
}

type Call = (...args: number[]) => unknown;

function withLock(lock: Lock, call: Call): Call {
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
