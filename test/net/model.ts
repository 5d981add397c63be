/** The orders of a simulated application, and the model's record of what was posted. */
import type { Net } from '../kit/net.js';
import type { Random } from '../kit/random.js';
import type { Piece, Region, RigQp, SendRequest } from '../kit/rig.js';
import type { Window, Windows } from './memory-windows.js';
import type { Kind, Op } from './op.js';
import type { Side } from './side.js';
import type { Stream } from './stream.js';

/** A request that breaks a rule, in place of a legal one. */
export interface Violation {
  readonly index: number;
  readonly kind: Kind;
  readonly length: number;
  /** Changes the request that would have been posted, or the receive for it. */
  send?(request: SendRequest, stream: Stream): SendRequest;
  receive?(pieces: Piece[], stream: Stream): Piece[];
  /** The status that the request must get, and the receive, if one is taken. */
  readonly status: string;
  readonly received?: string;
  /** The status that the next request to the peer must get, if this one succeeds. */
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
  /** Chance that a receive is posted late, and the largest delay in nanoseconds. */
  readonly late: number;
  readonly lateBy: number;
  /** Statuses besides SUCCESS with which the stream may end. */
  readonly mayEndWith: readonly string[];
  readonly violation?: Violation | undefined;
  /** Windows of the sender, which the peer uses, and windows of the peer. */
  readonly own: Windows;
  readonly theirs: Windows;
}

export interface Range {
  readonly offset: number;
  readonly length: number;
}
export interface Posted {
  readonly op: Op;
  /** The range at the peer. */
  readonly remote?: Range;
  /** The result of a READ or atomic, and where it is placed; undefined for the word that all streams share. */
  readonly expected?: Buffer | undefined;
  readonly landing?: { pieces: readonly Piece[]; offset: number; mark: number };
  readonly region?: Region | undefined;
  /** The window that the request binds, invalidates or uses. */
  readonly window?: Window | undefined;
}
export interface Receive {
  readonly op: Op;
  readonly pieces: readonly Piece[];
  readonly offset: number;
  readonly bytes: number;
  readonly mark: number;
}
