/** The checks of a peer: of its responder, its requester, its connection manager, or of all its packets. */
import type { CheckBase, PacketRule } from './checkbase.js';
import type { CmConversation } from './cmconversation.js';
import type { ResponderConversation } from './responderconversation.js';
import type { Service } from './service.js';
import type { CmOptions, RequesterOptions, ResponderOptions } from './target.js';

/** A check of a peer that answers our requests. */
export interface ResponderCheck extends CheckBase {
  /** Its needs of the peer's queue pair. */
  readonly needs: ResponderOptions;
  /** Runs the check. It returns when the peer passes, and leaves by a method of `talk` otherwise. */
  run(talk: ResponderConversation): Promise<void>;
}

/** A check of a peer that sends requests to us. */
export interface RequesterCheck extends CheckBase {
  /** Its requirements on the peer's queue pair. */
  readonly asks: RequesterOptions;
  /** Runs the check. It returns when the peer passes, and leaves by a method of `service` otherwise. */
  run(service: Service): Promise<void>;
}

/** A check of the peer's connection manager. It ends all connections that it has made. */
export interface CmCheck extends CheckBase {
  /** Its needs of the connection manager. */
  readonly connects: CmOptions;
  /** Runs the check. It returns when the peer passes, and leaves by a method of `talk` otherwise. */
  run(talk: CmConversation): Promise<void>;
}

/** A check that sends nothing: it judges the packets of the other checks. */
export interface RuleCheck extends CheckBase {
  readonly rule: PacketRule;
}

/** One check of a peer. */
export type Check = ResponderCheck | RequesterCheck | CmCheck | RuleCheck;
