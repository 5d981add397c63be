/**
 * The engine of a device: sees to it that the card has its turns, and hands on what the card tells. There are two: one
 * takes the turns in the application's own thread (inline.ts), the other has a thread for it (worker.ts).
 */
import type { LinkFeatures } from '../link/link.js';
import type { Card } from './card.js';
import { EventOffset, LinkFlag } from './codes.js';
import type { Trace } from './trace.js';

export type Mode = 'inline' | 'worker';

export interface Engine {
  readonly mode: Mode;
  /** How it works, for people. */
  readonly notes: readonly string[];
  /** Headers of what has passed, where they are kept. */
  readonly trace: Trace | undefined;
  /** Takes what the card tells: an EventType and the handle of the cq or qp it is about. */
  onEvent: (type: number, handle: number) => void;
  /** The card's thread has failed. No more turns are taken. */
  onFailure: (reason: string) => void;
  /** Why it has failed; undefined while it works. */
  readonly failure: string | undefined;
  /** On behalf of a poller who does not return to the event loop: what can be done at once. */
  poll(): void;
  /** Work requests were posted: the card looks at them soon, where it has to. */
  posted(): void;
  /** Something about the card has changed: it has a turn soon. */
  schedule(): void;
  /** What the link promises has changed. */
  linkChanged(): void;
  /** From now until `release` the device's sleep keeps the process running. */
  hold(): void;
  release(): void;
  /** Sends what is ready and closes the link. */
  close(): void;
  /** After `close`: everything has been given back. */
  readonly ended: Promise<void>;
}

/** Tells the card what its link promises. */
export function tellLink(
  { exports, options }: Card,
  { sourcePort, runs = { packets: 0, bytes: 0 } }: LinkFeatures,
): void {
  let flags = sourcePort === 0 ? 0 : LinkFlag.FIXED_SOURCE_PORT;
  if (options.icrcOffload) flags |= LinkFlag.ICRC_OFFLOAD;
  exports.setLink(flags, sourcePort, runs.packets, runs.bytes);
}

/** Hands on what the card has to tell. */
export function tellEvents({ exports, u32 }: Card, onEvent: (type: number, handle: number) => void): void {
  for (let at = exports.eventPeek(); at !== 0; at = exports.eventPeek()) {
    const type = u32[(at + EventOffset.TYPE) >>> 2] as number;
    const handle = u32[(at + EventOffset.HANDLE) >>> 2] as number;
    exports.eventPop(at);
    onEvent(type, handle);
  }
}
