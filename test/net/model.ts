/** What a simulated user is told to do, and what the model remembers of what was posted. */
import type { Net } from '../kit/net.js';
import type { Random } from '../kit/random.js';
import type { Piece, Region, RigQp, SendRequest } from '../kit/rig.js';
import type { Kind, Op } from './op.js';
import type { Side } from './side.js';
import type { Stream } from './stream.js';
import type { Window, Windows } from './windows.js';

/** A request that breaks a rule, in place of a legal one. */
export interface Poison {
  readonly index: number;
  readonly kind: Kind;
  readonly length: number;
  /** Changes the request that would have been posted, or the receive for it. */
  send?(request: SendRequest, stream: Stream): SendRequest;
  receive?(pieces: Piece[], stream: Stream): Piece[];
  /** How the request must end; and how the receive, where one is held. */
  readonly status: string;
  readonly received?: string;
  /** How the next request to the peer must end, where this one succeeds. */
  readonly after?: string;
}

export interface StreamOptions {
  readonly net: Net;
  readonly random: Random;
  readonly index: number;
  readonly from: Side;
  readonly fromQp: RigQp;
  readonly to: Side;
  readonly toQp: RigQp;
  readonly ops: readonly Op[];
  /** Chance that a receive is posted late, and by up to how many nanoseconds. */
  readonly late: number;
  readonly lateBy: number;
  /** Statuses besides SUCCESS that may end the stream. */
  readonly mayEndWith: readonly string[];
  readonly poison?: Poison | undefined;
  /** Windows of the sender, for the peer, and of the peer. */
  readonly own: Windows;
  readonly theirs: Windows;
}

export interface Range {
  readonly offset: number;
  readonly length: number;
}
export interface Posted {
  readonly op: Op;
  /** At the peer. */
  readonly remote?: Range;
  /** What READ or atomic must bring, and where to; undefined for the word that all share. */
  readonly expected?: Buffer | undefined;
  readonly landing?: { pieces: readonly Piece[]; offset: number; mark: number };
  readonly region?: Region | undefined;
  /** The window that is bound or closed, or through which it goes. */
  readonly window?: Window | undefined;
}
export interface Receive {
  readonly op: Op;
  readonly pieces: readonly Piece[];
  readonly offset: number;
  readonly bytes: number;
  readonly mark: number;
}
